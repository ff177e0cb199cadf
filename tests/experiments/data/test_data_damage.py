"""Damaged or wrong files are refused by name."""

from __future__ import annotations

import json
import os
import pickle

import data_samples as samples
import numpy as np
import pytest
from data_samples import flip, read_cifar, read_mnist, write_manifest

from experiments.data import DataError, cifar10, cora, manifest, mnist
from experiments.data.source import Folder


def test_a_flipped_byte_is_noticed_in_every_file_and_named(tmp_path):
    files, _ = samples.mnist()
    for name in files:
        root = tmp_path / name
        samples.put(root / "mnist", files)
        flip(root / "mnist" / name, 10)
        with pytest.raises(DataError) as caught:
            read_mnist(root, samples.official(files))
        message = str(caught.value)
        assert message.startswith(f"{root / 'mnist' / name}: not the expected file")
        assert samples.sha256(files[name]) in message
        assert samples.sha256((root / "mnist" / name).read_bytes()) in message


def test_a_flipped_byte_in_a_gzip_file_is_named(tmp_path):
    files, _ = samples.mnist()
    samples.put(tmp_path / "mnist", samples.gzipped(files))
    flip(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", 200)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: (damaged|not the expected)"):
        read_mnist(tmp_path, samples.official(files))


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
        ("[]", "must be an object"),
        ('{"provenance": "x"}', "must be an object"),
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
READERS = {
    "mnist": lambda folder: mnist.read_folder(folder, *samples.MNIST_COUNTS),
    "cifar10": lambda folder: cifar10.read_folder(folder, samples.CIFAR_BATCH),
    "cora": lambda folder: cora.read_folder(folder, samples.CORA_SIZES, samples.CORA_SPLIT),
}


@pytest.mark.parametrize(
    ("files", "name", "content", "fault"),
    [
        (MNIST, "train-images-idx3-ubyte", b"", "not an idx file"),
        (MNIST, "train-images-idx3-ubyte", samples.idx(np.zeros((11, 28, 28))), r"\(11, 28, 28\)"),
        (MNIST, "train-images-idx3-ubyte", samples.idx(np.zeros((12, 28, 28)))[:-1], "do not fit"),
        (MNIST, "train-labels-idx1-ubyte", samples.idx(np.zeros((12, 1))), "not an idx file"),
        (MNIST, "t10k-labels-idx1-ubyte", samples.idx(np.full(8, 10)), "a label is 10"),
        (CIFAR, "data_batch_2.bin", CIFAR["data_batch_2.bin"][:-1], "records of 3073 bytes"),
        (CIFAR, "data_batch_3.bin", b"\x0a" + CIFAR["data_batch_3.bin"][1:], "outside 0 to 9"),
        (PYTHON, "data_batch_5", pickle.dumps([1], 2), "holds no uint8 data"),
        (PYTHON, "data_batch_5", pickle.dumps({"data": np.zeros((5, 3072), np.uint8)}, 2), "holds no list of 5 labels"),
        (CORA, "ind.cora.tx", samples.csr_pickle(np.eye(30, dtype=np.float32)), r"shape \(100, 30\) was expected"),
        (CORA, "ind.cora.graph", pickle.dumps({0: [700]}, 2), "outside the 700 nodes"),
        (CORA, "ind.cora.graph", pickle.dumps([1], 2), "no dictionary of lists"),
        (CORA, "ind.cora.ally", pickle.dumps([1, 2], 2), "not None"),
        (CORA, "ind.cora.test.index", b"\n".join(INDEX[:-1] + INDEX[:1]), "each once"),
        (CORA, "ind.cora.test.index", b"one\n", "one node number per line"),
    ],
)
def test_the_structure_is_checked_even_where_a_manifest_vouches(tmp_path, files, name, content, fault):
    kind = {id(MNIST): "mnist", id(CORA): "cora"}.get(id(files), "cifar10")
    place = tmp_path / kind / ("cifar-10-batches-py" if files is PYTHON else ".")
    samples.put(place, files | {name: content})
    write_manifest(tmp_path / kind)
    with pytest.raises(DataError, match=f"{name}: .*{fault}"):
        READERS[kind](Folder(tmp_path, kind, {}))


def test_hostile_files_are_named_and_not_taken_into_memory(tmp_path):
    """A sparse file of a terabyte, and a manifest that is nested too deep."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in mnist.FILES:
        (folder / name).write_bytes(b"")
    os.truncate(folder / next(iter(mnist.FILES)), 2**40)
    with pytest.raises(DataError, match="larger than any file of a data set"):
        read_mnist(tmp_path, {})

    (folder / manifest.FILE).write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"manifest\.json: unreadable"):
        manifest.read_manifest(folder / manifest.FILE)
