"""Image readers, the data root, manifests, and refusals."""

from __future__ import annotations

import hashlib
import json

import data_samples as samples
import numpy as np
import pytest
from data_samples import read_cifar, read_mnist

from experiments.data import DataError, MissingData, cifar10, cora, data_root, mnist, sets


def test_a_data_root_that_is_one_folder_too_deep_is_noticed(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in mnist.FILES:
        (folder / name).write_bytes(b"")
    with pytest.raises(MissingData, match=f"one folder too deep; type data_root={tmp_path}$"):
        sets.require_files("mnist", folder)
    sets.require_files("mnist", tmp_path)  # checks presence, reads nothing


def test_data_root_takes_the_configured_folder_then_the_environment_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("NGN_DATA", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(str(tmp_path / "given")) == tmp_path / "given"
    assert data_root(None) == tmp_path / "environment"
    monkeypatch.setenv("NGN_DATA", "")
    assert data_root(None) == tmp_path / "cache" / "ngn"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root(None) == tmp_path / ".cache" / "ngn"
    assert data_root("~/sets") == tmp_path / "sets"
    monkeypatch.chdir(tmp_path)
    assert data_root("here") == tmp_path / "here"


@pytest.mark.parametrize("place", ["mnist", "mnist/raw", "mnist/MNIST/raw", "MNIST/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_reads_plain_and_gzipped_files_in_every_place(tmp_path, place, packed):
    files, arrays = samples.mnist()
    samples.put(tmp_path / place, samples.gzipped(files) if packed else files)
    data = read_mnist(tmp_path, samples.official(files))
    np.testing.assert_array_equal(data.train_images[:, 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(data.test_images[:, 0], arrays["t10k-images-idx3-ubyte"])
    np.testing.assert_array_equal(data.train_labels, arrays["train-labels-idx1-ubyte"])
    np.testing.assert_array_equal(data.test_labels, arrays["t10k-labels-idx1-ubyte"])
    assert data.train_images.shape == (12, 1, 28, 28)
    assert data.train_images.dtype == np.uint8
    assert data.train_labels.dtype == np.int64
    assert data.train_images.flags.writeable  # torch warns of arrays that are not
    assert data.info.provenance == "official files, digests checked"
    parts = sorted((name, samples.sha256(content)) for name, content in files.items())
    assert data.info.sha256 == hashlib.sha256("".join(f"{n}\0{d}\n" for n, d in parts).encode()).hexdigest()


@pytest.mark.parametrize("layout", ["flat", "folder", "python", "beside"])
def test_cifar10_reads_every_official_layout(tmp_path, layout):
    binary, python, images, labels = samples.cifar()
    chosen, place = {
        "flat": (binary, "cifar10"),
        "folder": (binary, "cifar10/cifar-10-batches-bin"),
        "python": (python, "cifar10/cifar-10-batches-py"),
        "beside": (python, "cifar-10-batches-py"),
    }[layout]
    samples.put(tmp_path / place, chosen)
    data = read_cifar(tmp_path, {n: f"md5:{hashlib.md5(c).hexdigest()}" for n, c in chosen.items()})
    np.testing.assert_array_equal(np.concatenate([data.train_images, data.test_images]), images)
    np.testing.assert_array_equal(np.concatenate([data.train_labels, data.test_labels]), labels)
    assert data.train_images.shape == (25, 3, 32, 32)
    assert data.train_images.dtype == np.uint8
    assert data.train_labels.dtype == np.int64


@pytest.mark.parametrize(
    ("reader", "name", "first"),
    [
        (mnist.load_data, "mnist", "train-images-idx3-ubyte"),
        (cifar10.load_data, "cifar10", "data_batch_1.bin"),
        (cora.load_data, "cora", "ind.cora.x"),
    ],
)
def test_missing_data_name_the_file_the_place_and_the_command(tmp_path, monkeypatch, reader, name, first):
    with pytest.raises(MissingData) as caught:
        reader(tmp_path / "a b")
    message = str(caught.value)
    assert f"{first} is not in {tmp_path / 'a b' / name}" in message
    assert f"python scripts/fetch_data.py {name} --data-root '{tmp_path / 'a b'}'" in message
    assert "docs/data.md lists the files" in message
    monkeypatch.setenv("NGN_DATA", str(tmp_path))
    with pytest.raises(MissingData, match=f"`python scripts/fetch_data.py {name}`"):
        reader(tmp_path)


def test_adopting_checks_the_structure_and_writes_a_manifest_that_load_accepts(tmp_path):
    files, _ = samples.mnist()
    samples.put(tmp_path / "mnist", files)
    with pytest.raises(DataError, match=r"has the shape \(12, 28, 28\); \(60000, 28, 28\) was expected"):
        sets.adopt("mnist", tmp_path, "too small")
    assert not (tmp_path / "mnist" / "manifest.json").exists()
    full, _ = samples.mnist((60_000, 10_000))
    samples.put(tmp_path / "mnist", full)
    with pytest.raises(DataError, match="not the expected file"):
        mnist.load_data(tmp_path)
    with pytest.raises(DataError, match="provenance"):
        sets.adopt("mnist", tmp_path, "  ")
    assert sets.adopt("mnist", tmp_path, "noise") == tmp_path / "mnist" / "manifest.json"
    data = mnist.load_data(tmp_path)
    assert (len(data.train_images), len(data.test_images)) == (60_000, 10_000)
    assert data.info.provenance == "noise"
    assert set(json.loads((tmp_path / "mnist" / "manifest.json").read_text())["files"]) == set(full)
