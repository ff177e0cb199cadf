"""Know which figures are up to date: a manifest next to the figures lists what each was drawn from.

The manifest is not committed. It depends on every line of the drawing code and would change in most commits. The
figures themselves have the same bytes when redrawn from the same records.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from experiments.paths import ROOT
from experiments.plugins import plugin_folders
from experiments.store.records import MAX_FILE_BYTES, Store
from ngn.files import read_regular, write_atomically

NAME = ".manifest.json"
_SOURCES = ("experiments/**/*.py", "conf/**/*.yaml", "ngn/*.py", "paper/published.json")
"""Sources that decide which runs a figure shows, how they are read and how they are drawn; nothing that trains."""


@cache
def drawing_code() -> str:
    """Return the SHA-256 over the sources that a figure can depend on and the version of matplotlib."""
    digest = hashlib.sha256(importlib.metadata.version("matplotlib").encode())
    own = [path for folder in plugin_folders() for path in folder.rglob("*") if path.suffix in (".py", ".yaml")]
    for path in [*sorted(path for pattern in _SOURCES for path in ROOT.glob(pattern)), *sorted(own)]:
        digest.update(os.path.relpath(path, ROOT).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file; files that are missing or cannot be read are all alike."""
    try:
        return hashlib.sha256(read_regular(path, MAX_FILE_BYTES)).digest()
    except OSError:
        return b"absent"


class Manifest:
    """The manifest of the figures in ``folder``: what they were drawn from.

    Args:
        options: other inputs of the pictures, such as stand-ins.
    """

    def __init__(self, folder: Path, store: Store, options: Mapping[str, Any]) -> None:
        self._path = folder / NAME
        self._store = store
        self._options = json.dumps(options, sort_keys=True)
        self._contents: dict[Path, bytes] = {}
        try:
            self._noted: dict[str, Any] = dict(json.loads(read_regular(self._path, MAX_FILE_BYTES)))
        except (OSError, ValueError, TypeError):
            self._noted = {}  # missing or damaged: redraw everything

    def _record(self, path: Path) -> bytes:
        """Return the digest of a run's file at the first call."""
        if path not in self._contents:
            self._contents[path] = _file_digest(path)
        return self._contents[path]

    def _digest(self, runs: Iterable[str], file: str) -> str:
        """Return the SHA-256 over all inputs of a figure and over its file."""
        digest = hashlib.sha256(f"{drawing_code()}\0{self._options}\0".encode())
        for run in runs:
            digest.update(run.encode() + b"\0")
            digest.update(self._record(self._store.path(run)) + self._record(self._store.curves_path(run)))
        digest.update(_file_digest(self._path.with_name(file)))
        return digest.hexdigest()

    def unchanged(self, name: str) -> str | None:
        """Return what the figure shows according to the manifest, if it is up to date; else None."""
        try:
            noted = self._noted[name]
            return noted["state"] if noted["digest"] == self._digest(noted["runs"], noted["file"]) else None
        except (KeyError, TypeError):
            return None

    def note(self, name: str, runs: Sequence[str], file: Path, state: str) -> None:
        """Record at once what the figure was drawn from, so that an interrupted build loses nothing."""
        self._noted[name] = {"state": state, "runs": runs, "file": file.name, "digest": self._digest(runs, file.name)}
        write_atomically(self._path, json.dumps(self._noted).encode(), replace=True)
