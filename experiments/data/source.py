"""Where data sets lie, and the check of every byte that is read from there.

A data root has one folder per data set. Each file is hashed whenever it is read: the 180 MB of CIFAR-10 take a fifth
of a second, so no list of files checked earlier is kept that could hide a change.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.data import manifest as manifests
from experiments.data.errors import DataError, MissingData


@dataclass(frozen=True)
class DataInfo:
    """What a record says of the data: ``sha256`` is one digest over all that was read, ``provenance`` one line."""

    name: str
    sha256: str
    provenance: str


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
    """A graph whose nodes are to be classified.

    ``features`` float32 [N, F], rows summing to one; ``edge_index`` int64 [2, E], both directions of every edge,
    without self loops and duplicates, ordered by target, then source; ``labels`` int64 [N]; ``train``,
    ``validation`` and ``test``: int64 node numbers, ascending.
    """

    features: np.ndarray
    edge_index: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    info: DataInfo


def data_root(configured: str | None) -> Path:
    """The absolute data root: the configured one, else $NGN_DATA, else ``ngn`` in the user's cache folder."""
    chosen = configured or os.environ.get("NGN_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG rules say that a relative path there is to be ignored.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "ngn"


def fetch_command(root: Path, name: str) -> str:
    """The shell command that fetches a data set to where it is looked for."""
    place = "" if root == data_root(None) else f" --data-root {shlex.quote(str(root))}"
    return f"python scripts/fetch_data.py {name}{place}"


def combined_digest(parts: Mapping[str, str]) -> str:
    """One sha256 over named digests, whatever their order."""
    return hashlib.sha256("".join(f"{name}\0{parts[name]}\n" for name in sorted(parts)).encode()).hexdigest()


MAX_BYTES = 2**30
"""More than any file of a data set has: what is larger is not read into memory to be told from it by its digest."""
Layout = Sequence[Sequence[Path]]
"""The files that make a data set up, in order; for each the paths that would serve, best first."""


class Folder:
    """The files of one data set below a data root; everything read through it is hashed and checked.

    Args:
        official: digest of each official file, by file name, as ``sha256:...`` or ``md5:...``.
        adopting: accept any digest, because a manifest of what is there is about to be written.
    """

    def __init__(self, root: Path, name: str, official: Mapping[str, str], adopting: bool = False) -> None:
        self.root, self.name, self.official, self.adopting = root, name, official, adopting
        self.path = root / name
        self.files: dict[str, str] = {}
        """sha256 of each file read, by its path relative to the folder."""
        self._contents: dict[str, str] = {}
        self._all_official = True
        self.manifest = None if adopting else manifests.read(self.path / manifests.FILE)

    def choose(self, layouts: Sequence[Layout]) -> list[Path]:
        """The files of the first layout that is complete.

        Raises:
            MissingData: if none is, naming the first missing file of the one that is nearest to it.
        """
        fullest: tuple[int, Path] | None = None
        for layout in layouts:
            found = [next((path for path in serving if path.is_file()), None) for serving in layout]
            there = [path for path in found if path is not None]
            if len(there) == len(found):
                return there
            if fullest is None or len(there) > fullest[0]:
                fullest = (len(there), layout[found.index(None)][0])
        assert fullest is not None, "a data set has at least one layout"
        missing = fullest[1]
        if self.root.name == self.name and (self.root / missing.relative_to(self.root / self.name)).exists():
            raise MissingData(f"{self.name}: {self.root} is one folder too deep; write data_root={self.root.parent}")
        raise MissingData(
            f"{self.name}: {missing.name} is not in {missing.parent}. Fetch it with "
            f"`{fetch_command(self.root, self.name)}`, or put the files there; "
            f"docs/data.md says which, and where they are from. "
            "Another data root is named by data_root=DIR or $NGN_DATA."
        )

    def read(self, path: Path, unpack: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        """The content of a file as a writable uint8 [bytes], after the check of its digest.

        With ``unpack`` the official digest is that of the unpacked content, under the name without its last suffix.

        Raises:
            DataError: if the file cannot be read or unpacked, or has neither the official nor the manifest's digest.
        """
        try:
            if path.stat().st_size > MAX_BYTES:
                raise DataError(f"{path}: larger than any file of a data set. {self._way_out()}")
            raw = np.fromfile(path, dtype=np.uint8)
        except OSError as fault:
            raise DataError(f"{path}: unreadable ({fault.strerror or fault})") from None
        content, name = raw, path.name
        if unpack is not None:
            try:
                content, name = unpack(raw), path.stem
            except (OSError, EOFError, ValueError) as fault:
                raise DataError(f"{path}: damaged, cannot be unpacked ({fault}). {self._way_out()}") from None
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
            md5 = official.startswith("md5:")
            found = (
                f"md5:{hashlib.md5(content.data, usedforsecurity=False).hexdigest()}"
                if md5
                else f"sha256:{self._contents[name]}"
            )
            if found == official:
                return
            expected.append(f"official {official}, found {found}")
        listed = self.manifest.files.get(key) if self.manifest is not None else None
        if listed == self.files[key]:
            self._all_official = False
            return
        if listed is not None:
            expected.append(f"manifest.json sha256:{listed}, found sha256:{self.files[key]}")
        fault = "; ".join(expected) or (
            f"found sha256:{self.files[key]}; no official digest of this file is known and no manifest lists it"
        )
        raise DataError(f"{path}: not the expected file ({fault}). {self._way_out()}")

    def _way_out(self) -> str:
        return (
            f"If it is damaged, remove it and run `{fetch_command(self.root, self.name)}`; if it is a substitute on "
            f"purpose, adopt it: python scripts/fetch_data.py --adopt {self.name} "
            f'--data-root {shlex.quote(str(self.root))} --provenance "where it comes from"'
        )

    def info(self) -> DataInfo:
        """The digest over everything read so far, and the provenance: the manifest's where it was relied upon."""
        if self.adopting:
            provenance = "not checked"
        elif self._all_official:
            provenance = "official files, digests checked"
        else:
            assert self.manifest is not None
            provenance = self.manifest.provenance
        return DataInfo(self.name, combined_digest(self._contents), provenance)
