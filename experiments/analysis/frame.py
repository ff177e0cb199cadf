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
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.config.identity import ADDED_LATER, flatten
from experiments.core.reading import open_regular
from experiments.store import record, records
from experiments.store.records import RecordError, read_record
from ngn.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
INDEX = ".index.zip"
INDEXED = 500
"""A folder of fewer records has no index: to read them takes a moment."""
MAX_INDEX_BYTES = 2**31
FORM = ""
"""The column of stored rows that says which columns a row has, in their order."""
FlatRecord = dict[str, Any]
Stat = tuple[int, int]
"""Size and time of change of a file, in bytes and nanoseconds."""
_MEASURED = re.compile(r"seconds$|(grown|fixed|from_high|continue_\d[^.]*)\.")
_BLOCK_KIND = {"task": "task.name", "gate": "gate.component", "method": "method.name"}
"""Block → the key that says which settings it has; the other blocks have the same keys in every run."""


def record_row(record: Mapping[str, Any]) -> FlatRecord:
    """Turn a record into one row: run id, status, settings by their dotted keys, and the numbers of each phase.

    The name of a number is its path in the record (``grown.truncated.mse``). With several boundaries, ``t`` and
    ``count`` are sums, and ``r`` is a mean. Other values than numbers are left out. ``data`` and ``weights`` are the
    first digits of the digests of data files and pretrained weights.
    """
    flat: FlatRecord = {"run_id": record["run_id"], "status": record["status"], **flatten(record["config"])}
    flat["tag"] = record["execution"].get("tag")
    if not record["data"]["provenance"].startswith("generated"):
        flat["data"] = record["data"]["sha256"][:10]
    if "base" in record:
        flat["weights"] = record["base"]["sha256"][:10]
    flat["sources"] = record["code"].get("sources", record["code"]["commit"])
    flat["commit"], flat["clean"] = record["code"]["commit"], record["code"]["clean"]
    for phase, content in record["phases"].items():
        for name, value in flatten(content).items():
            if name in ("t", "count", "r") and value:
                value = sum(value) if name != "r" else sum(value) / len(value)
            if isinstance(value, (int, float)):
                flat[f"{phase}.{name}"] = value
    flat["seconds"] = record["time"]["seconds"]
    return flat


def order(value: Any) -> tuple[bool, float, str]:
    """Sort numbers by size, before everything else."""
    number = isinstance(value, (int, float))
    return (not number, float(value) if number else 0.0, str(value))


def record_rows(names: Iterable[str]) -> Iterator[tuple[str, FlatRecord]]:
    """Yield (path, its row) of records by their paths. A damaged one gives a warning and no row."""
    for name in names:
        try:
            yield name, record_row(read_record(Path(name)))
        except RecordError as damaged:
            log.warning("%s; left out", damaged)


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
        return _shown(_by_index(places[0] / INDEX, files))
    return _shown(_stored(record_rows(files)))


def frame_of(found: Iterable[FlatRecord]) -> pd.DataFrame:
    """Return the frame of rows of :func:`record_row`."""
    return _shown(_stored((row["run_id"], row) for row in found))


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


def _stored(found: Iterable[tuple[str, FlatRecord]]) -> pd.DataFrame:
    """Return rows by the names of their files: numbers as doubles, settings as categories of their JSON.

    NaN is where a row lacks a column. A setting that is None is "null".
    """
    import pandas as pd  # imported here: it takes longer than most commands need

    def text(value: Any) -> Any:
        return value if value != value else sys.intern(json.dumps(value))  # NaN is what a row lacks

    parts, rest = [pd.DataFrame({FORM: []}, dtype=object)], iter(found)
    while some := dict(islice(rest, 2000)):
        rows = [{FORM: [key for key in row if key != "run_id"]} | row for row in some.values()]
        part = pd.DataFrame(rows, index=[*some], dtype=object).drop(columns="run_id")  # the file has its name
        parts.append(_packed([part.apply(lambda own: own if _MEASURED.match(own.name) else own.map(text))]))
    return _packed(parts)


def _packed(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all parts, column by column, as all columns of many records as objects are large."""
    import pandas as pd

    columns = {}
    for key in dict.fromkeys(chain(*parts)):
        loose, packed = ("float", "float") if _MEASURED.match(key) else ("object", "category")
        each = [part.get(key, pd.Series(np.nan, part.index)).astype(loose) for part in parts]
        columns[key] = pd.concat(each, ignore_index=True).astype(packed)
    return pd.DataFrame(columns, copy=False).set_axis([*chain(*(part.index for part in parts))])


def _by_index(path: Path, files: Mapping[str, Stat]) -> pd.DataFrame:
    """Return the stored rows of a folder's records, and renew its index if any changed."""
    known, rows = _read_index(path)
    same = {name: stat for name, stat in known.items() if files.get(name) == stat}
    new = _stored(record_rows(name for name in files if name not in same))
    if len(new) or len(same) < len(known):
        rows = _packed([rows.loc[[*same]], new]).sort_index()
        with contextlib.suppress(OSError):  # such as a folder that cannot be written
            _write_index(path, rows, files)
    return rows


@functools.cache
def _version() -> str:
    """Return a digest of the code that turns records into rows. An index of other code is made anew."""
    parts = [__file__, *(module.__file__ for module in (record, records))]
    return hashlib.sha256(b"".join(Path(str(part)).read_bytes() for part in parts)).hexdigest()


def _write_index(path: Path, rows: pd.DataFrame, files: Mapping[str, Stat]) -> None:
    """Write rows as arrays in a zip archive; the texts are JSON."""
    named = [(os.path.relpath(name, path.parent), files[name]) for name in rows.index]
    columns = {key: None if _MEASURED.match(key) else [*rows[key].cat.categories] for key in rows}
    texts = json.dumps({"version": _version(), "files": named, "columns": columns})

    def write(to: Path) -> None:
        with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
            packed.writestr("texts", texts)
            for at, (key, values) in enumerate(columns.items()):
                data = rows[key] if values is None else rows[key].cat.codes.astype("i4")
                packed.writestr(str(at), data.to_numpy().tobytes())

    write_atomically(path, write, replace=True)


def _read_index(path: Path) -> tuple[dict[str, Stat], pd.DataFrame]:
    """Return the files and the rows of an index; none if it is missing, damaged, or of other code."""
    import pandas as pd

    try:
        with os.fdopen(open_regular(path, MAX_INDEX_BYTES), "rb") as file, zipfile.ZipFile(file) as packed:
            if sum(member.file_size for member in packed.infolist()) > MAX_INDEX_BYTES:
                raise ValueError("too large")
            texts, columns = json.loads(packed.read("texts")), {}
            if texts["version"] != _version():
                raise ValueError("made by other code")
            for at, (key, values) in enumerate(texts["columns"].items()):
                data = np.frombuffer(packed.read(str(at)), "f8" if values is None else "i4")
                columns[key] = data if values is None else pd.Categorical.from_codes(data, values)
            files = {os.path.join(path.parent, name): (int(size), int(at)) for name, (size, at) in texts["files"]}
            return files, pd.DataFrame(columns, index=[*files], copy=False)
    except Exception:  # a garbled archive can raise almost anything
        return {}, _stored(())


def _shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the frame of stored rows."""
    import pandas as pd

    _add_defaults(rows)
    ids, columns = [Path(name).stem for name in rows.index], dict(rows.items())
    del rows  # of many records this counts
    names: list[str] = []
    for form in columns[FORM].unique():
        place = 0
        for key in json.loads(form):  # one that no record before had stands behind what it follows here
            if key not in names:
                names.insert(place, key)
            place = names.index(key) + 1
    return pd.DataFrame({"run_id": ids} | {key: _column(columns.pop(key)) for key in names}, copy=False)


def _add_defaults(rows: pd.DataFrame) -> None:
    """Give older records the settings that came later, so that they share a line with newer ones.

    A default is added only where a record with the same kind of block has the key: ``task.replay`` belongs to some
    tasks alone.
    """
    for key, default in ADDED_LATER.items():
        if key in rows:
            kind, has = rows[_BLOCK_KIND.get(key.split(".", 1)[0], "profile")], rows[key].notna()
            lacks = ~has & kind.isin(kind[has].unique())
            rows[key] = rows[key].astype(object).mask(lacks, json.dumps(default)).astype("category")


def _column(stored: pd.Series[Any]) -> Any:
    """Return a column of stored rows as the frame has it."""
    import pandas as pd

    if stored.dtype == "category":
        codes = stored.cat.codes.to_numpy()
        values = [str(value) if isinstance(value, list) else value for value in map(json.loads, stored.cat.categories)]
        known = [values[at] for at in np.unique(codes) if at >= 0 and values[at] is not None]
        if len(known) < 2 or not all(type(one) in (int, float) and abs(one) < 2**53 for one in known):
            if len(set(known)) < len(known):  # such as 1 and True
                return np.array([*values, None], dtype=object)[codes]
            known = sorted(known, key=order)
            places = {value: at for at, value in enumerate(known)}
            moved = np.array([places.get(value, -1) for value in values] + [-1], dtype=np.int32)
            return pd.Categorical.from_codes(moved[codes], pd.Index(known, dtype=object))
        data = np.array([np.nan if value is None else value for value in values] + [np.nan], dtype=float)[codes]
    else:
        data = stored.to_numpy()
    absent = np.isnan(data)
    if absent.all() or (np.floor(data) != data)[~absent].any():
        return data
    numbers = np.where(absent, 0, data).astype(np.int64)
    return pd.arrays.IntegerArray(numbers, absent) if absent.any() else numbers
