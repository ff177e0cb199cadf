"""Explain a cell: its records and its arithmetic, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from experiments.analysis.collect import Reader
from experiments.analysis.formats import Number, parse_format
from experiments.analysis.reduce import Cell, reduce_cell
from experiments.analysis.statistics import Array
from experiments.analysis.tables import Row, Table


def find(name: str, macro: Callable[[str], Table]) -> list[tuple[Table, Row, str]]:
    """Find the cells that ``MACRO``, ``MACRO.row`` or ``MACRO.row.column`` names; ``macro`` finds a table by name.

    Raises:
        KeyError: if there are none; the message lists the possible names.
    """
    parts = name.lstrip("\\").split(".")
    if len(parts) > 3:
        raise KeyError(f"'{name}' has more than three parts; write MACRO, MACRO.row or MACRO.row.column")
    table = macro(parts[0])
    rows = [table.row(parts[1])] if len(parts) > 1 else list(table.rows)
    columns = [table.column(parts[2])] if len(parts) > 2 else list(table.columns)
    return [(table, row, column.key) for row in rows for column in columns]


@dataclass(frozen=True)
class Step:
    """One statistic of a cell, as text: the quantity, the gate among its ``gates``, the ``numbers`` [seeds]."""

    statistic: str
    quantity: str
    gate: int
    gates: int
    numbers: Array
    result: Number

    def __str__(self) -> str:
        which = f" of gate {self.gate}" if self.gates > 1 else ""
        listed = ", ".join(digits(number) for number in self.numbers)
        return f"{self.statistic} of {self.quantity}{which}: ({listed}) = {digits(self.result)}"


def digits(number: Number) -> str:
    """Print a number with enough digits to repeat the arithmetic."""
    return f"{number:.10g}"


def arithmetic(table: Table, row: Row, column: str, cell: Cell) -> Iterator[Step]:
    """Explain how a cell's numbers follow from those of its runs; return nothing for a cell without runs."""
    if cell.value is None:
        return
    for slot in parse_format(table.formats(row, column)[0]).slots:
        quantity = slot.quantity(table.quantity(row, column))
        gates = cell.samples[quantity]
        entry = cell.value[slot.name]
        results = list(entry) if isinstance(entry, Sequence) else [entry]
        for gate, (numbers, result) in enumerate(zip(gates, results, strict=True)):
            yield Step(slot.statistic, quantity, gate, len(gates), numbers, result)


def explain(reader: Reader, table: Table, row: Row, column: str) -> str:
    """Explain one cell: records with numbers and commit, the arithmetic, the printed text, or why it is a dash."""
    name = f"{table.name}.{row.key}.{column}"
    if column in row.dashes:
        return f"{name}: a dash by design, there is no such number"
    cell = reduce_cell(reader, table, row, column)
    lines = [f"{name}: {row.title}; {table.column(column).title}"]
    undigested = 0
    if row.runs is not None:
        by_id = {run.run_id: run for run in reader.collect(row.runs).runs}
        for at, run_id in enumerate(cell.run_ids):
            run = by_id[run_id]
            numbers = "; ".join(
                f"{quantity} = {', '.join(digits(number) for number in gates[:, at])}"
                for quantity, gates in cell.samples.items()
            )
            undigested += "sha256" not in run.record
            commit = (run.record["code"]["commit"] or "unknown")[:10]
            place = reader.store.path(run_id).relative_to(reader.store.root)
            lines.append(f"  {place} (commit {commit}): {numbers}")
            lines += [f"    with {key}: {other.run_id}" for key, other in run.companions.items()]
    if cell.value is not None:
        lines += [f"  {step}" for step in arithmetic(table, row, column, cell)]
        lines.append(f"  as text: {cell.text} ({cell.n} of {cell.wanted} seeds)")
    if undigested:
        lines.append(f"  no digest, so a change would not show: {undigested} of {len(cell.run_ids)} records")
    lines += [f"  {note}" for note in reader.data_notes(cell.run_ids)]
    lines += [f"  {problem.kind}: {problem}" for problem in cell.problems]
    lines.append(f"  printed: {cell.printed}")
    return "\n".join(lines)
