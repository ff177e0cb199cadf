"""Find the data root and check every file that is read from it.

A data root has one folder per data set. Each file is hashed on every read, so no change goes unnoticed. The 180 MB of
CIFAR-10 take a fifth of a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.core.blocks import control_in
from experiments.core.packages import missing, sentence
from experiments.core.reading import digest, read_regular
from experiments.core.task import DataInfo
from experiments.store.provenance import combined_digest
from experiments.store.records import strict_json
from ngn.files import remove_stale_files, write_atomically


class DataError(Exception):
    """Data are missing, damaged or not the expected ones. The message names the file and the command that helps."""


class MissingData(DataError):
    """The data set is not in the data root."""


def require_packages(what: str, *modules: str) -> None:
    """Check that the modules of an extra, which ``what`` needs, are installed; silence transformers.

    Raises:
        DataError: if one is missing; the message has the command that installs it.
    """
    if (name := missing(*modules)) is not None:
        raise DataError(sentence(what, name))
    if "transformers" in modules:
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()


MANIFEST = "manifest.json"
"""File beside the files of a data set that are not the official ones: their digests and provenance, as
``{"provenance": text, "files": {path below that folder: sha256}}``."""
MAX_MANIFEST_BYTES = 2**26
"""A larger file is no manifest, and is not read."""
MAX_PROVENANCE = 500
"""Characters. Every record of 6 KiB at most holds this text."""


@dataclass(frozen=True)
class DataManifest:
    """Digests (hexadecimal sha256 by path, with ``/`` as separator) and a text on where the files come from."""

    provenance: str
    files: dict[str, str]


def checked_provenance(text: object, where: str) -> str:
    """Return the text on one line.

    Raises:
        DataError: if it is not a string, is empty, has a control character, or more than 500 characters.
    """
    line = " ".join(text.split()) if isinstance(text, str) else ""
    if not line:
        raise DataError(f"{where}: the provenance must say where the files come from")
    if (character := control_in(line)) is not None:
        raise DataError(f"{where}: the provenance has the control character {character}; write it without")
    if len(line) > MAX_PROVENANCE:
        raise DataError(f"{where}: the provenance has {len(line)} characters, more than {MAX_PROVENANCE}")
    return line


def read_manifest(path: Path) -> DataManifest | None:
    """Return the manifest, or None if there is none.

    Raises:
        DataError: if the file is unreadable or not of the form above.
    """
    try:
        content = strict_json(read_regular(path, MAX_MANIFEST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as fault:
        raise DataError(f"{path}: unreadable ({fault})") from None
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict):
        raise DataError(f'{path}: must be an object with "provenance" and "files"')
    for name, listed in files.items():
        if not isinstance(listed, str) or not re.fullmatch(r"[0-9a-f]{64}", listed):
            raise DataError(f"{path}: the entry for {name} is not a sha256 (64 lower-case hexadecimal digits)")
    return DataManifest(checked_provenance(content.get("provenance"), str(path)), files)


def write_manifest(path: Path, manifest: DataManifest) -> None:
    """Write the manifest atomically; it replaces an existing one."""
    line = checked_provenance(manifest.provenance, str(path))
    text = json.dumps({"provenance": line, "files": dict(sorted(manifest.files.items()))}, indent=1)
    remove_stale_files(path.parent)
    write_atomically(path, text.encode() + b"\n", replace=True)


def manifest_of(folder: Path, provenance: str) -> DataManifest:
    """Return the manifest of all files below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return DataManifest(provenance, {path.relative_to(folder).as_posix(): digest(path) for path in files})


def install_with_manifest(provenance: str, new: Path, folder: Path) -> None:
    """Write a manifest of the files of ``new`` (same file system) to ``folder``, and move them there."""
    # The manifest comes first: a reader in between would refuse files that it does not list.
    write_manifest(folder / MANIFEST, manifest_of(new, provenance))
    for path in new.iterdir():
        os.replace(path, folder / path.name)


@dataclass(frozen=True)
class ImageData:
    """Images, uint8 [N, C, H, W], and their labels, int64 [N]."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    info: DataInfo


@dataclass(frozen=True)
class GraphData:
    """A graph for node classification.

    Attributes:
        features: float32 [N, F]; each row sums to one.
        edge_index: int64 [2, E], both directions of every edge, ordered by target, then source. There are no self
            loops and no duplicates.
        labels: int64 [N].
        train, validation, test: int64 node numbers, ascending.
    """

    features: np.ndarray
    edge_index: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    info: DataInfo


def data_root(configured: str | None) -> Path:
    """Return the absolute data root: the configured one, else $NGN_DATA, else ``ngn`` in the user's cache folder."""
    chosen = configured or os.environ.get("NGN_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says: ignore a relative path.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "ngn"


def fetch_command(root: Path, name: str) -> str:
    """Return the shell command that fetches a data set into this data root."""
    place = "" if root == data_root(None) else f" --data-root {shlex.quote(str(root))}"
    return f"python scripts/fetch_data.py {name}{place}"


MAX_BYTES = 2**32
"""No file of a data set is larger. A larger file is refused before it is read into memory."""
FileLayout = Sequence[Sequence[Path]]
"""The files of a data set, in order; for each file its possible paths, best first."""


class Folder:
    """The files of one data set below a data root. Each file is hashed and checked as it is read.

    Args:
        official: digest of each official file, by file name, as ``sha256:...``, ``md5:...`` or ``git:...``, of a blob.
        adopting: accept any digest, because the caller is about to write a manifest of these files.
    """

    def __init__(self, root: Path, name: str, official: Mapping[str, str], adopting: bool = False) -> None:
        self.root, self.name, self.official, self.adopting = root, name, official, adopting
        self.path = root / name
        self.files: dict[str, str] = {}
        """sha256 of each file read, by its path relative to the folder."""
        self._contents: dict[str, str] = {}
        self._all_official = True
        self.manifest = None if adopting else read_manifest(self.path / MANIFEST)

    def choose(self, layouts: Sequence[FileLayout]) -> list[Path]:
        """Return the files of the first complete layout.

        Raises:
            MissingData: if no layout is complete. It names the first file missing from the fullest layout.
        """
        fullest: tuple[int, Path] | None = None
        for layout in layouts:
            files = [next((path for path in serving if path.is_file()), None) for serving in layout]
            there = [path for path in files if path is not None]
            if len(there) == len(files):
                return there
            if fullest is None or len(there) > fullest[0]:
                fullest = (len(there), layout[files.index(None)][0])
        assert fullest is not None, "a data set has at least one layout"
        missing = fullest[1]
        if self.root.name == self.name and (self.root / missing.relative_to(self.root / self.name)).exists():
            raise MissingData(f"{self.name}: {self.root} is one folder too deep; type data_root={self.root.parent}")
        raise MissingData(
            f"{self.name}: {missing.name} is not in {missing.parent}. Fetch it with "
            f"`{fetch_command(self.root, self.name)}`, or put the files there; docs/data.md lists the files and their "
            "sources. To use another data root, type data_root=DIR or set $NGN_DATA."
        )

    def read(self, path: Path, unpack: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        """Read a file as a writable uint8 [bytes] and check its digest.

        With ``unpack``, the official digest is that of the unpacked content, under the name without its last suffix.

        Raises:
            DataError: if the file cannot be read or unpacked, or matches neither the official nor the manifest's
                digest.
        """
        try:
            if path.stat().st_size > MAX_BYTES:
                raise DataError(f"{path}: larger than any file of a data set ({MAX_BYTES} bytes). {self._advice()}")
            raw = np.fromfile(path, dtype=np.uint8)
        except OSError as fault:
            raise DataError(f"{path}: unreadable ({fault.strerror or fault})") from None
        content, name = raw, path.name
        if unpack is not None:
            try:
                content, name = unpack(raw), path.stem
            except (OSError, EOFError, ValueError) as fault:
                raise DataError(f"{path}: damaged, cannot be unpacked ({fault}). {self._advice()}") from None
        key = Path(os.path.relpath(path, self.path)).as_posix()
        self.files[key] = hashlib.sha256(raw.data).hexdigest()
        digest = self.files[key] if content is raw else hashlib.sha256(content.data).hexdigest()
        self._contents[name] = digest
        if not self.adopting:
            self._check(path, key, name, content)
        return content

    def _check(self, path: Path, key: str, name: str, content: np.ndarray) -> None:
        expected: list[str] = []
        official = self.official.get(name)
        if official is not None:
            kind, actual = official.partition(":")[0], f"sha256:{self._contents[name]}"
            if kind != "sha256":
                start = ("sha1", b"blob %d\0" % content.size) if kind == "git" else (kind,)
                hashed = hashlib.new(*start, usedforsecurity=False)
                hashed.update(content.data)
                actual = f"{kind}:{hashed.hexdigest()}"
            if actual == official:
                return
            expected.append(f"official {official}, found {actual}")
        listed = self.manifest.files.get(key) if self.manifest is not None else None
        if listed == self.files[key]:
            self._all_official = False
            return
        if listed is not None:
            expected.append(f"manifest.json sha256:{listed}, found sha256:{self.files[key]}")
        fault = "; ".join(expected) or (
            f"found sha256:{self.files[key]}; this file has no official digest and no manifest lists it"
        )
        raise DataError(f"{path}: not the expected file ({fault}). {self._advice()}")

    def _advice(self) -> str:
        return (
            f"If the file is damaged, remove it and run `{fetch_command(self.root, self.name)}`. If you replaced it on "
            f"purpose, adopt it: python scripts/fetch_data.py --adopt {self.name} "
            f'--data-root {shlex.quote(str(self.root))} --provenance "where it comes from"'
        )

    def info(self) -> DataInfo:
        """Return the digest over all files read so far and their provenance.

        The provenance is the manifest's if any file was accepted by its entry in the manifest.
        """
        if self.adopting:
            provenance = "not checked"
        elif self._all_official:
            provenance = "official files, digests checked"
        else:
            assert self.manifest is not None
            provenance = self.manifest.provenance
        return DataInfo(self.name, combined_digest(self._contents), provenance)
