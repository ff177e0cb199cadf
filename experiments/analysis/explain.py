"""Explain a cell: its records and its arithmetic, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.formats import Number, parse_format
from experiments.analysis.reduce import Cell, reduce_cell
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


def digits(number: Number) -> str:
    """Print a number with enough digits to repeat the arithmetic."""
    return f"{number:.10g}"


def arithmetic(table: Table, row: Row, column: str, cell: Cell) -> Iterator[str]:
    """Say how a cell's numbers follow from those of its runs; nothing for a cell without runs."""
    if cell.value is None:
        return
    for slot in parse_format(table.formats(row, column)[0]).slots:
        quantity = slot.quantity(table.quantity(row, column))
        results = np.atleast_1d(cell.value[slot.name])
        for gate, (numbers, result) in enumerate(zip(cell.numbers[quantity], results, strict=True)):
            which = f" of gate {gate}" if len(results) > 1 else ""
            yield f"{slot.statistic} of {quantity}{which}: ({', '.join(map(digits, numbers))}) = {digits(result)}"


def behind(reader: Reader, table: Table, row: Row, column: str, cell: Cell) -> list[str]:
    """Say what is behind a cell: records with numbers and commit, the arithmetic, or why it is a dash."""
    lines = []
    for at, run in enumerate(cell.runs):
        numbers = "; ".join(
            f"{quantity} = {', '.join(digits(number) for number in gates[:, at])}"
            for quantity, gates in cell.numbers.items()
        )
        commit = (run.record["code"]["commit"] or "unknown")[:10]
        place = reader.store.path(run.run_id).relative_to(reader.store.root)
        lines.append(f"  {place} (commit {commit}): {numbers}")
        lines += [f"    with {key}: {other.run_id}" for key, other in run.companions.items()]
    lines += [f"  {step}" for step in arithmetic(table, row, column, cell)]
    if cell.value is not None:
        lines.append(f"  as text: {cell.text} ({cell.n} of {cell.wanted} seeds)")
    undigested = sum("sha256" not in run.record for run in cell.runs)
    if undigested:
        lines.append(f"  no digest, so a change would not show: {undigested} of {cell.n} records")
    lines += [f"  {note}" for note in reader.data_notes(cell.run_ids)]
    return [*lines, *(f"  {problem.kind}: {problem}" for problem in cell.problems)]


def explain(reader: Reader, table: Table, row: Row, column: str) -> str:
    """Explain one cell: what is behind it, and the printed text."""
    name = f"{table.name}.{row.key}.{column}"
    if column in row.dashes:
        return f"{name}: a dash by design, there is no such number"
    cell = reduce_cell(reader, table, row, column)
    lines = behind(reader, table, row, column, cell)
    return "\n".join([f"{name}: {row.title}; {table.column(column).title}", *lines, f"  printed: {cell.printed}"])
