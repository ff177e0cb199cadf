r"""Write the paper's ``data_generated.tex`` from records alone, and explain its cells. No published value is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from experiments.analysis.collect import Problem, Reader
from experiments.analysis.reduce import Cell, reduce_cell
from experiments.analysis.tables import DASH, Number, Row, Table, parse_format

HEADER = (
    "% Made by scripts/build_paper_data.py from the records of the runs. Do not edit: run the script again.",
    "% A number stands where every seed of the row has been run at full size; -- stands for all others.",
)


def comment(text: str) -> str:
    """Return a comment line of TeX. Whatever the text holds, it stays on this line."""
    return "% " + "".join(character if character.isprintable() else " " for character in text)


def tex(
    macros: Sequence[Table],
    text_of: Callable[[Table, Row, str], str],
    header: Sequence[str] = HEADER,
    notes_of: Callable[[Table], Iterable[str]] = lambda table: (),
) -> str:
    """Render the whole file: first all inline numbers, then one paragraph per table body, in the given order.

    Args:
        text_of: (macro, row, column key) → the text of a cell.
        notes_of: macro → lines on it, which become comments above it.
    """
    lines = [*header, ""]
    for table in sorted(macros, key=lambda macro: not macro.inline):
        notes = [comment(note) for note in notes_of(table)]
        if table.inline:
            number = text_of(table, table.rows[0], table.columns[0].key)
            lines += [*notes, rf"\newcommand{{\{table.name}}}{{{number}}}"]
            continue
        lines += ["", *notes, rf"\newcommand{{\{table.name}}}{{%"]
        for line in table.lines:
            if isinstance(line, str):
                lines.append(line)
                continue
            cells = [DASH if c.key in line.dashes else text_of(table, line, c.key) for c in table.columns]
            lines.append(" & ".join([*line.labels, *cells]) + r" \\")
        lines.append("}")
    return "\n".join(lines) + "\n"


def reduce_all(reader: Reader, macros: Sequence[Table]) -> dict[str, Cell]:
    """Reduce every cell that holds a number: ``macro.row.column`` → cell."""
    return {
        f"{table.name}.{row.key}.{column.key}": reduce_cell(reader, table, row, column.key)
        for table in macros
        for row in table.rows
        for column in table.columns
        if column.key not in row.dashes
    }


def from_cells(macros: Sequence[Table], cells: dict[str, Cell], reader: Reader) -> str:
    """Render the file from reduced cells. ``reader`` has read their records and notes where their data differ."""

    def notes(table: Table) -> tuple[str, ...]:
        printed = [cell for name, cell in cells.items() if cell.complete and name.startswith(f"{table.name}.")]
        return reader.data_notes(run_id for cell in printed for run_id in cell.run_ids)

    return tex(macros, lambda table, row, column: cells[f"{table.name}.{row.key}.{column}"].printed, HEADER, notes)


def problems_of(cells: dict[str, Cell]) -> list[tuple[Problem, list[str]]]:
    """List each problem that keeps a number from being printed once, with the cells that it affects."""
    found: dict[Problem, list[str]] = {}
    for name, cell in cells.items():
        for problem in cell.problems:
            found.setdefault(problem, []).append(name)
    return list(found.items())


def partial_rows(cells: dict[str, Cell]) -> dict[str, tuple[int, int]]:
    """Return the incomplete rows: ``macro.row`` → (fewest usable seeds of its cells, wanted seeds)."""
    counts: dict[str, tuple[int, int]] = {}
    for name, cell in cells.items():
        row = name.rpartition(".")[0]
        if 0 < cell.n < cell.wanted:
            counts[row] = min(counts.get(row, (cell.n, cell.wanted)), (cell.n, cell.wanted))
    return counts


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
