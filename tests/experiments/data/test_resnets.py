"""The trained networks for CIFAR-10: converted checkpoints, what is refused, and what the network computes."""

import os
import pickle

import data_samples as samples
import numpy as np
import pytest
import safetensors.numpy
import torch
import torch.nn.functional as F
from data_server import remotes_of, serving, silent
from safetensors.torch import save_file

from experiments.data import DataError, resnets
from experiments.data.fetch import DataOrigin, fetch
from experiments.data.source import Folder
from experiments.models.cifar_resnet import CifarResNet, standardised, with_weights
from experiments.tasks.images.task import with_given_weights

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


BLOCKS, WIDTHS = 2, (2, 4, 8)


def drawn():
    rng = np.random.default_rng(6)
    # Variances have to be positive.
    return {
        name: torch.tensor(rng.random(v.shape) + 0.1 if name.endswith("var") else rng.normal(size=v.shape)).float()
        for name, v in CifarResNet(BLOCKS, WIDTHS, 3).state_dict().items()
        if "num_batches" not in name
    }


def reference(x, given):
    """The same network without modules, in float64."""
    state = {name: value.double() for name, value in given.items()}

    def layer(h, conv, norm, stride=1):
        h = F.conv2d(h, state[f"{conv}.weight"], stride=stride, padding=1)
        weight, bias, mean, variance = (
            state[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (h - mean) / (variance + 1e-5).sqrt() * weight + bias

    h = layer(x.double(), "conv1", "bn1").clamp(min=0)
    for stage, width in enumerate(WIDTHS, start=1):
        for block in range(BLOCKS):
            place = f"layer{stage}.{block}"
            down = stage > 1 and block == 0
            inner = layer(h, f"{place}.conv1", f"{place}.bn1", 2 if down else 1).clamp(min=0)
            if down:
                zeros = torch.zeros(len(h), width // 4, h.shape[2] // 2, h.shape[3] // 2, dtype=h.dtype)
                h = torch.cat([zeros, h[:, :, ::2, ::2], zeros], dim=1)
            h = (layer(inner, f"{place}.conv2", f"{place}.bn2") + h).clamp(min=0)
    return h.mean((2, 3)) @ state["linear.weight"].T + state["linear.bias"]


def test_the_outputs_are_those_of_a_network_written_by_hand():
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected = reference(x, drawn())
    with torch.no_grad():
        found = with_weights(CifarResNet(BLOCKS, WIDTHS, 3), drawn(), "here")(x)
    assert expected.std() > 0
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_weights_of_another_network_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"here: no weights of such a network"):
        with_weights(CifarResNet(3, WIDTHS, 3), drawn(), "here")
    save_file(CifarResNet(1).state_dict(), file := tmp_path / "mine.safetensors")
    whole, info = with_given_weights(CifarResNet(1).eval(), str(file), "a network")
    assert (info.name, whole.training) == ("mine", False)
    with pytest.raises(DataError, match=r"model\.path=.*mine.*: does not hold weights of a network, as safetensors"):
        with_given_weights(CifarResNet(2), str(file), "a network")


def test_pixels_are_standardised_by_channel():
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1)
    black, white = standardised(pixels)[:, :, 0, 0]
    torch.testing.assert_close(black, torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]))
    torch.testing.assert_close(white, torch.tensor([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225]))
