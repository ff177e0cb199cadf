"""One DataFrame of the records in folders: a row a record. Imports no torch.

    from experiments.analysis.frame import frame

    frame(Path("runs")).groupby("schedule.lambda0")["grown.t"].median()

A large folder gets an index, the file ``.index.zip``: the rows of its records, with the size and the time of change of
each file. Only records that changed since are read again. The records stay the source: without an index, with a damaged
one, and in a folder that cannot be written, the frame is the same. Nothing in an index runs code when it is read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.analysis import rows as as_rows
from experiments.analysis.rows import FORM, ColumnData, FlatRecord, RecordRows, Stat, record_row
from experiments.core.reading import open_regular
from experiments.store import record, records, result
from experiments.store.records import RecordError, read_record
from ngn.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
INDEX = ".index.zip"
INDEXED = 500
"""A folder of fewer records has no index: to read them takes a moment."""
MAX_INDEX_BYTES = 2**31


def record_rows(names: Iterable[str]) -> Iterator[tuple[str, FlatRecord]]:
    """Yield (path, its row) of records by their paths. A damaged one gives a warning and no row."""
    for name in names:
        try:
            yield name, record_row(read_record(Path(name)))
        except RecordError as damaged:
            log.warning("%s; left out", damaged)


def _read(rows: RecordRows, files: Mapping[str, Stat]) -> None:
    for name, row in record_rows(files):
        rows.add(name, files[name], row)


def frame(places: Path | Iterable[Path]) -> pd.DataFrame:
    """Return a row for each record, and for each record below a folder, in the order of their names.

    The columns are those of :func:`record_row`, in the order of the records. Numbers that a record lacks
    are NaN (NA for integers). Settings that are no numbers, or the same in all records, are categories; lists are
    texts. Older records get the settings that came later. A warning names each damaged record, which is left out.
    Hidden folders are skipped.
    """
    places = [places] if isinstance(places, Path) else list(places)
    files: dict[str, Stat] = {}
    for place in places:
        files |= {str(place): (0, 0)} if place.suffix == ".json" else dict(sorted(_files(str(place))))
    if len(places) == 1 and len(files) >= INDEXED:
        rows = _by_index(places[0] / INDEX, files)
        del files  # of many records this counts
        return rows.frame()
    rows = RecordRows()
    _read(rows, files)
    return rows.frame()


def frame_of(found: Iterable[FlatRecord]) -> pd.DataFrame:
    """Return the frame of rows of :func:`record_row`."""
    rows = RecordRows()
    for row in found:
        rows.add(row["run_id"], (0, 0), row)
    return rows.frame()


def _files(folder: str) -> Iterator[tuple[str, Stat]]:
    """Yield (path, (size, time of change)) of every record below a folder, as a name has it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith(".json") and "-s" in entry.name:
                facts = entry.stat(follow_symlinks=False)
                yield entry.path, (facts.st_size, facts.st_mtime_ns)


def _by_index(path: Path, files: Mapping[str, Stat]) -> RecordRows:
    """Return the rows of the records of a folder, and renew its index if any changed."""
    rows = _read_index(path)
    same = [at for at, (name, stat) in enumerate(rows.files.items()) if files.get(name) == stat]
    if changed := len(same) < len(rows.files):
        rows.take(same)
    _read(rows, {name: stat for name, stat in files.items() if name not in rows.files})
    if changed or len(same) < len(rows.files):
        names = list(rows.files)
        rows.take(sorted(range(len(names)), key=names.__getitem__))
        with contextlib.suppress(OSError):  # such as a folder that cannot be written
            _write_index(path, rows)
    return rows


@functools.cache
def _version() -> str:
    """Return a digest of the code that turns records into rows. An index of other code is made anew."""
    parts = [module.__file__ for module in (as_rows, record, records, result)]
    return hashlib.sha256(b"".join(Path(str(part)).read_bytes() for part in parts)).hexdigest()


def _write_index(path: Path, rows: RecordRows) -> None:
    """Write rows as arrays in a zip archive; the texts are JSON."""
    files = [(os.path.relpath(name, path.parent), stat) for name, stat in rows.files.items()]
    columns = [(key, [value for _, value in (column.values or {}).values()]) for key, column in rows.columns.items()]
    texts = json.dumps({"version": _version(), "files": files, "columns": columns})

    def write(to: Path) -> None:
        with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            packed.writestr("texts", texts)
            for at, column in enumerate(rows.columns.values()):
                column.pad(len(files))
                packed.writestr(str(at), memoryview(column.data).cast("B"))

    write_atomically(path, write, replace=True)


def _read_index(path: Path) -> RecordRows:
    """Return the rows of an index; none if it is missing, damaged, or of other code."""
    try:
        with os.fdopen(open_regular(path, MAX_INDEX_BYTES), "rb") as file, zipfile.ZipFile(file) as packed:
            return _unpacked(packed, path.parent)
    except Exception:  # a garbled archive can raise almost anything
        return RecordRows()


def _unpacked(packed: zipfile.ZipFile, folder: Path) -> RecordRows:
    """Return the rows in an index.

    Raises:
        ValueError: if it is of other code, too large, or its parts do not fit each other.
    """
    if sum(member.file_size for member in packed.infolist()) > MAX_INDEX_BYTES:
        raise ValueError("too large")
    rows, texts = RecordRows(), json.loads(packed.read("texts"))
    if texts["version"] != _version():
        raise ValueError("made by other code")
    rows.files = {os.path.join(folder, name): (int(size), int(changed)) for name, (size, changed) in texts["files"]}
    for at, (key, values) in enumerate(texts["columns"]):
        column = rows.columns[key] = ColumnData.named(key)
        column.data.frombytes(packed.read(str(at)))
        fits = len(column.data) == len(rows.files)
        if column.values is not None and fits and column.data:
            places = 1 + max((column.code(value) for value in values), default=-1)
            fits = min(column.data) >= (0 if key == FORM else -1) and max(column.data) < places
        if not fits:
            raise ValueError("its parts do not fit each other")
    if not {key for _, form in (rows.columns[FORM].values or {}).values() for key in form} <= rows.columns.keys():
        raise ValueError("a column is missing")
    return rows
