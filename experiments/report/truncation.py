"""Compare truncation both ways: gates replaced by ones, as the equation says, and gates kept soft.

It compares ratios of truncated to soft errors, in which differences of the fit cancel.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.compare import MOST_SEEDS, Comparison
from experiments.analysis.estimates import Interval
from experiments.analysis.formats import parse_format
from experiments.analysis.reduce import sample
from experiments.analysis.statistics import Array, statistic

SAME = 0.01
"""Relative difference of two ratios below which they are called the same."""


class TwoWays(NamedTuple):
    """A row with the published ratio of truncated to soft error, and ours both ways with the range over seeds."""

    item: Comparison
    published: float
    equation: Interval
    kept: Interval

    @property
    def nearer(self) -> str:
        """The way that is nearer to the published ratio, on a logarithmic scale: equation, gates kept, or same."""
        if math.isclose(self.equation.value, self.kept.value, rel_tol=SAME):
            return "same"
        apart = [abs(math.log(ratio.value / self.published)) for ratio in (self.equation, self.kept)]
        return "equation" if apart[0] <= apart[1] else "gates kept"

    @property
    def allowed(self) -> tuple[bool, ...]:
        """Whether the published ratio lies in the range over seeds, each way."""
        return tuple(
            ratio.low * (1 - SAME) <= self.published <= ratio.high * (1 + SAME) for ratio in (self.equation, self.kept)
        )


def _ratio(name: str, truncated: Array, soft: Array) -> Interval:
    each = truncated / soft
    # of single runs there is one published ratio, so ours is that of the median seed
    value = np.median(each) if name == "value" else statistic(name, truncated) / statistic(name, soft)
    return Interval(float(value), float(each.min()), float(each.max()))


def two_ways(reader: Reader, items: Sequence[Comparison]) -> tuple[TwoWays, ...]:
    """Compare every row that prints a soft and a truncated error, once, from all its seeds.

    If the published row is one run, ours has all available seeds.
    """
    by_name = {item.name: item for item in items if not item.stand_in}
    found: dict[tuple[Hashable, float], TwoWays] = {}
    for item in by_name.values():
        other = by_name.get(f"{item.table.name}.{item.row.key}.soft")
        if item.column.key != "truncated" or item.row.runs is None or other is None:
            continue
        soft, truncated = (one.table.quantity(one.row, one.column.key) for one in (other, item))
        if not (".truncated." in truncated and truncated.endswith("mse") and ".soft." in soft):
            continue
        names = [soft, truncated, truncated.replace(".truncated.", ".gates_kept.")]
        runs = item.row.runs.with_seeds(range(MOST_SEEDS)) if item.row.seeds == 1 else item.row.runs
        ours = sample(reader.collect(runs), names)
        slot = parse_format(item.table.formats(item.row, item.column.key)[0]).slots[0].name
        published = [one.published and one.published[1].get(slot) for one in (item, other)]
        if ours.n and isinstance(published[0], float | int) and isinstance(published[1], float | int):
            ratio = published[0] / published[1]
            ways = (_ratio(slot, ours.of(name), ours.of(soft)) for name in names[1:])
            found.setdefault((item.fact, ratio), TwoWays(item, ratio, *ways))  # table 7 is printed twice
    return tuple(found.values())


def evidence(ways: Sequence[TwoWays]) -> str:
    """Say what the ratios show."""
    apart = [way for way in ways if way.nearer != "same"]
    kept = sum(way.nearer == "gates kept" for way in apart)
    allowed = [way.allowed for way in ways]
    return (
        f"In {len(apart)} of {len(ways)} rows the two ways differ by more than a hundredth. There the published ratio "
        f"is nearer to the one with gates kept in {kept}, to the equation's in {len(apart) - kept}. In "
        f"{allowed.count((False, True))} rows the published ratio lies outside the range of our seeds by the equation, "
        f"and inside with gates kept; in {allowed.count((True, False))} it is the other way round; and in "
        f"{allowed.count((False, False))} it lies outside both, so something else differs there."
    )
