r"""Write the paper's ``data_generated.tex`` from records alone. This module reads no published value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from experiments.analysis.collect import Problem, Reader
from experiments.analysis.formats import DASH
from experiments.analysis.reduce import Cell, reduce_cell
from experiments.analysis.tables import Row, Table

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

    def printed(table: Table, row: Row, column: str) -> str:
        return cells[f"{table.name}.{row.key}.{column}"].printed

    return tex(macros, printed, HEADER, notes)


def problems_of(cells: dict[str, Cell]) -> list[tuple[Problem, list[str]]]:
    """List each problem that keeps a number from being printed once, with the cells that it affects."""
    found: dict[Problem, list[str]] = {}
    for name, cell in cells.items():
        for problem in cell.problems:
            found.setdefault(problem, []).append(name)
    return list(found.items())


def partial_rows(cells: dict[str, Cell]) -> dict[str, tuple[int, int]]:
    """Return the incomplete rows: ``macro.row`` → (fewest usable seeds of its cells, wanted seeds)."""
    found: dict[str, tuple[int, int]] = {}
    for name, cell in cells.items():
        row = name.rpartition(".")[0]
        if 0 < cell.n < cell.wanted:
            found[row] = min(found.get(row, (cell.n, cell.wanted)), (cell.n, cell.wanted))
    return found
