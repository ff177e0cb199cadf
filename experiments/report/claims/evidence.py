"""How a claim reads records: complete enough cells and samples, or the reason why there is nothing to judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.compare import Comparison
from experiments.analysis.reduce import reduce_cell, sample
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array
from experiments.tables.model import StandIn

SUPPORTED, NOT_SUPPORTED, UNTESTED = "supported", "not supported", "untested"


class Untested(Exception):
    """Too little has been run to judge a claim; the message says what is missing."""


@dataclass(frozen=True)
class Outcome:
    """Whether a claim holds in our runs, and the numbers that say so."""

    holds: bool
    because: str


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict; ``runs`` are the ids of the runs behind it."""

    key: str
    text: str
    where: str
    word: str
    because: str
    runs: tuple[str, ...]


def sufficient(n: int, wanted: int) -> bool:
    """Whether ``n`` of ``wanted`` runs are enough to judge by: half of them, and five unless fewer are wanted."""
    return n >= max(min(5, wanted), math.ceil(wanted / 2))


class Evidence:
    """What a predicate may look at. ``used`` collects the ids of the runs that it looked at.

    Args:
        items: name → comparison of every cell of the tables.
    """

    def __init__(self, reader: Reader, items: Mapping[str, Comparison]) -> None:
        self.reader = reader
        self.items = items
        self.used: list[str] = []

    def cell(self, name: str, slot: str | None = None, stand_in: StandIn | None = None) -> float:
        """The number of a cell (``slot``, else its first), over at least half of the published seeds.

        Args:
            stand_in: takes the place of the row's own runs.

        Raises:
            Untested: if there are fewer.
        """
        item = self.items[name]
        cell = item.cell
        if stand_in is not None and item.row.runs is not None:
            runs = item.row.runs.with_overrides(stand_in.overrides, stand_in.choices)
            cell = reduce_cell(self.reader, item.table, item.row, item.column.key, runs)
        if cell.value is None or not sufficient(cell.n, item.row.seeds):
            raise Untested(f"{name}: {cell.n} of {item.row.seeds} seeds" if cell.n else f"{name} is not run")
        self.used += cell.run_ids
        found = cell.value[slot or next(iter(cell.value))]
        if isinstance(found, Sequence):
            raise TypeError(f"{name} holds one number per gate: {list(found)}")
        return float(found)

    def samples(self, selection: Selection, quantities: Sequence[str], what: str) -> dict[str, Array]:
        """Quantity → one number per run, shape [runs], over at least half of the runs of a selection.

        Raises:
            Untested: if there are fewer; ``what`` names them.
        """
        return self.pooled([selection], quantities, what)

    def pairs(self, first: Selection, second: Selection, quantity: str, what: str) -> tuple[Array, Array]:
        """One quantity of two selections at the seeds that both have, each of shape [seeds].

        Raises:
            Untested: if fewer than half of the pairs are there.
        """
        by_seed: list[dict[int, tuple[float, str]]] = []
        for selection in (first, second):
            collected = self.reader.collect(selection)
            found, names, _ = sample(collected, [quantity], frozenset([quantity]))
            seeds = {run.run_id: run.seed for run in collected.runs}
            numbers = found[quantity][0] if names else ()
            by_seed.append({seeds[name]: (float(number), name) for name, number in zip(names, numbers, strict=True)})
        shared = sorted(set(by_seed[0]) & set(by_seed[1]))
        wanted = len(set(first.seeds) & set(second.seeds))
        if not sufficient(len(shared), wanted):
            raise Untested(f"{what}: {len(shared)} of {wanted} pairs of seeds")
        self.used += [of[seed][1] for of in by_seed for seed in shared]
        one, other = (np.array([of[seed][0] for seed in shared]) for of in by_seed)
        return one, other

    def pooled(self, selections: Sequence[Selection], quantities: Sequence[str], what: str) -> dict[str, Array]:
        """The same over several selections together, each of whose quantities has shape [runs].

        Raises:
            Untested: if fewer than half of all runs are there.
        """
        parts: list[dict[str, Array]] = []
        runs: list[str] = []
        for selection in selections:
            found, names, _ = sample(self.reader.collect(selection), list(quantities), frozenset(quantities))
            if names:
                parts.append({quantity: gates[0] for quantity, gates in found.items()})
                runs += names
        wanted = sum(len(selection.seeds) for selection in selections)
        if not sufficient(len(runs), wanted):
            raise Untested(f"{what}: {len(runs)} of {wanted} runs")
        self.used += runs
        return {quantity: np.concatenate([part[quantity] for part in parts]) for quantity in quantities}

    def runs(self, selection: Selection, what: str) -> tuple[RecordedRun, ...]:
        """The complete runs of a selection, at least half of them.

        Raises:
            Untested: if there are fewer.
        """
        found = tuple(run for run in self.reader.collect(selection).runs if run.record["status"] == "complete")
        if not sufficient(len(found), len(selection.seeds)):
            raise Untested(f"{what}: {len(found)} of {len(selection.seeds)} runs")
        self.used += [run.run_id for run in found]
        return found


@dataclass(frozen=True)
class Claim:
    """A statement of the paper: a sentence with its threshold, where it stands, and the predicate."""

    key: str
    text: str
    where: str
    predicate: Callable[[Evidence], Outcome]


def claim(key: str, where: str) -> Callable[[Callable[[Evidence], Outcome]], Claim]:
    """Makes a claim of its predicate, whose docstring is the sentence."""

    def made(predicate: Callable[[Evidence], Outcome]) -> Claim:
        return Claim(key, " ".join((predicate.__doc__ or "").split()), where, predicate)

    return made


def geometric_mean(numbers: Array) -> float:
    """exp of the mean logarithm; of positive numbers."""
    return float(np.exp(np.log(numbers).mean()))


def rank_correlation(x: Array, y: Array) -> float:
    """Spearman's coefficient; ties take their mean rank. 0 where one of the two does not vary."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(spearmanr(x, y).statistic)
