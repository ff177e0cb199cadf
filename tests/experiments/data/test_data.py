"""The image readers, the data root, manifests and the refusal of everything that is not what it should be."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import data_samples as samples
import numpy as np
import pytest

from experiments.data import DataError, ImageData, MissingData, cifar10, cora, data_root, manifest, mnist, sets
from experiments.data.source import Folder
from experiments.paths import ROOT

REAL = Path(os.environ["NGN_DATA"]) if os.environ.get("NGN_DATA") else None


def read_mnist(root: Path, official: dict[str, str]) -> ImageData:
    return mnist.read(Folder(root, "mnist", official), *samples.MNIST_COUNTS)


def read_cifar(root: Path, official: dict[str, str]) -> ImageData:
    return cifar10.read(Folder(root, "cifar10", official), samples.CIFAR_BATCH)


def flip(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def write_manifest(folder: Path, provenance: str = "made for a test") -> None:
    files = {p.relative_to(folder).as_posix(): samples.sha256(p.read_bytes()) for p in folder.rglob("*") if p.is_file()}
    manifest.write(folder / "manifest.json", manifest.Manifest(provenance, files))


def test_a_data_root_that_is_one_folder_too_deep_is_noticed(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in mnist.FILES:
        (folder / name).write_bytes(b"")
    with pytest.raises(MissingData, match=f"one folder too deep; write data_root={tmp_path}$"):
        sets.require("mnist", folder)
    sets.require("mnist", tmp_path)  # looks, and reads nothing


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


@pytest.mark.parametrize("layout", ["flat", "folder", "python", "archive", "python archive", "beside"])
def test_cifar10_reads_every_official_layout(tmp_path, layout):
    binary, python, images, labels = samples.cifar()
    chosen, place = {
        "flat": (binary, "cifar10"),
        "folder": (binary, "cifar10/cifar-10-batches-bin"),
        "python": (python, "cifar10/cifar-10-batches-py"),
        "archive": ({cifar10.BINARY_ARCHIVE: samples.tar_gz("cifar-10-batches-bin", binary)}, "cifar10"),
        "python archive": ({cifar10.PYTHON_ARCHIVE: samples.tar_gz("cifar-10-batches-py", python)}, "cifar10"),
        "beside": (python, "cifar-10-batches-py"),
    }[layout]
    samples.put(tmp_path / place, chosen)
    data = read_cifar(tmp_path, {n: f"md5:{hashlib.md5(c).hexdigest()}" for n, c in chosen.items()})
    np.testing.assert_array_equal(np.concatenate([data.train_images, data.test_images]), images)
    np.testing.assert_array_equal(np.concatenate([data.train_labels, data.test_labels]), labels)
    assert data.train_images.shape == (25, 3, 32, 32)
    assert data.train_images.dtype == np.uint8
    assert data.train_labels.dtype == np.int64


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


def test_a_flipped_byte_in_a_gzip_file_or_an_archive_is_named(tmp_path):
    files, _ = samples.mnist()
    samples.put(tmp_path / "mnist", samples.gzipped(files))
    flip(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", 200)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: (damaged|not the expected)"):
        read_mnist(tmp_path, samples.official(files))
    binary, *_ = samples.cifar()
    archive = {cifar10.BINARY_ARCHIVE: samples.tar_gz("cifar-10-batches-bin", binary)}
    samples.put(tmp_path / "cifar10", archive)
    flip(tmp_path / "cifar10" / cifar10.BINARY_ARCHIVE, 500)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: not the expected file"):
        read_cifar(tmp_path, samples.official(archive))


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
        ('{"provenance": "x", "files": {"a": "12"}}', "no sha256"),
        ('{"provenance": " ", "files": {}}', "provenance"),
        (json.dumps({"provenance": "x" * 501, "files": {}}), "501 characters"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path, content, fault):
    files, _ = samples.mnist()
    samples.put(tmp_path / "mnist", files | {"manifest.json": content.encode()})
    with pytest.raises(DataError, match=rf"manifest\.json: .*{fault}"):
        read_mnist(tmp_path, samples.official(files))


@pytest.mark.parametrize(
    ("reader", "name", "first"),
    [
        (mnist.load, "mnist", "train-images-idx3-ubyte"),
        (cifar10.load, "cifar10", "data_batch_1.bin"),
        (cora.load, "cora", "ind.cora.x"),
    ],
)
def test_missing_data_name_the_file_the_place_and_the_command(tmp_path, monkeypatch, reader, name, first):
    with pytest.raises(MissingData) as caught:
        reader(tmp_path / "a b")
    message = str(caught.value)
    assert f"{first} is not in {tmp_path / 'a b' / name}" in message
    assert f"python scripts/fetch_data.py {name} --data-root '{tmp_path / 'a b'}'" in message
    assert "make data" in message
    monkeypatch.setenv("NGN_DATA", str(tmp_path))
    with pytest.raises(MissingData, match=f"`python scripts/fetch_data.py {name}`"):
        reader(tmp_path)


def test_the_missing_file_of_an_incomplete_layout_is_named(tmp_path):
    binary, *_ = samples.cifar()
    samples.put(tmp_path / "cifar10" / "cifar-10-batches-bin", binary)
    (tmp_path / "cifar10" / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(MissingData, match=r"data_batch_4\.bin is not in .*cifar-10-batches-bin"):
        read_cifar(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("train-images-idx3-ubyte", b"", "not an idx file"),
        ("train-images-idx3-ubyte", samples.idx(np.zeros((11, 28, 28))), r"\(11, 28, 28\)"),
        ("train-images-idx3-ubyte", samples.idx(np.zeros((12, 28, 28)))[:-1], "do not fit"),
        ("train-labels-idx1-ubyte", samples.idx(np.zeros((12, 1))), "not an idx file"),
        ("t10k-labels-idx1-ubyte", samples.idx(np.full(8, 10)), "a label is 10"),
    ],
)
def test_mnist_structure_is_checked_even_where_a_manifest_vouches(tmp_path, name, content, fault):
    files, _ = samples.mnist()
    samples.put(tmp_path / "mnist", files | {name: content})
    write_manifest(tmp_path / "mnist")
    with pytest.raises(DataError, match=f"{name}: .*{fault}"):
        read_mnist(tmp_path, {})


def test_cifar10_structure_is_checked(tmp_path):
    binary, python, *_ = samples.cifar()
    for name, content, fault in (
        ("data_batch_2.bin", binary["data_batch_2.bin"][:-1], "records of 3073 bytes"),
        ("data_batch_3.bin", b"\x0a" + binary["data_batch_3.bin"][1:], "outside 0 to 9"),
    ):
        root = tmp_path / name
        samples.put(root / "cifar10", binary | {name: content})
        write_manifest(root / "cifar10")
        with pytest.raises(DataError, match=f"{name}: .*{fault}"):
            read_cifar(root, {})
    for batch, fault in (
        ([1], "no uint8 data"),
        ({"data": np.zeros((5, 3072), dtype=np.uint8)}, "no list of 5 labels"),
    ):
        root = tmp_path / fault
        samples.put(root / "cifar10" / "cifar-10-batches-py", python | {"data_batch_5": pickle.dumps(batch, 2)})
        write_manifest(root / "cifar10")
        with pytest.raises(DataError, match=f"data_batch_5: holds {fault}"):
            read_cifar(root, {})
    samples.put(tmp_path / "cifar10", {cifar10.BINARY_ARCHIVE: samples.tar_gz("elsewhere", binary)})
    write_manifest(tmp_path / "cifar10")
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: damaged archive"):
        read_cifar(tmp_path, {})


def test_an_unreadable_file_is_named(tmp_path, monkeypatch):
    files, _ = samples.mnist()
    samples.put(tmp_path / "mnist", files)
    real = np.fromfile

    def failing(path, *args, **kwargs):
        if Path(path).name.startswith("t10k-images"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(np, "fromfile", failing)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte: unreadable \(Permission denied\)"):
        read_mnist(tmp_path, samples.official(files))


def test_adopting_checks_the_structure_and_writes_a_manifest_that_load_accepts(tmp_path):
    files, _ = samples.mnist()
    samples.put(tmp_path / "mnist", files)
    with pytest.raises(DataError, match=r"has the shape \(12, 28, 28\); \(60000, 28, 28\) was expected"):
        sets.adopt("mnist", tmp_path, "too small")
    assert not (tmp_path / "mnist" / "manifest.json").exists()
    full, _ = samples.mnist((60_000, 10_000))
    samples.put(tmp_path / "mnist", full)
    with pytest.raises(DataError, match="not the expected file"):
        mnist.load(tmp_path)
    with pytest.raises(DataError, match="provenance"):
        sets.adopt("mnist", tmp_path, "  ")
    assert sets.adopt("mnist", tmp_path, "noise") == tmp_path / "mnist" / "manifest.json"
    data = mnist.load(tmp_path)
    assert (len(data.train_images), len(data.test_images)) == (60_000, 10_000)
    assert data.info.provenance == "noise"
    assert set(json.loads((tmp_path / "mnist" / "manifest.json").read_text())["files"]) == set(full)


def test_no_torch_is_imported_by_the_readers():
    code = "import sys, experiments.data.sets, experiments.data.synthetic; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.skipif(REAL is None, reason="needs the real data in $NGN_DATA")
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_real_images_have_the_known_shapes_and_classes(name):
    assert REAL is not None
    try:
        data = {"mnist": mnist, "cifar10": cifar10}[name].load(REAL)
    except MissingData as absent:
        pytest.skip(str(absent))
    shape = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}[name]
    assert data.train_images.shape == ({"mnist": 60_000, "cifar10": 50_000}[name], *shape)
    assert data.test_images.shape == (10_000, *shape)
    if name == "cifar10":
        assert np.bincount(data.train_labels).tolist() == [5000] * 10
        assert np.bincount(data.test_labels).tolist() == [1000] * 10
    else:
        assert np.bincount(data.test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_hostile_files_are_named_and_not_taken_into_memory(tmp_path):
    """A sparse terabyte, a tar header that asks for gigabytes, and a manifest nested deeper than Python goes."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in mnist.FILES:
        (folder / name).write_bytes(b"")
    os.truncate(folder / next(iter(mnist.FILES)), 2**40)
    with pytest.raises(DataError, match="larger than any file of a data set"):
        read_mnist(tmp_path, {})

    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 6 * 2**30
    archive = np.frombuffer(gzip.compress(header.tobuf() + bytes(2**20)), dtype=np.uint8)
    with pytest.raises(DataError, match=r"a\.tar\.gz: damaged archive"):
        next(cifar10.members(archive, Path("a.tar.gz"), ["x"], 10))

    (folder / manifest.FILE).write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"manifest\.json: unreadable"):
        manifest.read(folder / manifest.FILE)
