"""Judge whether the published runs and ours look like two samples of one distribution.

The tests are in :mod:`experiments.analysis.statistics`. docs/verdicts.md says which test judges which number, and
why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.analysis import statistics
from experiments.analysis.reduce import Cell, RunSample
from experiments.analysis.statistics import NO, PARTIAL, YES, Array
from experiments.analysis.tables import Format, Number, Slot, Value, half_unit

LEVEL = 0.05

AGREES, DISAGREES, CANNOT_TELL = "agrees", "disagrees", "cannot tell"
SETTING, NOT_RUN, NOT_PUBLISHED = "setting", "not run", "not published"

LEAST_SEEDS = 3
"""Least number of runs on either side that a mean is tested with."""

WIDEST: Mapping[str, float] = {"t": 1.0, "count": 1.0, "depth": 1.0, "accuracy": 0.5, "r": 0.05}
"""Last part of a quantity → greatest half-width of an informative interval, in the unit of the quantity."""
WIDEST_FACTOR = 3.0
"""The same for errors (names that end with ``mse``): half-width of the interval's logarithm, as a factor."""
WIDEST_SHARE = 0.3
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
        narrow: whether the interval is within the limits above, and holds the printed number itself.
    """

    name: str
    spec: str
    published: float
    low: float
    high: float
    inside: bool
    narrow: bool

    @property
    def word(self) -> str:
        """The verdict on this number alone."""
        if not self.inside:
            return DISAGREES
        return AGREES if self.narrow else CANNOT_TELL


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
    published_seeds: int = 0
    calibrated: bool = False
    decisive: bool = False

    @property
    def text(self) -> str:
        """The word, with a mark if the cell was judged and is calibrated."""
        judged = self.word in (AGREES, DISAGREES, CANNOT_TELL)
        return f"{self.word} (calibrated)" if self.calibrated and judged else self.word


def _narrow(quantity: str, low: float, high: float) -> bool:
    unit = quantity.rsplit(".", 1)[-1]
    if unit.endswith("mse"):
        return low > 0 and math.log(high / low) <= 2 * math.log(WIDEST_FACTOR)
    return (high - low) / 2 <= WIDEST[unit]


def _part(slot: Slot, published: float, ours: float, interval: tuple[float, float], narrow: bool) -> TestedNumber:
    low, high = interval
    # one part in 1e9 covers the rounding of floating-point sums
    tiny = 1e-9 * abs(published)
    slack = half_unit(published, slot.spec) + tiny
    inside = low - slack <= published <= high + slack
    # rounding may keep a test from rejecting, but alone it is no agreement, unless both are printed alike
    held = low - tiny <= published <= high + tiny or abs(ours - published) <= slack
    return TestedNumber(slot.name, slot.spec, published, low, high, inside, narrow and held)


def _outcomes(ours: Array, known: Mapping[str, int], seeds: int, level: float) -> list[TestedNumber]:
    """Test the three counts of pruning back together."""
    counts = {name: int((ours == code).sum()) for name, code in _OUTCOMES.items()}
    published = [known[name] for name in counts]
    inside = statistics.exact_test(list(counts.values()), published) > level
    parts = []
    for name, count in counts.items():
        low, high = statistics.count_interval(count, len(ours), seeds, level)
        parts.append(TestedNumber(name, "d", known[name], low, high, inside, (high - low) / 2 <= WIDEST_SHARE * seeds))
    return parts


def _tested(slots: Sequence[Slot]) -> list[Slot]:
    """Return the slots with their own test. Deviations and ranges have none; one outcome stands for all three."""
    own = [slot for slot in slots if slot.statistic in ("mean", "median", "rate", "value")]
    return own + [slot for slot in slots if slot.statistic in ("aggregate", *_OUTCOMES)][:1]


def _first(entry: Number | Sequence[Number]) -> float | None:
    """Return the single number of a slot; None for several gates."""
    if isinstance(entry, Sequence):
        return float(entry[0]) if len(entry) == 1 else None
    return float(entry)


def _one_gate(ours: RunSample, quantity: str) -> Array | None:
    """Return the numbers of a quantity, shape [seeds]; None if the runs have several gates."""
    gates = ours.numbers.get(quantity)
    return gates[0] if gates is not None and len(gates) == 1 else None


def published_numbers(form: Format, value: Value) -> dict[str, Number | Sequence[Number]]:
    """Return a published value with each deviation at the upper end of its rounding."""
    numbers = dict(value)
    for slot in form.slots:
        sd = _first(value[slot.name]) if slot.statistic == "sd" else None
        if sd is not None:
            numbers[slot.name] = sd + half_unit(sd, slot.spec)
    return numbers


def _parts_of(slot: Slot, quantity: str, ours: Array, known: Value, seeds: int, level: float) -> list[TestedNumber]:
    """Test one slot with ``ours``, shape [seeds]; return an empty list if it cannot be tested."""
    if slot.statistic in ("aggregate", *_OUTCOMES):
        counts = {name: int(_first(known[name]) or 0) for name in _OUTCOMES if name in known}
        return _outcomes(ours, counts, seeds, level) if counts else []
    published = _first(known[slot.name])
    if published is None:
        return []
    if slot.statistic == "rate":
        least, most = statistics.count_interval(round(float(ours.sum())), len(ours), seeds, level)
        narrow = (most - least) / 2 <= WIDEST_SHARE * seeds
        rates = 100 * least / seeds, 100 * most / seeds
        return [_part(slot, published, 100 * float(ours.mean()), rates, narrow)]
    interval: tuple[float, float] | None = None
    if slot.statistic == "median":
        interval = statistics.median_interval(ours, seeds, level)
    else:
        sd = _first(known.get(f"{slot.name.removesuffix('mean')}sd", ()))
        if sd is not None and len(ours) >= LEAST_SEEDS and seeds >= LEAST_SEEDS:
            interval = statistics.mean_interval(ours, sd, seeds, level)
    if interval is None:
        return []
    own = float(np.median(ours) if slot.statistic == "median" else ours.mean())
    return [_part(slot, published, own, interval, _narrow(quantity, *interval))]


def _placed(form: Format, value: Value, quantity: str, seeds: RunSample) -> tuple[list[TestedNumber], bool]:
    """Place a single published run among our seeds; return parts, and whether it could reject.

    Values with several gates are not placed.
    """
    parts, decisive = [], False
    for slot in _tested(form.slots):
        published, ours = _first(value[slot.name]), _one_gate(seeds, slot.quantity(quantity))
        # one run has no range
        if slot.statistic == "value" and published is not None and ours is not None and len(ours) > 1:
            low, high, decisive = statistics.rank_interval(ours, LEVEL / len(form.slots))
            parts.append(_part(slot, published, published, (low, high), False))
    return parts, decisive


def judge_cell(
    cell: Cell,
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
        return Verdict(NOT_PUBLISHED, (), cell.n, seeds)
    diverged = sum(problem.kind == "diverged" for problem in cell.problems)
    if cell.n + diverged == 0:
        return Verdict(NOT_RUN, (), 0, seeds)
    form, value = published
    if all(slot.quantity(quantity).startswith("config.") for slot in form.slots):
        return Verdict(SETTING, (), cell.n, seeds)
    if diverged:
        # all published seeds converged, so our converged seeds alone are not a fair sample
        word = DISAGREES if statistics.exact_test((cell.n, diverged), (seeds, 0)) <= LEVEL else CANNOT_TELL
        return Verdict(word, (), cell.n, seeds, calibrated, decisive=True)
    if seeds == 1:
        parts, decisive = _placed(form, value, quantity, cell)
        word = DISAGREES if decisive and not all(part.inside for part in parts) else CANNOT_TELL
        return Verdict(word, tuple(parts), cell.n, seeds, calibrated, decisive)
    known = {**(others or {}), **published_numbers(form, value)}
    tested = _tested(form.slots)
    found: list[list[TestedNumber]] = []
    for slot in tested:
        of_slot = slot.quantity(quantity)
        ours = _one_gate(cell, of_slot)
        found.append([] if ours is None else _parts_of(slot, of_slot, ours, known, seeds, LEVEL / len(tested)))
    parts = [part for some in found for part in some]
    # a number without a test leaves the cell open
    word = overall([part.word for part in parts] + [CANNOT_TELL for some in found if not some])
    return Verdict(word, tuple(parts), cell.n, seeds, calibrated, decisive=bool(parts))
