"""The sweep of the capacity price (figure 2): retained count and error along it, and the plateaus of the count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from experiments.analysis.collect import Reader
from experiments.analysis.reduce import sample
from experiments.tables.one_d import BASELINE

SWEEP_SEED = 0
PRICES = tuple(float(f"{10 ** (-6 + 4 * n / 499):.6g}") for n in range(500))
"""Log-spaced from 1e-6 to 1e-2, six digits each, so that a record's name does not hang on a last bit."""
SWEEP = tuple(
    BASELINE.with_seeds([SWEEP_SEED]).with_overrides({"schedule.lambda0": price, "schedule.alpha_max": price})
    for price in PRICES
)
"""One run per price; the snapping strength follows it, alpha_max = lambda0."""
LEAST = 5
"""Prices that agree before one speaks of a plateau: five in a row span a factor of 1.08."""


@dataclass(frozen=True)
class Price:
    """What the run at one price, lambda0, retained.

    ``place``: its index among the prices of the sweep.
    """

    place: int
    price: float
    count: int
    run: str


@dataclass(frozen=True)
class Plateau:
    """Neighbouring prices at which the same count is retained.

    Attributes:
        low, high: the least and the largest of these prices.
        runs: their run ids, in the order of the prices.
    """

    count: int
    low: float
    high: float
    runs: tuple[str, ...]

    @property
    def width(self) -> float:
        """high / low: by which factor of the price the count stays the same."""
        return self.high / self.low

    @property
    def prices(self) -> int:
        """How many prices it has."""
        return len(self.runs)


def staircase(reader: Reader) -> Iterator[Price]:
    """Every price of the sweep that has a usable record, ascending."""
    for place, (price, selection) in enumerate(zip(PRICES, SWEEP, strict=True)):
        numbers, used, _ = sample(reader.collect(selection), ["grown.count"], frozenset(["grown.count"]))
        if used:
            yield Price(place, price, int(numbers["grown.count"][0, 0]), used[0])


def plateaus(found: Iterable[Price], least: int = LEAST) -> tuple[Plateau, ...]:
    """Stretches of at least ``least`` neighbouring prices with one retained count, in the order given.

    A single price that differs or has no record ends a stretch: nothing is smoothed, nothing filled in.
    """
    stretches = []
    for (count, _), members in groupby(enumerate(found), key=lambda at: (at[1].count, at[1].place - at[0])):
        own = [one for _, one in members]
        if len(own) >= least:
            stretches.append(Plateau(count, own[0].price, own[-1].price, tuple(one.run for one in own)))
    return tuple(stretches)
