"""The runs behind a row of a table: their numbers, the arithmetic of the cells, and the problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.compare import Comparison
from experiments.analysis.explain import arithmetic, digits
from experiments.analysis.terminal import tex_to_text
from experiments.report.page.runs import Runs


@dataclass(frozen=True)
class RunLine:
    """One run behind a row.

    Attributes:
        numbers: the text of each quantity.
        beside: ids of its companion runs.
    """

    seed: int
    name: str
    commit: str
    numbers: tuple[str, ...]
    beside: tuple[str, ...]


@dataclass(frozen=True)
class Behind:
    """The content of the panel of a row.

    Attributes:
        steps: the arithmetic from quantities to cells.
        curves: id of the run whose curves the panel draws; None without curves.
    """

    quantities: tuple[str, ...]
    lines: tuple[RunLine, ...]
    steps: tuple[str, ...]
    problems: tuple[str, ...]
    curves: str | None


def key_of(item: Comparison) -> str:
    """Return ``macro.row.column``; for a cell of a stand-in, ``macro.row.column~stand-in``."""
    return f"{item.name}~{item.stand_in}" if item.stand_in else item.name


def row_label(item: Comparison) -> str:
    """Return the printed labels of the cell's row, or the title of a single number."""
    return tex_to_text(item.row.title) or item.table.title


def behind(items: Sequence[Comparison], runs: Runs) -> Behind | None:
    """Return the runs and the arithmetic behind the cells of one row; None without runs."""
    numbers: dict[str, dict[str, str]] = {}
    quantities: dict[str, None] = {}
    steps: dict[str, None] = {}
    problems: dict[str, None] = {}
    companions: dict[str, dict[str, None]] = {}
    for item in items:
        read = {run.run_id: run.companions for run in item.runs(runs.reader)}
        for quantity, gates in item.cell.samples.items():
            for gate, values in enumerate(gates):
                name = quantity if len(gates) == 1 else f"{quantity}[{gate}]"
                quantities[name] = None
                for run_id, value in zip(item.cell.run_ids, values, strict=True):
                    numbers.setdefault(run_id, {})[name] = digits(value)
        for run_id in item.cell.run_ids:
            numbers.setdefault(run_id, {})
            companions.setdefault(run_id, {}).update(dict.fromkeys(one.run_id for one in read[run_id].values()))
        for step in arithmetic(item.table, item.row, item.column.key, item.cell):
            which = f"[{step.gate}]" if step.gates > 1 else ""
            steps[f"{step.statistic} of {step.quantity}{which} = {digits(step.result)}"] = None
        problems.update(dict.fromkeys(f"{one.kind}: {one.where}: {one.text}" for one in item.cell.problems))
    if not numbers:
        return None
    lines = []
    for name, found in numbers.items():
        record = runs.record(name)
        seed, commit = record["config"]["seed"]["value"], record["code"]["commit"] or "unknown"
        texts = tuple(found.get(quantity, "") for quantity in quantities)
        lines.append(RunLine(seed, name, commit[:10], texts, tuple(companions[name])))
    first = lines[0].name
    curves = first if runs.add_curves(first) else None
    return Behind(tuple(quantities), tuple(lines), tuple(steps), tuple(problems), curves)
