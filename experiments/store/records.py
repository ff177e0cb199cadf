"""Records: one JSON file per run, written once, checked when written and when read. Imports no torch.

``results/<task>/<run id>.json`` holds all measurements. ``<run id>.curves.npz`` beside it holds loss, error and t over
training. In ``results/``, few runs keep this file: see ``Study.curves``.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastjsonschema
import numpy as np
from filelock import FileLock

from experiments.store.record import SCHEMA_VERSION
from ngn.files import FileError, write_atomically

log = logging.getLogger(__name__)
MAX_RECORD_BYTES = 6 * 1024
"""Size limit of a record without its vectors over boundaries, which are as long as the model is deep. All that could
exceed it is known before training, so no record is refused after it."""
BOUNDARY_BYTES = 64
"""Upper bound for one boundary in one phase: t and r (20 digits each), the count, and whether t is an integer."""
MAX_CURVE_POINTS = 300
MAX_CURVE_BYTES = 2**24
"""Size limit of unpacked curves; 50 KiB are usual."""
CURVES = ".curves.npz"
"""End of a curve file's name, after the run id."""
NO_CURVES = "these runs have no curve files; run them again with force=true to have curves"
HIDDEN = ".leases"
"""Folder beside the records with the lock and the leases of runs in training."""


class RecordError(FileError):
    """A missing, damaged, foreign or invalid record. The message names the file and the fault."""


@functools.lru_cache(maxsize=1)
def _validator() -> Any:
    schema = json.loads((Path(__file__).parent / "record.schema.json").read_text())
    return fastjsonschema.compile(schema)


def check(record: Any, where: str) -> dict[str, Any]:
    """Check a record against the schema and return it.

    Raises:
        RecordError: if it is invalid; the message names ``where`` and the first fault.
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


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def parse(content: str | bytes, where: str) -> dict[str, Any]:
    """Return the record in the content of a file.

    Raises:
        RecordError: if it holds no record; the message names ``where`` and the reason.
    """
    try:
        record = json.loads(content, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as fault:
        raise RecordError(f"{where}: unreadable ({fault})") from None
    return check(record, where)


def read_record(path: Path) -> dict[str, Any]:
    """Read and check a record.

    Raises:
        RecordError: if the file is missing, is not JSON, is no valid record, or has the name of another run.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path}: no such record") from None
    except OSError as fault:
        raise RecordError(f"{path}: unreadable ({fault})") from None
    checked = parse(content, str(path))
    if checked["run_id"] != path.stem:
        raise RecordError(f"{path}: holds run {checked['run_id']}, not the run in the file's name")
    return checked


class Store:
    """The records in one folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def path(self, run_id: str) -> Path:
        """Return the path of a run's record, whether or not it exists."""
        return self.root / run_id.split("-", 1)[0] / f"{run_id}.json"

    def curves_path(self, run_id: str) -> Path:
        """Return the path of a run's curve file, whether or not it exists."""
        return self.path(run_id).with_name(run_id + CURVES)

    def paths(self) -> list[Path]:
        """Return the paths of all records, sorted. No file is opened, so damaged ones are included."""
        return sorted(self.root.glob("[!.]*/[!.]*.json"))

    def names(self) -> set[str]:
        """Return the ids of the runs that have a record."""
        folders = [entry for entry in os.scandir(self.root) if entry.is_dir() and not entry.name.startswith(".")]
        files = (name for folder in folders for name in os.listdir(folder))
        return {name[: -len(".json")] for name in files if name.endswith(".json") and not name.startswith(".")}

    def with_curves(self) -> list[str]:
        """Return the ids of the runs that have a curve file, sorted."""
        return sorted(path.name.removesuffix(CURVES) for path in self.root.glob(f"[!.]*/[!.]*{CURVES}"))

    def get(self, run_id: str) -> dict[str, Any] | None:
        """Return the record of a run, or None if there is none.

        Raises:
            RecordError: if it is damaged.
        """
        path = self.path(run_id)
        return read_record(path) if os.path.lexists(path) else None  # lexists: a dangling link counts as damaged

    def write(
        self, record: Mapping[str, Any], curves: Mapping[str, np.ndarray] | None = None, replace: bool = False
    ) -> bool:
        """Check a record and write it once, after its curves. Return False if it exists already.

        One lock covers both files, so that record and curves come from one process.

        Raises:
            RecordError: if the record is invalid or too large (:data:`MAX_RECORD_BYTES`), or if a curve is too long.
        """
        run_id = str(record.get("run_id"))
        path = self.path(run_id)
        check(dict(record), str(path))
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        if len(text) > MAX_RECORD_BYTES:
            text = json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"
        largest = MAX_RECORD_BYTES + BOUNDARY_BYTES * sum(len(phase["count"]) for phase in record["phases"].values())
        if len(text) > largest:
            raise RecordError(f"{path}: {len(text)} bytes; the limit for this record is {largest}")
        packed = io.BytesIO()
        if curves:
            for name, curve in curves.items():
                if len(curve) > MAX_CURVE_POINTS:
                    raise RecordError(f"{path}: curve {name} has {len(curve)} points, more than {MAX_CURVE_POINTS}")
            arrays: dict[str, Any] = dict(curves)
            np.savez_compressed(packed, **arrays)
        return self.put(run_id, text.encode(), packed.getvalue() if curves else None, replace)

    def put(self, run_id: str, record: bytes, curves: bytes | None, replace: bool = False) -> bool:
        """Write the files of a run, whose content the caller has checked; see :meth:`write`.

        Without ``curves``, this removes an older curve file of the run, which would be of another training.
        """
        path = self.path(run_id)
        with self.locked():
            if os.path.lexists(path) and not replace:
                return False
            if curves is None:
                self.curves_path(run_id).unlink(missing_ok=True)
            else:
                write_atomically(self.curves_path(run_id), curves, replace=True)
            return write_atomically(path, record, replace=replace)

    def locked(self) -> FileLock:
        """Return the lock of this folder, which protects writing records and releasing leases.

        Raises:
            RecordError: if a folder has the name of the lock file.
        """
        lock = self.root / HIDDEN / ".lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        if lock.is_dir():
            raise RecordError(f"{lock}: is a folder, but must be a lock file; remove the folder")
        return FileLock(lock)

    def curves(self, run_id: str) -> dict[str, np.ndarray] | None:
        """Return the curves of a run; None if there are none, or (with a warning) if the file is damaged."""
        path = self.curves_path(run_id)
        if not path.exists():
            return None
        try:
            return load_curves(path)
        except RecordError as fault:
            log.warning("%s; run it again with force=true", fault)
            return None


def load_curves(file: Path | io.BytesIO, where: str | None = None) -> dict[str, np.ndarray]:
    """Load the arrays of a curve file.

    Raises:
        RecordError: if the file is damaged or larger than :data:`MAX_CURVE_BYTES`. The message names ``where``, by
            default the file.
    """
    try:
        with zipfile.ZipFile(file) as members:
            if not members.namelist() or sum(member.file_size for member in members.infolist()) > MAX_CURVE_BYTES:
                raise ValueError("no curves, or too large")
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception as fault:  # a garbled archive, header or stream can raise almost anything
        raise RecordError(f"{file if where is None else where}: damaged curves ({fault})") from None
