"""Reduce the records of a row to one cell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from experiments.analysis.collect import Collected, Problem, Reader, RecordedRun
from experiments.analysis.formats import DASH, Number, Slot, Value, parse_format
from experiments.analysis.quantities import NotMeasured, companion_of, quantity_of
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array, statistic
from experiments.analysis.tables import Row, Table


@dataclass(frozen=True)
class RunSample:
    """Quantities of those runs that have all of them.

    Attributes:
        numbers: quantity → array of shape [gates, runs]; empty without runs.
        problems: of the other runs.
    """

    runs: tuple[RecordedRun, ...]
    numbers: Mapping[str, Array]
    problems: tuple[Problem, ...]

    @property
    def n(self) -> int:
        """The number of runs."""
        return len(self.runs)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The run ids, in the order of the numbers."""
        return tuple(run.run_id for run in self.runs)

    def of(self, quantity: str) -> Array:
        """The numbers of a quantity that has one per run, shape [runs]."""
        return self.numbers[quantity][0] if self.runs else np.empty(0)


@dataclass(frozen=True)
class Cell(RunSample):
    """One cell, reduced from records.

    Attributes:
        value: over the usable seeds; None if there are none. Only a ``complete`` cell prints it in the paper.
        wanted: the number of all seeds.
    """

    value: Value | None
    text: str
    wanted: int

    @property
    def complete(self) -> bool:
        """Whether every wanted seed was used. A seed with any problem is not used."""
        return self.value is not None and self.n == self.wanted

    @property
    def printed(self) -> str:
        """The text in the paper's file."""
        return self.text if self.complete else DASH


def sample(collected: Collected, quantities: Iterable[str], several: Collection[str] = ()) -> RunSample:
    """Return the quantities of all runs that have them.

    Args:
        several: quantities that may have several numbers per run, one per gate.
    """
    quantities = list(dict.fromkeys(quantities))
    problems = list(collected.problems)
    needed = dict.fromkeys(companion for companion in map(companion_of, quantities) if companion is not None)
    for companion in needed:
        problems += collected.companion_problems[companion]
    used: list[RecordedRun] = []
    found: list[dict[str, list[float]]] = []
    for run in collected.runs:
        if not needed.keys() <= run.companions.keys():
            continue
        try:
            measured = {quantity: quantity_of(run, quantity) for quantity in quantities}
        except NotMeasured as lack:
            problems.append(lack.problem)
            continue
        if any(len(numbers) > 1 for quantity, numbers in measured.items() if quantity not in several):
            problems.append(Problem("unmeasured", run.run_id, "has several gates where the table has one"))
        elif found and any(len(numbers) != len(found[0][quantity]) for quantity, numbers in measured.items()):
            problems.append(Problem("unmeasured", run.run_id, "has another number of gates than the other seeds"))
        else:
            used.append(run)
            found.append(measured)
    numbers = {name: np.array([each[name] for each in found], dtype=np.float64).T for name in quantities if found}
    return RunSample(tuple(used), numbers, tuple(dict.fromkeys(problems)))


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
        return Cell((), {}, () if column in row.dashes else (lack,), None, DASH, 0)
    form = parse_format(table.formats(row, column)[0])
    of = {slot: slot.quantity(table.quantity(row, column)) for slot in form.slots}
    single = {quantity for slot, quantity in of.items() if slot.separator is None}
    found = sample(reader.collect(runs), of.values(), set(of.values()) - single)
    value = {slot.name: apply_slot(slot, found.numbers[quantity]) for slot, quantity in of.items()} if found.n else None
    text = DASH if value is None else form.render(value)
    return Cell(found.runs, found.numbers, found.problems, value, text, len(runs.seeds))


def reduce_row(reader: Reader, table: Table, row: Row) -> tuple[Cell, ...]:
    """Reduce the records of a row to one cell per column."""
    return tuple(reduce_cell(reader, table, row, column.key) for column in table.columns)
