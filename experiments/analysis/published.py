"""Read the published values, for comparison only: the builder of our own file never imports this module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.analysis.formats import DASH, Format, Value, parse_format, read_printed
from experiments.paths import ROOT
from experiments.tables.model import Row, Table

PATH = ROOT / "paper" / "published.json"

PublishedValues = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""macro → row → column → {"text": as printed, "value": slot → number}."""


class PublishedError(ValueError):
    """A file of published values does not have the form of the tables; the message names the line."""


def load_published(path: Path = PATH) -> PublishedValues:
    """Load the published values."""
    values: PublishedValues = json.loads(path.read_text())["values"]
    return values


def value_of(values: PublishedValues, table: Table, row: Row, column: str) -> tuple[Format, Value] | None:
    """Return the published format and value of a cell; None if the paper prints a dash."""
    entry = values.get(table.name, {}).get(row.key, {}).get(column)
    if entry is None:
        return None
    for source in table.formats(row, column):
        form = parse_format(source)
        if {slot.name for slot in form.slots} == set(entry["value"]):
            return form, entry["value"]
    raise PublishedError(f"{table.name}.{row.key}.{column}: no format has the slots {sorted(entry['value'])}")


def count(values: PublishedValues, macros: Sequence[Table]) -> tuple[int, int]:
    """Count the published values: (cells in table bodies, single numbers).

    A cell counts once, even if it prints several numbers. Labels and dashes do not count.
    """
    inline = {table.name for table in macros if table.inline}
    sizes = {name: sum(len(columns) for columns in rows.values()) for name, rows in values.items()}
    numbers = sum(size for name, size in sizes.items() if name in inline)
    return sum(sizes.values()) - numbers, numbers


def _cells(table: Table, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[Row, str, str, int]]:
    for expected in table.lines:
        at, line = next(lines)
        if isinstance(expected, str):
            if line != expected:
                raise PublishedError(f"line {at}: {line!r} where {expected!r} was expected")
            continue
        texts = line.removesuffix(r" \\").split(" & ")
        labels = tuple(texts[: len(expected.labels)])
        if labels != expected.labels or len(texts) != len(labels) + len(table.columns) or not line.endswith(r" \\"):
            raise PublishedError(f"line {at}: {line!r} is not row {table.name}.{expected.key}")
        for column, text in zip(table.columns, texts[len(labels) :], strict=True):
            yield expected, column.key, text, at


def parse(text: str, macros: Sequence[Table]) -> PublishedValues:
    """Parse the values of a published file.

    Raises:
        PublishedError: at the first line that does not have the form of the tables.
    """
    values: PublishedValues = {table.name: {} for table in macros}
    by_name = {table.name: table for table in macros}
    lines = iter(enumerate(text.splitlines(), start=1))

    def keep(table: Table, row: Row, column: str, printed: str, at: int) -> None:
        if printed == DASH and column in row.dashes:
            return
        found = read_printed(table.formats(row, column), printed)
        if found is None:
            raise PublishedError(f"line {at}: {printed!r} is not in the format of {table.name}.{row.key}.{column}")
        values[table.name].setdefault(row.key, {})[column] = {"text": printed, "value": found[1]}

    seen: list[str] = []
    for at, line in lines:
        if not line or line.startswith("%"):
            continue
        name, _, rest = line.removeprefix(r"\newcommand{" + "\\").partition("}{")
        if name not in by_name:
            raise PublishedError(f"line {at}: {line!r} starts no known macro")
        table = by_name[name]
        seen.append(name)
        if table.inline:
            keep(table, table.rows[0], table.columns[0].key, rest.removesuffix("}"), at)
            continue
        for row, column, printed, place in _cells(table, lines):
            keep(table, row, column, printed, place)
        closing = next(lines)
        if closing[1] != "}":
            raise PublishedError(f"line {closing[0]}: {closing[1]!r} where {name} should end")
    missing = [table.name for table in macros if table.name not in seen]
    if missing:
        raise PublishedError(f"the file lacks {', '.join(missing)}")
    return values
