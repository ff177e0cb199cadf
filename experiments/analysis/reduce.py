"""Reduce the records of a row to one cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from experiments.analysis.collect import Collected, Problem, Reader
from experiments.analysis.formats import DASH, Number, Slot, Value, parse_format
from experiments.analysis.quantities import NotMeasured, companion_of, quantity_of
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array, statistic
from experiments.analysis.tables import Row, Table

Samples = Mapping[str, Array]
"""Quantity → numbers of shape [gates, seeds]."""


@dataclass(frozen=True)
class Cell:
    """One cell, reduced from records.

    Attributes:
        value: over the ``n`` usable seeds; None if there are none. Only a ``complete`` cell prints it in the paper.
        run_ids: the runs behind the value.
    """

    value: Value | None
    text: str
    n: int
    wanted: int
    samples: Samples
    run_ids: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def complete(self) -> bool:
        """Whether every wanted seed was used. A seed with any problem is not used."""
        return self.value is not None and self.n == self.wanted

    @property
    def printed(self) -> str:
        """The text in the paper's file."""
        return self.text if self.complete else DASH


def sample(
    collected: Collected, quantities: list[str], single: frozenset[str] = frozenset()
) -> tuple[Samples, tuple[str, ...], tuple[Problem, ...]]:
    """Return the quantities of all runs that have them, the ids of these runs, and the problems of the others.

    Args:
        single: quantities that must have one number per run, not one per gate.
    """
    problems = list(collected.problems)
    broken: set[str] = set()
    for quantity in quantities:
        companion = companion_of(quantity)
        if companion is not None:
            problems += collected.companion_problems[companion]
            broken.update(run.run_id for run in collected.runs if companion not in run.companions)
    rows: dict[str, list[list[float]]] = {quantity: [] for quantity in quantities}
    used: list[str] = []
    for run in collected.runs:
        if run.run_id in broken:
            continue
        try:
            measured = {quantity: quantity_of(run, quantity) for quantity in quantities}
        except NotMeasured as lack:
            problems.append(lack.problem)
            continue
        if any(len(measured[quantity]) > 1 for quantity in single):
            problems.append(Problem("unmeasured", run.run_id, "has several gates where the table has one"))
            continue
        if used and any(len(measured[quantity]) != len(rows[quantity][0]) for quantity in quantities):
            problems.append(Problem("unmeasured", run.run_id, "has another number of gates than the other seeds"))
            continue
        used.append(run.run_id)
        for quantity in quantities:
            rows[quantity].append(measured[quantity])
    samples = {name: np.asarray(lists, dtype=np.float64).T for name, lists in rows.items() if lists}
    return samples, tuple(used), tuple(dict.fromkeys(problems))


def apply_slot(slot: Slot, samples: Array) -> Number | list[Number]:
    """Compute a slot's statistic over ``samples`` [gates, seeds]: one number, or a list with one per gate.

    Raises:
        ValueError: if the slot takes one number but there are several gates.
    """
    numbers: list[Number] = [float(number) for number in np.atleast_1d(statistic(slot.statistic, samples))]
    if slot.separator is not None:
        return numbers
    if len(numbers) != 1:
        raise ValueError(f"slot {slot.name} takes one number, but the runs have {len(numbers)} gates")
    return numbers[0]


def reduce_cell(reader: Reader, table: Table, row: Row, column: str, selection: Selection | None = None) -> Cell:
    """Reduce the records of a row to the value of one of its columns.

    Args:
        selection: runs to use instead of the row's own, such as a stand-in's.
    """
    runs = selection or row.runs
    if runs is None or column in row.dashes:
        lack = Problem("no study", f"{table.name}.{row.key}", "no study of this row exists yet")
        return Cell(None, DASH, 0, 0, {}, (), () if column in row.dashes else (lack,))
    form = parse_format(table.formats(row, column)[0])
    quantity = table.quantity(row, column)
    names = list(dict.fromkeys(slot.quantity(quantity) for slot in form.slots))
    single = frozenset(slot.quantity(quantity) for slot in form.slots if slot.separator is None)
    samples, used, problems = sample(reader.collect(runs), names, single)
    if not used:
        return Cell(None, DASH, 0, len(runs.seeds), {}, (), problems)
    value = {slot.name: apply_slot(slot, samples[slot.quantity(quantity)]) for slot in form.slots}
    return Cell(value, form.render(value), len(used), len(runs.seeds), samples, used, problems)


def reduce_row(reader: Reader, table: Table, row: Row) -> tuple[Cell, ...]:
    """Reduce the records of a row to one cell per column."""
    return tuple(reduce_cell(reader, table, row, column.key) for column in table.columns)
