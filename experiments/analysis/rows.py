"""The rows of a frame: records by columns, as compact arrays, and as the columns of pandas. Imports no torch."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.config.identity import ADDED_LATER, flatten

if TYPE_CHECKING:
    import pandas as pd

FORM = ""
"""The column that says which columns a row has, in their order."""
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


@dataclass
class Column:
    """The values of one column, as far as rows have it.

    Attributes:
        data: numbers (doubles); or for a setting, the places of its values in ``values`` (integers). NaN or -1 where a
            row lacks it.
        values: repr → (its place, the value); None for a column of numbers.
    """

    data: array[Any]
    values: dict[str, tuple[int, Any]] | None

    @staticmethod
    def named(key: str) -> Column:
        """Return the empty column of this name."""
        return Column(array("d"), None) if _MEASURED.match(key) else Column(array("i"), {})

    def put(self, row: int, value: Any) -> None:
        """Set the value of a row, after those of the rows before it."""
        self.pad(row)
        if self.values is None:
            self.data.append(value)
        else:
            self.data.append(self.code(value))

    def code(self, value: Any) -> int:
        """Return the place of a value of a setting."""
        assert self.values is not None
        return self.values.setdefault(repr(value), (len(self.values), value))[0]

    def pad(self, rows: int) -> None:
        """Have at least so many rows."""
        self.data.extend([float("nan") if self.values is None else -1] * (rows - len(self.data)))

    def series(self) -> Any:
        """Return the column as pandas has it."""
        import pandas as pd  # imported here: it takes longer than most commands need

        data = np.frombuffer(self.data, self.data.typecode)
        if self.values is not None:
            values = [str(value) if isinstance(value, list) else value for _, value in self.values.values()]
            known = [values[at] for at in np.unique(data) if at >= 0 and values[at] is not None]
            if len(known) < 2 or not all(type(one) in (int, float) and abs(one) < 2**53 for one in known):
                return _category(values, known, data)
            data = np.array([np.nan if value is None else value for value in values] + [np.nan], dtype=float)[data]
        absent = np.isnan(data)
        if absent.all() or (np.floor(data) != data)[~absent].any():
            return data
        numbers = np.where(absent, 0, data).astype(np.int64)
        return pd.arrays.IntegerArray(numbers, absent) if absent.any() else numbers


def _category(values: Sequence[Any], known: Sequence[Any], codes: Any) -> Any:
    import pandas as pd

    if len(set(known)) < len(known):  # such as 1 and True
        return np.array([*values, None], dtype=object)[codes]
    known = sorted(known, key=order)
    places = {value: at for at, value in enumerate(known)}
    moved = np.array([places.get(value, -1) for value in values] + [-1], dtype=np.int32)
    return pd.Categorical.from_codes(moved[codes], pd.Index(known, dtype=object))


def order(value: Any) -> tuple[bool, float, str]:
    """Sort numbers by size, before everything else."""
    number = isinstance(value, (int, float))
    return (not number, float(value) if number else 0.0, str(value))


class Rows:
    """The rows of records by columns, with the paths and facts of their files."""

    def __init__(self) -> None:
        self.files: dict[str, Stat] = {}
        self.columns = {FORM: Column.named(FORM)}

    def add(self, name: str, stat: Stat, row: FlatRecord) -> None:
        """Add the row of one record."""
        keys = [key for key in row if key != "run_id"]  # the file has its name
        for key in keys:
            if key not in self.columns:
                self.columns[key] = Column.named(key)
            self.columns[key].put(len(self.files), row[key])
        self.columns[FORM].put(len(self.files), keys)
        self.files[name] = stat

    def take(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        names = list(self.files)
        for column in self.columns.values():
            column.pad(len(names))
            column.data = array(column.data.typecode, np.frombuffer(column.data, column.data.typecode)[rows].tobytes())
        self.files = {names[at]: self.files[names[at]] for at in rows}

    def frame(self) -> pd.DataFrame:
        """Return the DataFrame, and forget the rows."""
        import pandas as pd

        for column in self.columns.values():
            column.pad(len(self.files))
        form = self.columns.pop(FORM)
        forms = [keys for _, keys in (form.values or {}).values()]
        self._add_defaults(forms, np.frombuffer(form.data, form.data.typecode))
        names: list[str] = []
        for at in dict.fromkeys(form.data):
            place = 0
            for key in forms[at]:  # one that no record before had stands behind what it follows here
                if key not in names:
                    names.insert(place, key)
                place = names.index(key) + 1
        made: dict[str, Any] = {"run_id": [Path(name).stem for name in self.files]}
        return pd.DataFrame(made | {key: self.columns.pop(key).series() for key in names}, copy=False)

    def _add_defaults(self, forms: Sequence[Sequence[str]], form: Any) -> None:
        """Give older records the settings that came later, so that they share a line with newer ones.

        A default is added only where a record with the same kind of block has the key: ``task.replay`` belongs to some
        tasks alone.
        """
        for key, default in ADDED_LATER.items():
            if key in self.columns:
                kind = np.frombuffer(self.columns[_BLOCK_KIND.get(key.split(".", 1)[0], "profile")].data, "i")
                has = np.array([key in keys for keys in forms])[form]
                lacks = ~has & np.isin(kind, np.unique(kind[has]))
                np.frombuffer(self.columns[key].data, "i")[lacks] = self.columns[key].code(default)
