"""Records: one JSON file per run, written once, checked when written and when read.

``results/<task>/<run id>.json`` holds everything measured; ``<run id>.curves.npz`` beside it holds the courses of loss,
error and t. No torch is imported.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastjsonschema
import numpy as np

from ngn.files import FileError, publish

SCHEMA_VERSION = 1
MAX_RECORD_BYTES = 6 * 1024
"""Of a record beside its vectors over boundaries, which are as long as a model is deep: what could make it larger is
known before a training, so that none is refused after it."""
BOUNDARY_BYTES = 64
"""More than one boundary takes in one phase: t and r (20 digits each), its count, and whether t is an integer."""
MAX_CURVE_POINTS = 300


class RecordError(FileError):
    """A record that is missing, damaged, foreign, or would not be legal; the message names the file and the fault."""


@functools.lru_cache(maxsize=1)
def _validator() -> Any:
    schema = json.loads((Path(__file__).parent / "record.schema.json").read_text())
    return fastjsonschema.compile(schema)


def check(record: Any, where: str) -> dict[str, Any]:
    """The record itself, if it is legal.

    Raises:
        RecordError: naming ``where`` and the first fault.
    """
    if not isinstance(record, dict):
        raise RecordError(f"{where}: not a record (a {type(record).__name__}, not an object)")
    version = record.get("schema")
    if version != SCHEMA_VERSION:
        raise RecordError(f"{where}: schema version {version!r}; this code reads version {SCHEMA_VERSION}")
    try:
        _validator()(record)
    except fastjsonschema.JsonSchemaException as fault:
        raise RecordError(f"{where}: {fault}") from None
    return record


def read(path: Path) -> dict[str, Any]:
    """Read and check a record.

    Raises:
        RecordError: if the file is missing, is not JSON, is not a record, or is named after another run.
    """
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        raise RecordError(f"{path}: no such record") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as fault:
        raise RecordError(f"{path}: unreadable ({fault})") from None
    checked = check(record, str(path))
    if checked["run_id"] != path.stem:
        raise RecordError(f"{path}: holds run {checked['run_id']}, not the run that it is named after")
    return checked


class Store:
    """The records below one folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def path(self, run_id: str) -> Path:
        """Where the record of a run is or would be."""
        return self.root / run_id.split("-", 1)[0] / f"{run_id}.json"

    def curves_path(self, run_id: str) -> Path:
        """Where the curves of a run are or would be."""
        return self.path(run_id).with_suffix("").with_name(f"{run_id}.curves.npz")

    def get(self, run_id: str) -> dict[str, Any] | None:
        """The record of a run, or None if it is not there.

        Raises:
            RecordError: if it is there and damaged.
        """
        path = self.path(run_id)
        return read(path) if path.exists() else None

    def write(
        self, record: Mapping[str, Any], curves: Mapping[str, np.ndarray] | None = None, replace: bool = False
    ) -> bool:
        """Check a record and write it once, its curves first; False if another process had already written it.

        Raises:
            RecordError: if the record is not legal or too large (:data:`MAX_RECORD_BYTES`), or a curve too long.
        """
        run_id = str(record.get("run_id"))
        path = self.path(run_id)
        check(dict(record), str(path))
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        if len(text) > MAX_RECORD_BYTES:
            text = json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"
        largest = MAX_RECORD_BYTES + BOUNDARY_BYTES * sum(len(phase["count"]) for phase in record["phases"].values())
        if len(text) > largest:
            raise RecordError(f"{path}: {len(text)} bytes; a record like this one has at most {largest}")
        if path.exists() and not replace:
            return False
        if curves:
            for name, curve in curves.items():
                if len(curve) > MAX_CURVE_POINTS:
                    raise RecordError(f"{path}: curve {name} has {len(curve)} points, more than {MAX_CURVE_POINTS}")
            packed = io.BytesIO()
            arrays: dict[str, Any] = dict(curves)
            np.savez_compressed(packed, **arrays)
            publish(self.curves_path(run_id), packed.getvalue(), replace=True)
        return publish(path, text.encode(), replace=replace)

    def curves(self, run_id: str) -> dict[str, np.ndarray] | None:
        """The curves of a run, or None if it has none."""
        path = self.curves_path(run_id)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
