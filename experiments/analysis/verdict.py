"""Judge whether the published runs and ours look like two samples of one distribution.

The tests are in :mod:`experiments.analysis.statistics`. docs/verdicts.md says which test judges which number, and
why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.analysis import statistics
from experiments.analysis.estimates import difference_of_shares
from experiments.analysis.reduce import RunSample
from experiments.analysis.statistics import NO, PARTIAL, YES, Array
from experiments.analysis.tables import Format, Number, Slot, Value, half_unit

LEVEL = 0.05

AGREES, DISAGREES, CANNOT_TELL = "agrees", "disagrees", "cannot tell"
SETTING, NOT_RUN, NOT_PUBLISHED = "setting", "not run", "not published"

LEAST_SEEDS = 3
"""Least number of runs on either side that a mean is tested with."""

LIMITS: Mapping[str, float] = {"t": 1.0, "count": 1.0, "depth": 1.0, "accuracy": 0.5, "r": 0.05}
"""Last part of a quantity → a difference that would matter, in the unit of the quantity: numbers nearer are equal."""
FACTOR = 3.0
"""The same for errors (names that end with ``mse``), as a ratio."""
SHARE = 0.3
"""The same for rates and outcomes."""

_OUTCOMES = {"yes": YES, "partial": PARTIAL, "no": NO}


def overall(words: Iterable[str]) -> str:
    """Combine the verdicts on the numbers of one cell or statement: one may refute it, all have to agree."""
    found = set(words)
    if DISAGREES in found:
        return DISAGREES
    return AGREES if found == {AGREES} else CANNOT_TELL


@dataclass(frozen=True)
class TestedNumber:
    """One tested published number and the interval of values that the test does not reject.

    Attributes:
        spec: format of its numbers.
        inside: whether the published number, or one that rounds to it, lies in the interval.
        near: whether both one-sided tests reject that ours is as far from it as the limit above, or further.
        enough: how many seeds of ours would tell; infinite if none, as the published ones are too few.
        decisive: whether the test could reject at all. Ranks among few seeds cannot.
    """

    name: str
    spec: str
    published: float
    low: float
    high: float
    inside: bool
    near: bool = False
    enough: float = math.inf
    decisive: bool = True

    @property
    def word(self) -> str:
        """The verdict on this number alone."""
        if self.decisive and not self.inside:
            return DISAGREES
        return AGREES if self.near else CANNOT_TELL


@dataclass(frozen=True)
class Verdict:
    """The verdict on a cell.

    Attributes:
        parts: the tested numbers with their intervals; empty if no test was possible.
        calibrated: whether this cell, or another one of the same configuration, was used to choose settings.
        seeds: number of our runs that were judged: all that there are, which may be more than the cell prints.
        decisive: whether the tests could reject at all. Ranks among few seeds cannot.
    """

    word: str
    parts: tuple[TestedNumber, ...] = ()
    seeds: int = 0
    calibrated: bool = False
    decisive: bool = False

    @property
    def text(self) -> str:
        """The word, with a mark if the cell was judged and is calibrated."""
        judged = self.word in (AGREES, DISAGREES, CANNOT_TELL)
        return f"{self.word} (calibrated)" if self.calibrated and judged else self.word

    @property
    def enough(self) -> float | None:
        """About how many seeds of ours would tell, infinite for none; None if they do, or there is no test."""
        open_ = [part.enough for part in self.parts if part.word == CANNOT_TELL]
        return max(*open_, self.seeds + 1) if self.word == CANNOT_TELL and open_ else None

    @property
    def advice(self) -> str:
        """How many seeds would tell, in words; empty if there is nothing to say."""
        if self.enough is None:
            return ""
        return f"{'no number' if math.isinf(self.enough) else f'about {self.enough:.3g}'} of our seeds would tell"


def seeds_that_tell(spread: float, apart: float, limit: float, published_seeds: int) -> float:
    """Return how many seeds of ours would tell, if spread and difference stay as they are.

    The standard error of the difference, spread (1/n + 1/m)^½, then is a third of its distance from the limit or from
    none. Nearly three, z(0.95) + z(0.9), gives two one-sided tests at 5 % a power of 80 % if nothing differs.
    """
    if not spread:
        return 0
    left = (max(limit - apart, apart) / (3 * spread)) ** 2 - 1 / published_seeds
    return math.ceil(1 / left) if left > 0 else math.inf


def shares_are_near(ours: int, seeds: int, published: int, published_seeds: int) -> bool:
    """Whether two rates differ by less than the limit. Newcombe's interval has 95 %: that of 90 % errs in up to 8 %."""
    apart = difference_of_shares((ours / seeds, seeds), (published / published_seeds, published_seeds)).at(LEVEL)
    return apart.low > -SHARE and apart.high < SHARE


def _count(slot: Slot, ours: Array, published: float, seeds: int, level: float, unit: float = 1.0) -> TestedNumber:
    """Test a count of seeds, or with ``unit`` a rate; ``ours`` is 1 where it holds, shape [seeds]."""
    own, of, known = int(ours.sum()), len(ours), round(published / unit)
    low, high = statistics.count_interval(own, of, seeds, level)
    share = (own + known) / (of + seeds)
    enough = seeds_that_tell(math.sqrt(share * (1 - share)), abs(own / of - known / seeds), SHARE, seeds)
    near = shares_are_near(own, of, known, seeds)
    return TestedNumber(slot.name, slot.spec, published, low * unit, high * unit, low <= known <= high, near, enough)


def _within(slot: Slot, published: float, low: float, high: float) -> bool:
    """Whether the interval holds a number that is printed as ``published``, up to the rounding of sums."""
    slack = half_unit(published, slot.spec) + 1e-9 * abs(published)
    return low - slack <= published <= high + slack


def _average(
    slot: Slot, quantity: str, ours: Array, published: float, sd: float, seeds: int, level: float
) -> list[TestedNumber]:
    """Test a mean, or a median, whose ``sd`` counts for the power alone; return nothing if there are too few runs."""
    median, unit = slot.statistic == "median", quantity.rsplit(".", 1)[-1]

    def interval(sd: float, level: float) -> tuple[float, float]:
        if median:
            return statistics.median_interval(ours, seeds, level) or (-math.inf, math.inf)
        return statistics.mean_interval(ours, sd, seeds, level)

    low, high = interval(sd, level)
    if low == -math.inf:
        return []
    own, spreads = float(statistics.statistic(slot.statistic, ours)), np.array([ours.std(), sd])
    if unit.endswith("mse"):
        (most, wide), (least, narrow) = ((published * by, sd * by) for by in (FACTOR, 1 / FACTOR))
        limit, apart = math.log(FACTOR), abs(math.log(own / published))
        spreads = np.log(ours).std() * np.ones(2) if median else spreads / (own, published)
    else:
        limit, apart, wide, narrow = LIMITS[unit], abs(own - published), sd, sd
        most, least = published + limit, published - limit
    # the test above, of the published runs as they would be at either limit
    near = interval(wide, 2 * LEVEL)[1] < most and least < interval(narrow, 2 * LEVEL)[0]
    spread = math.sqrt(np.average(spreads**2, weights=(len(ours), seeds)) * (math.pi / 2 if median else 1))
    enough = seeds_that_tell(spread, apart, limit, seeds)
    return [TestedNumber(slot.name, slot.spec, published, low, high, _within(slot, published, low, high), near, enough)]


def _tested(slots: Sequence[Slot]) -> list[Slot]:
    """Return the slots with their own test. Deviations and ranges have none; one outcome stands for all three."""
    own = [slot for slot in slots if slot.statistic in ("mean", "median", "rate", "value")]
    return own + [slot for slot in slots if slot.statistic in ("aggregate", *_OUTCOMES)][:1]


def _first(entry: Number | Sequence[Number]) -> float | None:
    """Return the single number of a slot; None for several gates."""
    if isinstance(entry, Sequence):
        return float(entry[0]) if len(entry) == 1 else None
    return float(entry)


def published_numbers(form: Format, value: Value) -> dict[str, Number | Sequence[Number]]:
    """Return a published value with each deviation at the upper end of its rounding."""
    numbers = dict(value)
    for slot in form.slots:
        sd = _first(value[slot.name]) if slot.statistic == "sd" else None
        if sd is not None:
            numbers[slot.name] = sd + half_unit(sd, slot.spec)
    return numbers


def _parts_of(slot: Slot, quantity: str, cell: RunSample, known: Value, seeds: int, level: float) -> list[TestedNumber]:
    """Test one slot; return an empty list if it cannot be tested, as with several gates."""
    gates = cell.numbers.get(quantity)
    if gates is None or len(gates) != 1:
        return []
    ours = gates[0]
    if slot.statistic in ("aggregate", *_OUTCOMES):  # the three counts of pruning back together
        counts = {name: int(_first(known[name]) or 0) for name in _OUTCOMES if name in known}
        own = {name: ours == _OUTCOMES[name] for name in counts}
        seen = [int(each.sum()) for each in own.values()]
        inside = not seen or statistics.exact_test(seen, [*counts.values()]) > level
        parts = (_count(Slot(name, "d"), own[name], number, seeds, level) for name, number in counts.items())
        return [replace(part, inside=inside) for part in parts]
    published = _first(known[slot.name])
    if published is None or (slot.statistic == "value") != (seeds == 1):
        return []
    if seeds == 1:  # a single run is placed among ours; one of ours has no range
        low, high, decisive = statistics.rank_interval(ours, level)
        inside = _within(slot, published, low, high)
        enough = math.inf if inside else 2 / level - 1
        part = TestedNumber(slot.name, slot.spec, published, low, high, inside, enough=enough, decisive=decisive)
        return [part] if len(ours) > 1 else []
    if slot.statistic == "rate":
        return [_count(slot, ours, published, seeds, level, 100 / seeds)]
    sd = _first(known.get(f"{slot.name.removesuffix('mean')}sd", ()))
    if slot.statistic != "median" and (sd is None or min(len(ours), seeds) < LEAST_SEEDS):
        return []
    return _average(slot, quantity, ours, published, float(ours.std()) if sd is None else sd, seeds, level)


def judge_cell(
    cell: RunSample,
    published: tuple[Format, Value] | None,
    quantity: str,
    seeds: int,
    others: Value | None = None,
    calibrated: bool = False,
) -> Verdict:
    """Judge a cell.

    Args:
        cell: the available runs of ours, all that there are of its configuration.
        published: the format and value of :func:`experiments.analysis.published.value_of`.
        quantity: what the column measures.
        seeds: number of seeds behind the published value; 1 is a single run.
        others: other published numbers of the same runs and column, from :func:`published_numbers`.
        calibrated: whether this value was used to choose settings of the runs.
    """
    if published is None:
        return Verdict(NOT_PUBLISHED, (), cell.n)
    diverged = sum(problem.kind == "diverged" for problem in cell.problems)
    if cell.n + diverged == 0:
        return Verdict(NOT_RUN)
    form, value = published
    if all(slot.quantity(quantity).startswith("config.") for slot in form.slots):
        return Verdict(SETTING, (), cell.n)
    if diverged:
        # all published seeds converged, so our converged seeds alone are not a fair sample
        word = DISAGREES if statistics.exact_test((cell.n, diverged), (seeds, 0)) <= LEVEL else CANNOT_TELL
        return Verdict(word, (), cell.n, calibrated, True)
    known = {**(others or {}), **published_numbers(form, value)}
    tested = _tested(form.slots)
    found = [_parts_of(slot, slot.quantity(quantity), cell, known, seeds, LEVEL / len(tested)) for slot in tested]
    parts = [part for some in found for part in some]
    # a number without a test leaves the cell open
    word = overall([part.word for part in parts] + [CANNOT_TELL for some in found if not some])
    return Verdict(word, tuple(parts), cell.n, calibrated, any(part.decisive for part in parts))
