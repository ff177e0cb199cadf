"""Which figures are up to date: a note, beside the figures, of what each was drawn from.

The note is not committed. It depends on every line of the drawing code, so it would change in most commits, and the
figures themselves are the same bytes when they are drawn again from the same records.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from experiments.paths import ROOT
from experiments.store.records import Store, publish

NAME = ".manifest.json"
_SOURCES = ("experiments/**/*.py", "conf/**/*.yaml", "ngn/*.py", "ngn/*.json", "paper/published.json")
"""What says which runs belong to a figure, how they are read, and how they are drawn; nothing that trains."""


@cache
def drawing_code() -> str:
    """SHA-256 over the sources that a figure can depend on, and the version of matplotlib."""
    digest = hashlib.sha256(importlib.metadata.version("matplotlib").encode())
    for path in sorted(path for pattern in _SOURCES for path in ROOT.glob(pattern)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Manifest:
    """What the figures in ``folder`` were drawn from.

    Args:
        options: what else the pictures depend on, such as stand-ins.
    """

    def __init__(self, folder: Path, store: Store, options: Mapping[str, Any]) -> None:
        self._path = folder / NAME
        self._store = store
        self._options = json.loads(json.dumps(options))
        self._contents: dict[str, bytes] = {}
        try:
            noted = json.loads(self._path.read_text())
        except (OSError, ValueError):
            noted = None  # absent or damaged: everything is drawn again
        self._noted: dict[str, Any] = noted if isinstance(noted, dict) else {}

    def _content(self, run_id: str) -> bytes:
        """Digest of a record and its curves as they are now; of nothing where they are not there."""
        if run_id not in self._contents:
            digest = hashlib.sha256()
            for path in (self._store.path(run_id), self._store.curves_path(run_id)):
                try:
                    digest.update(hashlib.sha256(path.read_bytes()).digest())
                except FileNotFoundError:
                    digest.update(b"absent")
            self._contents[run_id] = digest.digest()
        return self._contents[run_id]

    def _inputs(self, runs: Iterable[str]) -> str:
        digest = hashlib.sha256()
        for run_id in runs:
            digest.update(run_id.encode() + b"\0" + self._content(run_id))
        return digest.hexdigest()

    def _entry(self, runs: list[str], files: Iterable[Path], state: str) -> dict[str, Any]:
        return {
            "state": state,
            "code": drawing_code(),
            "options": self._options,
            "records": self._inputs(runs),
            "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
            "runs": runs,
        }

    def unchanged(self, name: str) -> str | None:
        """What the figure was noted to show, if drawing it now would give its files again; else None."""
        noted = self._noted.get(name)
        if not isinstance(noted, dict) or not {"runs", "files", "state"} <= noted.keys():
            return None
        files = [self._path.with_name(file) for file in noted["files"]]
        if not all(file.is_file() for file in files):
            return None
        return noted["state"] if self._entry(noted["runs"], files, noted["state"]) == noted else None

    def note(self, name: str, runs: Sequence[str], files: Iterable[Path], state: str) -> None:
        """Write down what the figure was just drawn from; at once, so that an interrupted build loses nothing."""
        self._noted[name] = self._entry(list(runs), files, state)
        publish(self._path, json.dumps(self._noted, sort_keys=True).encode(), replace=True)
