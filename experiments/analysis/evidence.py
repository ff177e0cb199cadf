"""How a claim reads records: complete enough cells and samples, or the reason why there is nothing to judge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.analysis.collect import Collected, Reader, RecordedRun
from experiments.analysis.reduce import NotMeasured, quantity_of, sample
from experiments.analysis.selection import MOST_SEEDS, Selection
from experiments.analysis.statistics import Array

if TYPE_CHECKING:
    from experiments.analysis.compare import Comparison


class Untested(Exception):
    """Too little has been run to judge a claim; the message says what is missing."""


def sufficient(n: int, wanted: int) -> bool:
    """Whether ``n`` of ``wanted`` runs are enough to judge by: half of them, and five unless fewer are wanted."""
    return n >= max(min(5, wanted), math.ceil(wanted / 2))


def require(n: int, wanted: int, what: str, unit: str = "runs") -> None:
    """Raise :class:`Untested`, with ``what`` is missing, unless ``n`` of ``wanted`` are :func:`sufficient`."""
    if not sufficient(n, wanted):
        raise Untested(f"{what}: {n} of {wanted} {unit}")


class Evidence:
    """What a predicate may look at. ``used`` collects the ids of the runs that it looked at.

    Args:
        items: the comparison of every cell of the tables, and of their stand-ins.
        stand_in: name of the stand-ins that take the place of the rows' own runs.

    Of a row of a table, samples and pairs use all seeds that there are, as its cells do, whatever a selection names.
    """

    def __init__(self, reader: Reader, items: Iterable[Comparison], stand_in: str = "") -> None:
        self.reader = reader
        items = tuple(items)
        self._items = {(item.name, item.stand_in): item for item in items}
        self._stand_in = stand_in
        self._rows = {item.row.runs.with_seeds(()).only() for item in items if not item.stand_in}
        self.used: list[str] = []

    def _collect(self, selection: Selection) -> Collected:
        of_row = selection.with_seeds(()).only() in self._rows
        return self.reader.collect(selection.with_seeds(range(MOST_SEEDS)) if of_row else selection)

    def item(self, name: str) -> Comparison:
        """The comparison of a cell.

        Raises:
            Untested: if nothing stands in for it.
        """
        if (name, self._stand_in) not in self._items and (name, "") in self._items:
            raise Untested(f"{name} is not run")
        return self._items[name, self._stand_in]

    def cell(self, name: str, slot: str | None = None) -> float:
        """The number of a cell (``slot``, else its first), over at least half of the published seeds.

        Raises:
            Untested: if there are fewer.
        """
        item = self.item(name)
        cell = item.cell
        if cell.value is None:
            raise Untested(f"{name} is not run")
        require(cell.n, item.row.seeds, name, "seeds")
        self.used += cell.run_ids
        found = cell.value[slot or next(iter(cell.value))]
        if isinstance(found, Sequence):
            raise TypeError(f"{name} holds one number per gate: {list(found)}")
        return float(found)

    def answers(self, name: str, slot: str | None = None) -> tuple[float, int]:
        """A score of one run, as (share of right answers, number of questions).

        Raises:
            Untested: if there is no such run.
        """
        score, item = self.cell(name, slot), self.item(name)
        companion, beside, _ = item.table.quantity(item.row, item.column.key).rpartition("/")
        try:
            return score / 100, int(quantity_of(item.cell.runs[0], f"{companion}{beside}n")[0])
        except NotMeasured:
            raise Untested(f"{name}: its number of questions is not recorded") from None

    def published(self, name: str) -> float:
        """The first number that the paper prints in a cell."""
        item = self.item(name)
        found = next(iter(item.published[1].values())) if item.published else ()
        if isinstance(found, Sequence):
            raise TypeError(f"the paper prints no single number in {name}")
        return float(found)

    def published_count(self, name: str) -> tuple[int, int]:
        """The published rate of a cell, as (number of seeds, of how many)."""
        seeds = self.item(name).row.seeds
        return round(self.published(name) / 100 * seeds), seeds

    def samples(
        self, selections: Selection | Sequence[Selection], quantities: Sequence[str], what: str
    ) -> dict[str, Array]:
        """Quantity → one number per run, shape [runs], over at least half of the runs of selections together.

        Raises:
            Untested: if there are fewer; ``what`` names them.
        """
        selections = [selections] if isinstance(selections, Selection) else selections
        parts = [sample(self._collect(selection), quantities) for selection in selections]
        runs = [run_id for part in parts for run_id in part.run_ids]
        require(len(runs), sum(len(selection.seeds) for selection in selections), what)
        self.used += runs
        return {quantity: np.concatenate([part.of(quantity) for part in parts]) for quantity in quantities}

    def pairs(
        self, first: Selection, second: Selection, quantity: str, what: str, beside: str = ""
    ) -> tuple[Array, Array]:
        """One quantity of two selections at the seeds that both have, each [seeds]; ``beside``: that of the second.

        Raises:
            Untested: if fewer than half of the pairs are there.
        """
        asked = (first, quantity), (second, beside or quantity)
        samples = [(sample(self._collect(selection), [name]), name) for selection, name in asked]
        both = [dict(zip([run.seed for run in each.runs], each.of(name), strict=True)) for each, name in samples]
        shared = sorted(both[0].keys() & both[1].keys())
        require(len(shared), len({*first.seeds} & {*second.seeds}), what, "pairs of seeds")
        self.used += [run.run_id for each, _ in samples for run in each.runs if run.seed in shared]
        return np.array([both[0][seed] for seed in shared]), np.array([both[1][seed] for seed in shared])

    def ratios(self, first: Selection, second: Selection, quantity: str, what: str) -> Array:
        """The first over the second at the seeds that both have, shape [seeds]; as :meth:`pairs`."""
        one, other = self.pairs(first, second, quantity, what)
        return one / other

    def runs(self, selection: Selection, what: str) -> tuple[RecordedRun, ...]:
        """The complete runs of a selection, at least half of them.

        Raises:
            Untested: if there are fewer.
        """
        complete = tuple(run for run in self.reader.collect(selection).runs if run.record["status"] == "complete")
        require(len(complete), len(selection.seeds), what)
        self.used += [run.run_id for run in complete]
        return complete


def geometric_mean(numbers: Array) -> float:
    """exp of the mean logarithm; of positive numbers."""
    return float(np.exp(np.log(numbers).mean()))
