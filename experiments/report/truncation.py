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
from experiments.analysis.formats import parse_format
from experiments.analysis.reduce import sample
from experiments.analysis.statistics import Array, statistic

SAME = 0.01
"""Relative difference of two ratios below which they are called the same."""


class ErrorRatio(NamedTuple):
    """Truncated over soft error of our runs: the ratio of the published statistic, and the range over seeds."""

    value: float
    low: float
    high: float

    def allows(self, published: float) -> bool:
        """Return whether a published ratio lies in the range over seeds."""
        return self.low * (1 - SAME) <= published <= self.high * (1 + SAME)

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


class TwoWays(NamedTuple):
    """A row with the published ratio of truncated to soft error, and ours both ways."""

    item: Comparison
    published: float
    equation: ErrorRatio
    kept: ErrorRatio

    @property
    def nearer(self) -> str:
        """The way that is nearer to the published ratio, on a logarithmic scale: equation, gates kept, or same."""
        if math.isclose(self.equation.value, self.kept.value, rel_tol=SAME):
            return "same"
        apart = [abs(math.log(ratio.value / self.published)) for ratio in (self.equation, self.kept)]
        return "equation" if apart[0] <= apart[1] else "gates kept"


def _ratio(name: str, truncated: Array, soft: Array) -> ErrorRatio:
    each = truncated / soft
    # of single runs there is one published ratio, so ours is that of the median seed
    value = np.median(each) if name == "value" else statistic(name, truncated) / statistic(name, soft)
    return ErrorRatio(float(value), float(each.min()), float(each.max()))


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
        quantity, soft_quantity = (one.table.quantity(one.row, one.column.key) for one in (item, other))
        if not (".truncated." in quantity and quantity.endswith("mse") and ".soft." in soft_quantity):
            continue
        runs = item.row.runs.with_seeds(range(MOST_SEEDS)) if item.row.seeds == 1 else item.row.runs
        names = [soft_quantity, quantity, quantity.replace(".truncated.", ".gates_kept.")]
        found_runs = sample(reader.collect(runs), names)
        slot = parse_format(item.table.formats(item.row, item.column.key)[0]).slots[0].name
        published, soft_published = (one.published and one.published[1].get(slot) for one in (item, other))
        if not found_runs.n or not isinstance(published, float | int) or not isinstance(soft_published, float | int):
            continue
        soft, equation, kept = map(found_runs.of, names)
        ratios = (_ratio(slot, truncated, soft) for truncated in (equation, kept))
        ratio = published / soft_published
        # table 7 is printed twice
        found.setdefault((item.fact, ratio), TwoWays(item, ratio, *ratios))
    return tuple(found.values())


def evidence(ways: Sequence[TwoWays]) -> str:
    """Say what the ratios show."""
    apart = [way for way in ways if way.nearer != "same"]
    kept = sum(way.nearer == "gates kept" for way in apart)
    allowed = [(way.equation.allows(way.published), way.kept.allows(way.published)) for way in ways]
    return (
        f"In {len(apart)} of {len(ways)} rows the two ways differ by more than a hundredth. There the published ratio "
        f"is nearer to the one with gates kept in {kept}, to the equation's in {len(apart) - kept}. In "
        f"{allowed.count((False, True))} rows the published ratio lies outside the range of our seeds by the equation, "
        f"and inside with gates kept; in {allowed.count((True, False))} it is the other way round; and in "
        f"{allowed.count((False, False))} it lies outside both, so something else differs there."
    )
