"""The trained networks for CIFAR-10: conversion of the author's checkpoints, and what is refused."""

import os
import pickle

import data_samples as samples
import numpy as np
import pytest
import safetensors.numpy
import torch
from data_server import remotes_of, serving, silent

from experiments.data import DataError, resnets
from experiments.data.fetch import DataOrigin, fetch
from experiments.data.source import Folder

TINY = {name: resnets.Network(f"{name}-0.th", "sha256:", blocks=1) for name in ("one", "two")}
FIRST = resnets.file_of("one")
SHAPES = {"conv1.weight": (2, 3, 3, 3), "linear.bias": (3,)}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(resnets, "NETWORKS", TINY)


def made():
    rng = np.random.default_rng(4)
    return {
        name: {tensor: rng.normal(size=shape).astype(np.float32) for tensor, shape in SHAPES.items()} for name in TINY
    }


def packed(weights):
    return {resnets.file_of(name): safetensors.numpy.save(each) for name, each in weights.items()}


def read(root, official, adopting=False):
    return resnets.read_folder(Folder(root, resnets.NAME, official, adopting))


@pytest.mark.parametrize("folder", [resnets.NAME, "models"])
def test_official_files_are_read_from_either_folder(tmp_path, folder):
    files = packed(made())
    samples.put(tmp_path / folder, files)
    found = read(tmp_path, samples.official(files))
    np.testing.assert_equal(found.weights, made())
    assert found.info.provenance == "official files, digests checked"


def first_with(bias):
    weights = made()
    weights["one"]["linear.bias"] = bias
    return packed(weights)[FIRST]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (first_with(np.zeros(3)), r"linear\.bias has values that are no finite float32"),
        (first_with(np.full(3, np.nan, np.float32)), r"linear\.bias has values that are no finite float32"),
        *((content, "cannot be read as safetensors") for content in (b"", b"\xff" * 64, packed(made())[FIRST][:-4])),
    ],
)
def test_what_is_no_weights_is_refused_even_where_a_manifest_would_follow(tmp_path, content, fault):
    samples.put(tmp_path / resnets.NAME, packed(made()) | {FIRST: content})
    with pytest.raises(DataError, match=f"{FIRST}: {fault}"):
        read(tmp_path, {}, adopting=True)


def checkpoint(path, weights):
    """The author's form: names of DataParallel, the score beside them, torch's format before 1.6."""
    state = {f"module.{name}": torch.from_numpy(array) for name, array in weights.items()}
    torch.save({"state_dict": state, "best_prec1": 90.0}, path, _use_new_zipfile_serialization=False)
    return path.read_bytes()


def test_checkpoints_are_fetched_and_become_the_same_weights(tmp_path):
    with serving() as server:
        server.files = {
            network.checkpoint: checkpoint(tmp_path / "file", made()[name]) for name, network in TINY.items()
        }
        origin = DataOrigin(remotes_of(server), lambda root: read(root, {}).info, resnets.install_checkpoints)
        info, fetched = fetch(resnets.NAME, tmp_path, origin, silent)
        assert fetched
        assert fetch(resnets.NAME, tmp_path, origin, silent) == (info, False)
    assert info.provenance == "one-0.th and two-0.th of akamaster/pytorch_resnet_cifar10, converted"
    np.testing.assert_equal(read(tmp_path, {}).weights, made())


class Hostile:
    def __reduce__(self):
        return os.mkdir, ("made",)


@pytest.mark.parametrize("content", [pickle.dumps({"state_dict": Hostile()}), b"", b"\x80\x02nothing", b"x" * 500])
def test_a_checkpoint_with_code_or_of_noise_is_refused(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    samples.put(tmp_path, {"one-0.th": content})
    with pytest.raises(DataError, match=r"one-0\.th: refused as a checkpoint"):
        resnets.read_checkpoint(tmp_path / "one-0.th")
    assert not (tmp_path / "made").exists()
