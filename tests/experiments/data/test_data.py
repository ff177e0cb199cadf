"""Image readers, the data root, manifests; damaged or wrong files are refused by name."""

import hashlib
import json
import os
import pickle

import data_samples as samples
import numpy as np
import pytest
from data_samples import flip, read_cifar, read_cora, read_mnist, write_manifest

from experiments.data import DataError, MissingData, cifar10, cora, data_root, mnist, sets


def test_a_data_root_that_is_one_folder_too_deep_is_noticed(tmp_path):
    samples.put(folder := tmp_path / "mnist", dict.fromkeys(mnist.FILES, b""))
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


def test_missing_data_name_the_file_the_place_and_the_command(tmp_path, monkeypatch):
    with pytest.raises(MissingData) as caught:
        cifar10.load_data(tmp_path / "a b")
    message = str(caught.value)
    assert f"data_batch_1.bin is not in {tmp_path / 'a b' / 'cifar10'}" in message
    assert f"python scripts/fetch_data.py cifar10 --data-root '{tmp_path / 'a b'}'" in message
    assert "docs/data.md lists the files" in message
    monkeypatch.setenv("NGN_DATA", str(tmp_path))
    with pytest.raises(MissingData, match=r"`python scripts/fetch_data\.py cora`"):
        cora.load_data(tmp_path)


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


def test_a_flipped_byte_is_noticed_in_every_file_and_named(tmp_path):
    plain, _ = samples.mnist()
    for files in (plain, samples.gzipped(plain)):
        for name in files:
            root = tmp_path / name
            samples.put(root / "mnist", files)
            flip(root / "mnist" / name, len(files[name]) // 2)
            with pytest.raises(DataError) as caught:
                read_mnist(root, samples.official(plain))
            message = str(caught.value)
            assert message.startswith(f"{root / 'mnist' / name}: ")
            if files is plain:
                assert "not the expected file" in message
                assert samples.sha256(files[name]) in message
                assert samples.sha256((root / "mnist" / name).read_bytes()) in message


def test_the_manifest_of_a_root_vouches_for_a_substitute_and_is_named(tmp_path):
    binary, *_ = samples.cifar()
    samples.put(tmp_path / "cifar10", binary)
    with pytest.raises(DataError, match=r"data_batch_1\.bin.*no official digest.*--adopt cifar10"):
        read_cifar(tmp_path, cifar10.OFFICIAL)
    write_manifest(tmp_path / "cifar10", "a substitute,\n  re-encoded")
    assert read_cifar(tmp_path, cifar10.OFFICIAL).info.provenance == "a substitute, re-encoded"
    flip(tmp_path / "cifar10" / "test_batch.bin")
    with pytest.raises(DataError, match=r"test_batch\.bin: not the expected file \(manifest\.json sha256:"):
        read_cifar(tmp_path, cifar10.OFFICIAL)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("{", "unreadable"),
        ('{"provenance": "x", "files": {"a": "12"}}', "not a sha256"),
        ('{"provenance": " ", "files": {}}', "provenance"),
        (json.dumps({"provenance": "x" * 501, "files": {}}), "501 characters"),
        (json.dumps({"provenance": "mine\x1b[2J", "files": {}}), r"control character U\+001B"),
        ('{"provenance": "x", "files": {}, "files": {}}', "'files' stands there twice"),
        (None, "no regular file"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path, content, fault):
    files, _ = samples.mnist()
    samples.put(tmp_path / "mnist", files | {"manifest.json": (content or "").encode()})
    if content is None:
        (tmp_path / "mnist" / "manifest.json").unlink()
        os.mkfifo(tmp_path / "mnist" / "manifest.json")
    with pytest.raises(DataError, match=rf"manifest\.json: .*{fault}"):
        read_mnist(tmp_path, samples.official(files))


MNIST, CIFAR, PYTHON, CORA = samples.mnist()[0], *samples.cifar()[:2], samples.cora()[0]
INDEX = CORA["ind.cora.test.index"].split()
READERS = {"mnist": read_mnist, "cifar10": read_cifar, "cora": read_cora}


@pytest.mark.parametrize(
    ("files", "name", "content", "fault"),
    [
        (MNIST, "train-images-idx3-ubyte", samples.idx(np.zeros((11, 28, 28))), r"\(11, 28, 28\)"),
        (MNIST, "train-labels-idx1-ubyte", samples.idx(np.zeros((12, 1))), "not an idx file"),
        (MNIST, "t10k-labels-idx1-ubyte", samples.idx(np.full(8, 10)), "a label is 10"),
        (CIFAR, "data_batch_2.bin", CIFAR["data_batch_2.bin"][:-1], "records of 3073 bytes"),
        (CIFAR, "data_batch_3.bin", b"\x0a" + CIFAR["data_batch_3.bin"][1:], "outside 0 to 9"),
        (PYTHON, "data_batch_5", pickle.dumps({"data": np.zeros((5, 3072), np.uint8)}, 2), "holds no list of 5 labels"),
        (CORA, "ind.cora.tx", samples.csr_pickle(np.eye(30, dtype=np.float32)), r"shape \(100, 30\) was expected"),
        (CORA, "ind.cora.graph", pickle.dumps({0: [700]}, 2), "outside the 700 nodes"),
        (CORA, "ind.cora.ally", pickle.dumps([1, 2], 2), "not None"),
        (CORA, "ind.cora.test.index", b"\n".join(INDEX[:-1] + INDEX[:1]), "each once"),
    ],
)
def test_the_structure_is_checked_even_where_a_manifest_vouches(tmp_path, files, name, content, fault):
    kind = {id(MNIST): "mnist", id(CORA): "cora"}.get(id(files), "cifar10")
    place = tmp_path / kind / ("cifar-10-batches-py" if files is PYTHON else ".")
    samples.put(place, files | {name: content})
    write_manifest(tmp_path / kind)
    with pytest.raises(DataError, match=f"{name}: .*{fault}"):
        READERS[kind](tmp_path, {})


def test_a_file_of_a_terabyte_is_not_taken_into_memory(tmp_path):
    samples.put(tmp_path / "mnist", dict.fromkeys(mnist.FILES, b""))
    os.truncate(tmp_path / "mnist" / next(iter(mnist.FILES)), 2**40)  # sparse
    with pytest.raises(DataError, match="larger than any file of a data set"):
        read_mnist(tmp_path, {})
