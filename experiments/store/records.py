"""Records: one JSON file per run, written once, checked when written and when read. Imports no torch.

``results/<task>/<run id>.json`` holds all measurements. ``<run id>.curves.npz`` beside it holds loss, error and t over
training. In ``results/``, few runs keep this file: see ``Study.curves``.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from experiments.core.blocks import refuse_control, visible
from experiments.core.reading import read_regular
from experiments.store.curves import MAX_CURVE_POINTS, unpacked
from experiments.store.record import BLOCKS, ERRORS, PER_CENT, SCHEMA_VERSION, SCORES, Record
from ngn.files import FileError, write_atomically

log = logging.getLogger(__name__)
MAX_RECORD_BYTES = 6 * 1024 + 256
"""Size limit of a record without its vectors over boundaries, which are as long as the model is deep. All that could
exceed it is known before training, so no record is refused after it."""
BOUNDARY_BYTES = 64
"""Upper bound for one boundary in one phase: t and r (20 digits each), the count, and whether t is an integer."""
MAX_FILE_BYTES = 2**24
"""A larger file is neither a record nor one of curves, and is not read."""
CURVES = ".curves.npz"
"""End of a curve file's name, after the run id."""
NO_CURVES = "these runs have no curve files; run them again with force=true to have curves"
HIDDEN = ".leases"
"""Folder beside the records with the lock and the leases of runs in training."""


class RecordError(FileError):
    """A missing, damaged, foreign or invalid record. The message names the file and the fault."""


_RECORD = TypeAdapter(Record)


def digest_of(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record without its key "sha256": of its JSON with sorted keys and no blanks.

    Python writes the shortest digits of a number that are read as the same number, on every platform.
    """
    content = {key: value for key, value in record.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _refuse_impossible(record: Mapping[str, Any]) -> None:
    """Refuse what the classes of single keys cannot: lists of other lengths, impossible scores, missing settings."""
    if lacks := [name for name in BLOCKS if name not in record["config"]]:
        raise ValueError(f"config: must have {', '.join(lacks)}")
    for name, phase in record["phases"].items():
        axes = len(phase["count"])
        for key in ("t", "integer", "r"):
            if key in phase and len(phase[key]) != axes:
                raise ValueError(f"phases.{name}.{key} has {len(phase[key])} entries, but count has {axes}")
        scored = {form: phase.get(form, {}) for form in SCORES}
        scored |= {f"members.{share}": member["scores"] for share, member in phase.get("members", {}).items()}
        for form, scores in scored.items():
            for score, value in scores.items():
                if value < 0 and score in ERRORS | PER_CENT:
                    raise ValueError(f"phases.{name}.{form}: {score} must be at least 0")
                if value > 100 and score in PER_CENT:
                    raise ValueError(f"phases.{name}.{form}: {score} must be at most 100")
        if min(phase.get("prefixes", ()), default=0) < 0 <= min(phase.get("truncated", {}).values(), default=-1):
            raise ValueError(f"phases.{name}.prefixes has a negative score, unlike truncated")


def check(record: Any, where: str, content: bytes | None = None) -> dict[str, Any]:
    """Check a record against :class:`Record` and its digest, if it has one, and return it.

    Args:
        content: its JSON, if it is at hand.

    Raises:
        RecordError: if it is invalid; the message names ``where`` and the first fault.
        ValueError: if there is no JSON of it.
    """
    if content is None:
        content = json.dumps(record, allow_nan=False).encode()
    if not isinstance(record, dict):
        raise RecordError(f"{where}: not a record (a {type(record).__name__}, not an object)")
    version = record.get("schema")
    if version != SCHEMA_VERSION:
        raise RecordError(f"{where}: schema version {version!r}; this code reads version {SCHEMA_VERSION}")
    try:
        # JSON escapes control characters, or they are no ASCII, but for one
        if not content.isascii() or b"\\" in content or b"\x7f" in content:
            refuse_control(record)
        _RECORD.validate_json(content, strict=True)
        _refuse_impossible(record)
        if "sha256" in record and record["sha256"] != digest_of(record):
            raise ValueError("changed or damaged: its SHA-256 is not that of its content")
    except ValidationError as faults:
        raise RecordError(f"{where}: {visible(_first(faults))}") from None
    except (ValueError, RecursionError) as fault:
        raise RecordError(f"{where}: {visible(fault)}") from None
    return record


def _first(faults: ValidationError) -> str:
    """Return the place, the message and the value of the first fault, without long values."""
    fault = faults.errors(include_url=False)[0]
    value = fault["input"]
    given = f" (given: {value!r:.60})" if isinstance(value, (str, int, float)) else ""
    return f"{'.'.join(map(str, fault['loc'])) or 'record'}: {fault['msg'].removeprefix('Value error, ')}{given}"


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a finite number")
    return value


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands there twice")
    return made


def strict_json(content: str | bytes) -> Any:
    """Return the data of a JSON text in UTF-8 in which every key of an object stands once and every number is finite.

    Raises:
        ValueError, RecursionError: if it is not of this form.
    """
    content = content if isinstance(content, str) else content.decode()
    return json.loads(content, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_once)


def parse(content: bytes, where: str) -> dict[str, Any]:
    """Return the record in the content of a file; a RecordError with ``where`` and the reason if it holds none."""
    try:
        record = strict_json(content)
    except (ValueError, RecursionError) as fault:
        raise RecordError(f"{where}: unreadable ({visible(fault)})") from None
    return check(record, where, content)


def _content(path: Path, what: str) -> bytes:
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise RecordError(f"{visible(path)}: no such {what}") from None
    except OSError as fault:
        raise RecordError(f"{visible(path)}: unreadable ({fault.strerror or fault})") from None


def read_record(path: Path) -> dict[str, Any]:
    """Read and check a record.

    Raises:
        RecordError: if the file is missing, is no regular file, is not JSON, is no valid record, or has the name of
            another run.
    """
    checked = parse(_content(path, "record"), visible(path))
    if checked["run_id"] != path.stem:
        raise RecordError(f"{visible(path)}: holds run {checked['run_id']}, not the run in the file's name")
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
        return sorted(self.root.glob("[!.]*/[!.]*.json"), key=lambda path: path.parts)

    def get(self, run_id: str) -> dict[str, Any] | None:
        """Return the record of a run, or None if there is none; a RecordError if it is damaged."""
        path = self.path(run_id)
        return read_record(path) if os.path.lexists(path) else None  # lexists: a dangling link counts as damaged

    def write(
        self, record: Mapping[str, Any], curves: Mapping[str, np.ndarray] | None = None, replace: bool = False
    ) -> bool:
        """Check a record and write it once, after its curves. Return False if it exists already.

        One lock covers both files, so that record and curves come from one process. Without ``curves``, this removes an
        older curve file of the run, which would be of another training.

        Raises:
            RecordError: if the record is invalid or too large (:data:`MAX_RECORD_BYTES`), or if a curve is too long.
        """
        run_id = str(record.get("run_id"))
        path = self.path(run_id)
        arrays: dict[str, Any] = dict(curves or {})
        for name, curve in arrays.items():
            if len(curve) > MAX_CURVE_POINTS:
                raise RecordError(f"{path}: curve {name} has {len(curve)} points, more than {MAX_CURVE_POINTS}")
        packed = io.BytesIO()
        np.savez_compressed(packed, **arrays)
        made = {key: value for key, value in record.items() if key not in ("curves_sha256", "sha256")}
        if curves:
            made["curves_sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
        check(made, visible(path))
        made["sha256"] = digest_of(made)
        text = json.dumps(made, indent=1, allow_nan=False) + "\n"
        if len(text) > MAX_RECORD_BYTES:
            text = json.dumps(made, separators=(",", ":"), allow_nan=False) + "\n"
        largest = MAX_RECORD_BYTES + BOUNDARY_BYTES * sum(len(phase["count"]) for phase in made["phases"].values())
        if len(text) > largest:
            raise RecordError(f"{path}: {len(text)} bytes; the limit for this record is {largest}")
        with self.locked():
            if os.path.lexists(path) and not replace:
                return False
            if curves:
                write_atomically(self.curves_path(run_id), packed.getvalue(), replace=True)
            else:
                self.curves_path(run_id).unlink(missing_ok=True)
            return write_atomically(path, text.encode(), replace=replace)

    def locked(self) -> FileLock:
        """Return the lock for writing in this folder; a RecordError if a folder has the name of the lock file."""
        lock = self.root / HIDDEN / ".lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        if lock.is_dir():
            raise RecordError(f"{lock}: is a folder, but must be a lock file; remove the folder")
        return FileLock(lock)

    def curves(self, run_id: str) -> dict[str, np.ndarray] | None:
        """Return the curves of a run; None if there are none or, with a warning, if they are damaged or not its own."""
        path, again = self.curves_path(run_id), "run it again with force=true"
        if not os.path.lexists(path):
            return None
        try:
            content, record = _content(path, "curves"), read_record(self.path(run_id))
            if "sha256" not in record or record.get("curves_sha256") == hashlib.sha256(content).hexdigest():
                return unpacked(content, record["phases"])
            log.warning("%s: damaged, or curves of another training, by the SHA-256 in the record; %s", path, again)
        except RecordError as fault:
            log.warning("%s; %s", fault, again)
        except Exception as fault:  # a garbled archive, header or stream can raise almost anything
            log.warning("%s: damaged curves (%s); %s", path, visible(fault), again)
        return None
