"""Every cell beside its published value, with a verdict; stand-ins beside the runs that they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiments.analysis.collect import Reader, Run
from experiments.analysis.formats import Format, Value
from experiments.analysis.published import Published, value_of
from experiments.analysis.reduce import Cell, reduce_cell
from experiments.analysis.selection import Selection
from experiments.analysis.verdict import Verdict, judge
from experiments.tables.model import Column, Row, Table


@dataclass(frozen=True)
class Comparison:
    """One cell. ``stand_in`` is empty, and ``selection`` None, for the row's own runs."""

    table: Table
    row: Row
    column: Column
    cell: Cell
    published: tuple[Format, Value] | None
    verdict: Verdict
    stand_in: str = ""
    selection: Selection | None = None

    @property
    def name(self) -> str:
        """``macro.row.column``."""
        return f"{self.table.name}.{self.row.key}.{self.column.key}"

    @property
    def published_text(self) -> str:
        """What the paper prints, empty for a dash."""
        return "" if self.published is None else self.published[0].render(self.published[1])

    def runs(self, reader: Reader) -> tuple[Run, ...]:
        """The usable runs that it was reduced from, and some that lack a number of it."""
        selection = self.selection or self.row.runs
        return reader.collect(selection).runs if selection else ()


def compare_cell(
    reader: Reader,
    values: Published,
    table: Table,
    row: Row,
    column: Column,
    selection: Selection | None = None,
    stand_in: str = "",
) -> Comparison:
    """Reduce one cell, from ``selection`` where given, and judge it."""
    cell = reduce_cell(reader, table, row, column.key, selection)
    published = value_of(values, table, row, column.key)
    verdict = judge(cell, published, table.quantity(row, column.key), row.seeds, table.calibrated)
    return Comparison(table, row, column, cell, published, verdict, stand_in, selection)


def compare_all(
    reader: Reader, values: Published, macros: Sequence[Table], task: str | None = None
) -> list[Comparison]:
    """Every cell that holds a number, and each stand-in that has any run.

    Args:
        task: only rows whose runs are of this task.
    """
    found: list[Comparison] = []
    for table in macros:
        for row in table.rows:
            if task is not None and (row.runs is None or dict(row.runs.choices)["task"] != task):
                continue
            columns = [column for column in table.columns if column.key not in row.dashes]
            found += [compare_cell(reader, values, table, row, column) for column in columns]
            for stand_in in row.stand_ins:
                if row.runs is None:
                    continue
                other = row.runs.with_overrides(stand_in.overrides)
                if reader.collect(other).runs:
                    found += [compare_cell(reader, values, table, row, c, other, stand_in.name) for c in columns]
    return found


def words(comparisons: Iterable[Comparison]) -> Counter[str]:
    """How many cells have which verdict; stand-ins are not counted."""
    return Counter(item.verdict.word for item in comparisons if not item.stand_in)
