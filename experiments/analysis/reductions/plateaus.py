"""Reduce the sweep of the capacity price (figure 2) to counts, errors and plateaus of the count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from experiments.analysis.collect import Reader
from experiments.analysis.reduce import sample
from experiments.tables.one_d import BASELINE

SWEEP_SEED = 0
PRICES = tuple(float(f"{10 ** (-6 + 4 * n / 499):.6g}") for n in range(500))
"""Log-spaced from 1e-6 to 1e-2, rounded to six digits, so that run ids do not depend on the last bit."""
SWEEP = tuple(
    BASELINE.with_seeds([SWEEP_SEED]).with_overrides({"schedule.lambda0": price, "schedule.alpha_max": price})
    for price in PRICES
)
"""One run per price, with the snapping strength alpha_max = lambda0."""
LEAST = 5
"""Least number of prices in a plateau: five in a row span a factor of 1.08."""


@dataclass(frozen=True)
class Price:
    """The run at one price lambda0 and its retained count.

    ``place`` is the index of the price in the sweep.
    """

    place: int
    price: float
    count: int
    run: str


@dataclass(frozen=True)
class Plateau:
    """Neighbouring prices with the same retained count.

    Attributes:
        low, high: the lowest and the highest of these prices.
        runs: their run ids, in the order of the prices.
    """

    count: int
    low: float
    high: float
    runs: tuple[str, ...]

    @property
    def width(self) -> float:
        """high / low, the factor of the price over which the count stays the same."""
        return self.high / self.low

    @property
    def prices(self) -> int:
        """The number of its prices."""
        return len(self.runs)


def staircase(reader: Reader) -> Iterator[Price]:
    """Yield every price of the sweep that has a usable record, ascending."""
    for place, (price, selection) in enumerate(zip(PRICES, SWEEP, strict=True)):
        numbers, used, _ = sample(reader.collect(selection), ["grown.count"], frozenset(["grown.count"]))
        if used:
            yield Price(place, price, int(numbers["grown.count"][0, 0]), used[0])


def plateaus(found: Iterable[Price], least: int = LEAST) -> tuple[Plateau, ...]:
    """Find stretches of at least ``least`` neighbouring prices with one retained count, in the given order.

    A single price with another count or without a record ends a stretch. Nothing is smoothed or filled in.
    """
    stretches = []
    for (count, _), members in groupby(enumerate(found), key=lambda at: (at[1].count, at[1].place - at[0])):
        own = [one for _, one in members]
        if len(own) >= least:
            stretches.append(Plateau(count, own[0].price, own[-1].price, tuple(one.run for one in own)))
    return tuple(stretches)
