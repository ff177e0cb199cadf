"""Does a published value fit our runs?

A published statistic of n seeds is compared with the same statistic over bootstrap samples of n seeds drawn from our
runs: *reproduced* when every number of the cell lies in the central 95 %, else *differs*. A printed number stands for
everything that rounds to it. Cells that cannot be tested say why instead.

Of N tested numbers 5 % lie outside by chance when our runs represent the method perfectly; our own runs are a sample
too, so with as many seeds as the published row the chance is nearer 17 %. :func:`by_chance` gives both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from experiments.analysis.formats import Format, Slot, Value, half_unit
from experiments.analysis.reduce import Cell, Samples
from experiments.analysis.statistics import Array, statistic

CENTRAL = 0.95
RESAMPLES = 10_000
SEED = 2026

REPRODUCED, DIFFERS = "reproduced", "differs"
TOO_FEW, SINGLE, CALIBRATED, NOT_RUN = "too few seeds", "single run", "calibrated", "not run"
NOT_PUBLISHED = "not published"


@dataclass(frozen=True)
class Part:
    """One number of a cell: the published one, and the central 95 % of the same statistic over our runs."""

    name: str
    published: float
    low: float
    high: float
    inside: bool


@dataclass(frozen=True)
class Verdict:
    """The word, and the parts with their intervals (empty where none can be given)."""

    word: str
    parts: tuple[Part, ...] = ()
    seeds: int = 0
    published_seeds: int = 0

    @property
    def inside(self) -> bool | None:
        """Whether all published numbers lie in their intervals, whatever the word; None if there are no intervals."""
        return all(part.inside for part in self.parts) if self.parts else None

    @property
    def tested(self) -> bool:
        """Whether the word says that the value fits or not."""
        return self.word in (REPRODUCED, DIFFERS)


def enough(ours: int, published: int) -> bool:
    """Whether we have at least max(5, half the published seeds)."""
    return ours >= max(5, math.ceil(published / 2))


@lru_cache(maxsize=64)
def _draws(ours: int, published: int) -> npt.NDArray[np.int64]:
    """Indices of shape [resamples, published seeds]; the same for every cell of these sizes, whatever the order."""
    return np.random.default_rng([SEED, ours, published]).integers(0, ours, size=(RESAMPLES, published))


def interval(name: str, samples: Array, published_seeds: int) -> tuple[float, float]:
    """The central 95 % of a statistic over bootstrap samples of ``published_seeds`` seeds.

    Args:
        samples: one number a seed, shape [seeds].

    The ends are values that the statistic takes, the outer ones where the quantile falls between two.
    """
    values = np.asarray(statistic(name, samples[_draws(len(samples), published_seeds)]), dtype=np.float64)
    tail = (1 - CENTRAL) / 2
    return float(np.quantile(values, tail, method="lower")), float(np.quantile(values, 1 - tail, method="higher"))


def _part(slot: Slot, name: str, published: float, samples: Array, seeds: int) -> Part:
    low, high = interval(slot.statistic, samples, seeds)
    # the slack of one part in 1e9 is for sums of floats that are equal on paper
    slack = half_unit(published, slot.spec) + 1e-9 * abs(published)
    return Part(name, published, low, high, low - slack <= published <= high + slack)


def parts_of(form: Format, value: Value, quantity: str, samples: Samples, seeds: int) -> tuple[Part, ...]:
    """Each published number of a cell beside its interval. Empty if our runs have another number of gates.

    Args:
        form, value: the format in which the cell was published, and its numbers.
        quantity: what the column measures.
        samples: quantity → numbers of shape [gates, seeds].
        seeds: seeds behind the published value.
    """
    found: list[Part] = []
    for slot in form.slots:
        entry = value[slot.name]
        numbers = list(entry) if isinstance(entry, Sequence) else [entry]
        gates = samples.get(slot.quantity(quantity))
        if gates is None or len(gates) != len(numbers):
            return ()
        for gate, number in enumerate(numbers):
            name = slot.name if len(numbers) == 1 else f"{slot.name}[{gate}]"
            found.append(_part(slot, name, float(number), gates[gate], seeds))
    return tuple(found)


def judge(
    cell: Cell, published: tuple[Format, Value] | None, quantity: str, seeds: int, calibrated: bool = False
) -> Verdict:
    """The verdict on a cell. Diverged seeds count as run, and a cell with one differs, as does one of other gates.

    Args:
        cell: our runs, as many as there are.
        published: the format and value of :func:`experiments.analysis.published.value_of`.
        quantity: what the column measures.
        seeds: seeds behind the published value; 1 is a single run.
        calibrated: whether settings of the runs were chosen by this value.
    """
    if published is None:
        return Verdict(NOT_PUBLISHED, (), cell.n, seeds)
    diverged = sum(problem.kind == "diverged" for problem in cell.problems)
    if cell.n + diverged == 0:
        return Verdict(NOT_RUN, (), 0, seeds)
    form, value = published
    parts = parts_of(form, value, quantity, cell.samples, seeds) if cell.n > 1 else ()
    if calibrated:
        return Verdict(CALIBRATED, parts, cell.n, seeds)
    if seeds == 1:
        return Verdict(SINGLE, parts, cell.n, seeds)
    if not enough(cell.n + diverged, seeds):
        return Verdict(TOO_FEW, parts, cell.n, seeds)
    # every published seed ended in a number: the seeds of ours that did are no fair sample once one did not
    fits = bool(parts) and not diverged and all(part.inside for part in parts)
    return Verdict(REPRODUCED if fits else DIFFERS, parts, cell.n, seeds)


@dataclass(frozen=True)
class Chance:
    """Tested cells and numbers, those that differ, and how many numbers would by chance alone."""

    cells: int
    cells_differ: int
    numbers: int
    numbers_differ: int
    expected: float
    expected_with_our_sampling: float


def by_chance(verdicts: Iterable[Verdict]) -> Chance:
    """How many of the tested numbers would lie outside by chance.

    ``expected`` is 5 % of them. ``expected_with_our_sampling`` allows for our runs being a sample as well, as for means
    of normal samples: the difference then has (1 + n_published / n_ours) times the variance that is tested against.
    """
    tested = [verdict for verdict in verdicts if verdict.tested]
    sampled = sum(
        math.erfc(1.959964 / math.sqrt(2 * (1 + v.published_seeds / v.seeds))) * len(v.parts) for v in tested if v.parts
    )
    numbers = sum(len(v.parts) for v in tested)
    return Chance(
        cells=len(tested),
        cells_differ=sum(v.word == DIFFERS for v in tested),
        numbers=numbers,
        numbers_differ=sum(not part.inside for v in tested for part in v.parts),
        expected=(1 - CENTRAL) * numbers,
        expected_with_our_sampling=sampled,
    )
