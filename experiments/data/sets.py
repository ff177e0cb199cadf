"""The data sets by name: how each is read, where it is fetched, and how a substitute is adopted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from experiments.data import cifar10, cora, manifest, mnist
from experiments.data.fetch import Origin, Remote, move
from experiments.data.source import DataError, DataInfo, Folder
from experiments.store.records import publish

_MODULES = {"mnist": mnist, "cifar10": cifar10, "cora": cora}
NAMES = tuple(_MODULES)


def verify(name: str, root: Path) -> DataInfo:
    """Read a data set with every check.

    Raises:
        DataError: if it is missing, damaged or foreign.
    """
    info: DataInfo = _MODULES[name].load(root).info
    return info


class _Complete(Exception):
    """The files of a data set are there."""


class _Glance(Folder):
    """A folder that is left at the first file that would be read."""

    def read(self, path: Path, unpack: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        raise _Complete


def require(name: str, root: Path) -> None:
    """Look whether the files of a data set are there, without reading them.

    Raises:
        DataError: if one is missing, or the manifest beside them is damaged.
    """
    module = _MODULES[name]
    with contextlib.suppress(_Complete):
        module.read(_Glance(root, name, module.OFFICIAL))


def adopt(name: str, root: Path, provenance: str) -> Path:
    """Write the manifest of the files that are there, after a check of their structure; the manifest's path.

    Raises:
        DataError: if files are missing or do not have the sizes, shapes and labels of the data set.
    """
    module = _MODULES[name]
    folder = Folder(root, name, module.OFFICIAL, adopting=True)
    path = folder.path / manifest.FILE
    try:
        line = manifest.checked_provenance(provenance, f"--adopt {name}")
        module.read(folder)
        manifest.write(path, manifest.Manifest(line, folder.files))
    except OSError as fault:
        raise DataError(f"{path}: cannot be written ({fault.strerror or fault})") from None
    return path


def install_mnist(working: Path, folder: Path) -> None:
    """Unpack the gzip files: plain ones load faster."""
    for name in mnist.FILES:
        content = mnist.gunzip(np.fromfile(working / f"{name}.gz", dtype=np.uint8))
        publish(folder / name, content.tobytes(), replace=True)


def install_cifar10(working: Path, folder: Path, largest: int = cifar10.PER_BATCH * cifar10.RECORD) -> None:
    """Unpack the archive, whose digest has been checked, and leave a manifest of its files.

    Raises:
        DataError: if files or a manifest of others are in the way, or the archive lacks a file.
    """
    archive, listing = working / cifar10.BINARY_ARCHIVE, folder / manifest.FILE
    names = [f"{batch}.bin" for batch in (*cifar10.BATCHES, cifar10.TEST)]
    wanted = [f"{cifar10.BINARY_FOLDER}/{name}" for name in names]
    unpacked, target = working / cifar10.BINARY_FOLDER, folder / cifar10.BINARY_FOLDER
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    digests = {}
    packed = np.fromfile(archive, dtype=np.uint8)
    for name, member, content in zip(names, wanted, cifar10.members(packed, archive, wanted, largest), strict=True):
        content.tofile(unpacked / name)
        digests[member] = hashlib.sha256(content.data).hexdigest()
    new = manifest.Manifest(f"official files, unpacked from {archive.name} ({cifar10.OFFICIAL[archive.name]})", digests)
    in_the_way = listing if manifest.read(listing) not in (None, new) else target if target.exists() else None
    if in_the_way is not None:
        raise DataError(f"{in_the_way}: is in the way; remove it or name another --data-root")
    # The manifest first: files that it does not list yet would be refused by a reader that comes in between.
    manifest.write(listing, new)
    os.rename(unpacked, target)


def _remotes(digests: dict[str, str], *places: str) -> tuple[Remote, ...]:
    return tuple(Remote(file, digest, tuple(place + file for place in places)) for file, digest in digests.items())


_MNIST_PACKED = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
ORIGINS: dict[str, Origin] = {
    "mnist": Origin(
        _remotes(
            _MNIST_PACKED,
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        partial(verify, "mnist"),
        install_mnist,
    ),
    "cifar10": Origin(
        _remotes(
            {cifar10.BINARY_ARCHIVE: cifar10.OFFICIAL[cifar10.BINARY_ARCHIVE]},
            "https://www.cs.toronto.edu/~kriz/",
            "https://cave.cs.toronto.edu/kriz/",
        ),
        partial(verify, "cifar10"),
        install_cifar10,
    ),
    "cora": Origin(
        _remotes(
            cora.OFFICIAL,
            "https://github.com/kimiyoung/planetoid/raw/master/data/",
            "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
        ),
        partial(verify, "cora"),
        move,
    ),
}
"""Where the data sets come from. Other mirrors serve as well: what counts is the digest."""
