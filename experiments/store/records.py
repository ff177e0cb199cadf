"""Records: one JSON file per run, written once, checked when written and when read.

``results/<task>/<run id>.json`` holds everything measured; ``<run id>.curves.npz`` beside it holds loss, error and t
over training. In ``results/`` few runs keep that file: see ``Study.curves``. No torch is imported.
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
"""Of a record beside its vectors over boundaries, which are as long as a model is deep: what could make it larger is
known before a training, so that none is refused after it."""
BOUNDARY_BYTES = 64
"""More than one boundary takes in one phase: t and r (20 digits each), its count, and whether t is an integer."""
MAX_CURVE_POINTS = 300
MAX_CURVE_BYTES = 2**24
"""Of unpacked curves: some 50 KiB are usual."""
CURVES = ".curves.npz"
"""Ending of a curve file's name, behind the run id."""
NO_CURVES = "the curves of these runs are not kept; run them again with force=true to have curves"
HIDDEN = ".leases"
"""Folder beside the records for what concerns runs that are being trained."""


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


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def parse(content: str | bytes, where: str) -> dict[str, Any]:
    """The record that a file holds.

    Raises:
        RecordError: naming ``where`` and why it is none.
    """
    try:
        record = json.loads(content, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as fault:
        raise RecordError(f"{where}: unreadable ({fault})") from None
    return check(record, where)


def read(path: Path) -> dict[str, Any]:
    """Read and check a record.

    Raises:
        RecordError: if the file is missing, is not JSON, is not a record, or is named after another run.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path}: no such record") from None
    except OSError as fault:
        raise RecordError(f"{path}: unreadable ({fault})") from None
    checked = parse(content, str(path))
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
        return self.path(run_id).with_name(run_id + CURVES)

    def paths(self) -> list[Path]:
        """The records that are there, damaged ones among them, in the order of their names; none is opened."""
        return sorted(self.root.glob("[!.]*/[!.]*.json"))

    def with_curves(self) -> list[str]:
        """The ids of the runs that have a curve file, in the order of their names."""
        return sorted(path.name.removesuffix(CURVES) for path in self.root.glob(f"[!.]*/[!.]*{CURVES}"))

    def get(self, run_id: str) -> dict[str, Any] | None:
        """The record of a run, or None if it is not there.

        Raises:
            RecordError: if it is there and damaged.
        """
        path = self.path(run_id)
        return read(path) if os.path.lexists(path) else None  # a link that leads nowhere takes the name, too

    def write(
        self, record: Mapping[str, Any], curves: Mapping[str, np.ndarray] | None = None, replace: bool = False
    ) -> bool:
        """Check a record and write it once, its curves first; False if another process had already written it.

        Both are written under one lock, so that curves are never those of another writer.

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
        packed = io.BytesIO()
        if curves:
            for name, curve in curves.items():
                if len(curve) > MAX_CURVE_POINTS:
                    raise RecordError(f"{path}: curve {name} has {len(curve)} points, more than {MAX_CURVE_POINTS}")
            arrays: dict[str, Any] = dict(curves)
            np.savez_compressed(packed, **arrays)
        return self.put(run_id, text.encode(), packed.getvalue() if curves else None, replace)

    def put(self, run_id: str, record: bytes, curves: bytes | None, replace: bool = False) -> bool:
        """Write the files of a run as they are, which somebody has checked; see :meth:`write`.

        Without ``curves`` an older curve file of the run goes: it would be of another training.
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
        """The lock under which the records of this folder are written and leases on its runs given back.

        Raises:
            RecordError: if something else has its name.
        """
        lock = self.root / HIDDEN / ".lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        if lock.is_dir():
            raise RecordError(f"{lock}: is a folder, where a lock file belongs; remove it")
        return FileLock(lock)

    def curves(self, run_id: str) -> dict[str, np.ndarray] | None:
        """The curves of a run, or None if it has none, or, with a warning, damaged ones."""
        path = self.curves_path(run_id)
        if not path.exists():
            return None
        try:
            return unpacked(path)
        except RecordError as fault:
            log.warning("%s; run it again with force=true", fault)
            return None


def unpacked(file: Path | io.BytesIO, where: str | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file of curves.

    Raises:
        RecordError: naming ``where`` (the file itself by default), if it is none, or larger than any record's.
    """
    try:
        with zipfile.ZipFile(file) as members:
            if not members.namelist() or sum(member.file_size for member in members.infolist()) > MAX_CURVE_BYTES:
                raise ValueError("no curves, or more than any record has")
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception as fault:  # whatever a garbled archive, header or stream makes its readers raise
        raise RecordError(f"{file if where is None else where}: damaged curves ({fault})") from None
