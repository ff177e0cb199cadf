"""Do the published runs and ours look like two samples of one distribution?

The tests are those of :mod:`experiments.analysis.significance`; docs/verdicts.md says which decides on what, and why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.analysis.formats import Format, Number, Slot, Value, half_unit
from experiments.analysis.reduce import Cell, Samples
from experiments.analysis.significance import (
    count_interval,
    exact_test,
    mean_interval,
    median_interval,
    rank_interval,
)
from experiments.analysis.statistics import NO, PARTIAL, YES, Array

LEVEL = 0.05

AGREES, DISAGREES, CANNOT_TELL = "agrees", "disagrees", "cannot tell"
SETTING, NOT_RUN, NOT_PUBLISHED = "setting", "not run", "not published"

WIDEST: Mapping[str, float] = {"t": 1.0, "count": 1.0, "depth": 1.0, "accuracy": 0.5, "r": 0.05}
"""Last part of a quantity → the greatest half-width of an interval that says something, in its unit."""
WIDEST_FACTOR = 3.0
"""The same for errors (names that end with ``mse``): half-width of the interval's logarithm, as a factor."""
WIDEST_SHARE = 0.3
"""The same for rates and outcomes."""

_OUTCOMES = {"yes": YES, "partial": PARTIAL, "no": NO}


@dataclass(frozen=True)
class Part:
    """One published number that was tested, the interval of those that are not rejected, and whether it lies inside.

    ``narrow``: the interval is no wider than the limits. ``spec``: how its numbers are printed.
    """

    name: str
    spec: str
    published: float
    low: float
    high: float
    inside: bool
    narrow: bool


@dataclass(frozen=True)
class Verdict:
    """The word, and the parts with their intervals (empty where no test was possible).

    ``decisive``: the tests could reject at all, which ranks among few seeds cannot; ``among``: how many seeds of ours a
    single published run was placed among. ``calibrated``: settings of the
    runs were chosen by this cell, or by another one of the same configuration.
    """

    word: str
    parts: tuple[Part, ...] = ()
    seeds: int = 0
    published_seeds: int = 0
    calibrated: bool = False
    decisive: bool = False
    among: int = 0

    @property
    def text(self) -> str:
        """The word, with a mark for calibrated cells that were judged."""
        judged = self.word in (AGREES, DISAGREES, CANNOT_TELL)
        return f"{self.word} (calibrated)" if self.calibrated and judged else self.word


def _narrow(quantity: str, low: float, high: float) -> bool:
    unit = quantity.rsplit(".", 1)[-1]
    if unit.endswith("mse"):
        return low > 0 and math.log(high / low) <= 2 * math.log(WIDEST_FACTOR)
    return (high - low) / 2 <= WIDEST[unit]


def _part(name: str, spec: str, published: float, interval: tuple[float, float], narrow: bool) -> Part:
    low, high = interval
    # the slack of one part in 1e9 is for sums of floats that are equal on paper
    slack = half_unit(published, spec) + 1e-9 * abs(published)
    return Part(name, spec, published, low, high, low - slack <= published <= high + slack, narrow)


def _outcomes(ours: Array, known: Mapping[str, int], seeds: int, level: float) -> list[Part]:
    """The three counts of pruning back, which one test decides together."""
    counts = {name: int((ours == code).sum()) for name, code in _OUTCOMES.items()}
    published = [known[name] for name in counts]
    inside = exact_test(list(counts.values()), published) > level
    parts = []
    for name, count in counts.items():
        low, high = count_interval(count, len(ours), seeds, level)
        parts.append(Part(name, "d", known[name], low, high, inside, (high - low) / 2 <= WIDEST_SHARE * seeds))
    return parts


def _tested(slots: Sequence[Slot]) -> list[Slot]:
    """The slots with a test of their own; deviations and ranges have none, and of the outcomes one stands for all."""
    own = [slot for slot in slots if slot.statistic in ("mean", "median", "rate", "value")]
    return own + [slot for slot in slots if slot.statistic in ("aggregate", *_OUTCOMES)][:1]


def _first(entry: Number | Sequence[Number]) -> float | None:
    """The one number of a slot; None for several gates."""
    if isinstance(entry, Sequence):
        return float(entry[0]) if len(entry) == 1 else None
    return float(entry)


def _one_gate(samples: Samples, quantity: str) -> Array | None:
    """The numbers of a quantity, shape [seeds], where the runs have one gate."""
    gates = samples.get(quantity)
    return gates[0] if gates is not None and len(gates) == 1 else None


def numbers(form: Format, value: Value) -> dict[str, Number | Sequence[Number]]:
    """A published value, with the greatest deviations that round to the printed ones."""
    found = dict(value)
    for slot in form.slots:
        sd = _first(value[slot.name]) if slot.statistic == "sd" else None
        if sd is not None:
            found[slot.name] = sd + half_unit(sd, slot.spec)
    return found


def _parts_of(slot: Slot, quantity: str, ours: Array, known: Value, seeds: int, level: float) -> list[Part]:
    """The parts of one slot, over ``ours`` of shape [seeds]; empty where it cannot be tested."""
    if slot.statistic in ("aggregate", *_OUTCOMES):
        counts = {name: int(_first(known[name]) or 0) for name in _OUTCOMES if name in known}
        return _outcomes(ours, counts, seeds, level) if counts else []
    published = _first(known[slot.name])
    if published is None:
        return []
    if slot.statistic == "rate":
        least, most = count_interval(round(float(ours.sum())), len(ours), seeds, level)
        narrow = (most - least) / 2 <= WIDEST_SHARE * seeds
        return [_part(slot.name, slot.spec, published, (100 * least / seeds, 100 * most / seeds), narrow)]
    interval: tuple[float, float] | None = None
    if slot.statistic == "median":
        interval = median_interval(ours, seeds, level)
    else:
        sd = _first(known.get(f"{slot.name.removesuffix('mean')}sd", ()))
        if sd is not None and len(ours) == seeds:
            interval = mean_interval(ours, sd, level)
    return [_part(slot.name, slot.spec, published, interval, _narrow(quantity, *interval))] if interval else []


def _placed(form: Format, value: Value, quantity: str, seeds: Samples) -> tuple[list[Part], int, bool]:
    """A single published run among all seeds of ours, how many those are, and whether its ranks could reject.

    Lists of several gates are not placed.
    """
    parts, among, decisive = [], 0, False
    for slot in _tested(form.slots):
        published, ours = _first(value[slot.name]), _one_gate(seeds, slot.quantity(quantity))
        if slot.statistic == "value" and published is not None and ours is not None:
            low, high, decisive = rank_interval(ours, LEVEL / len(form.slots))
            among = len(ours)
            parts.append(_part(slot.name, slot.spec, published, (low, high), False))
    return parts, among, decisive


def judge(
    cell: Cell,
    published: tuple[Format, Value] | None,
    quantity: str,
    seeds: int,
    others: Value | None = None,
    every_seed: Samples | None = None,
    calibrated: bool = False,
) -> Verdict:
    """The verdict on a cell.

    Args:
        cell: our runs, as many as there are.
        published: the format and value of :func:`experiments.analysis.published.value_of`.
        quantity: what the column measures.
        seeds: seeds behind the published value; 1 is a single run.
        others: what else is published of the same runs and column, as :func:`numbers` gives it.
        every_seed: quantity → numbers of all seeds that there are, shape [gates, seeds]; only for a single run.
        calibrated: whether settings of the runs were chosen by this value.
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
        # every published seed ended in a number, so those of ours that did are no fair sample
        word = DISAGREES if exact_test((cell.n, diverged), (seeds, 0)) <= LEVEL else CANNOT_TELL
        return Verdict(word, (), cell.n, seeds, calibrated, decisive=True)
    if seeds == 1:
        parts, among, decisive = _placed(form, value, quantity, every_seed or {})
        word = DISAGREES if decisive and not all(part.inside for part in parts) else CANNOT_TELL
        return Verdict(word, tuple(parts), cell.n, seeds, calibrated, decisive, among)
    known = {**(others or {}), **numbers(form, value)}
    tested = _tested(form.slots)
    found: list[list[Part]] = []
    for slot in tested:
        of_slot = slot.quantity(quantity)
        ours = _one_gate(cell.samples, of_slot)
        found.append([] if ours is None else _parts_of(slot, of_slot, ours, known, seeds, LEVEL / len(tested)))
    parts = [part for some in found for part in some]
    if not all(part.inside for part in parts):
        word = DISAGREES
    else:
        word = AGREES if parts and all(found) and all(part.narrow for part in parts) else CANNOT_TELL
    return Verdict(word, tuple(parts), cell.n, seeds, calibrated, decisive=bool(parts))
