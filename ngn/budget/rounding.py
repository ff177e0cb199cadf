"""Counts within a limit: round continuous sizes to integers so that their cost fits, or take components by scores."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ngn.budget.cost import Cost

USED = 0.9
"""Fraction of a limit that counts should use at least."""
TRIED = 4
"""Number of counts, those farthest from their sizes, that are tried elsewhere at a time."""
FEW, HELD = 3, 64
"""Of these first counts of an axis the next higher one is tried, too; largest number of counts that are held."""
REMOVALS = 512
"""Largest number of removals by scores, where each takes a slope of the cost."""
Allowed = Sequence[Sequence[int]]
"""The counts that each size may have, ascending."""
NestedCounts = tuple[int, ...]
Counted = Callable[[tuple[int, ...]], float]


def largest(
    sizes: Sequence[float], allowed: Sequence[Sequence[int]], estimate: Counted, measured: Counted, limit: float
) -> tuple[int, ...]:
    """Find counts in proportion to positive ``sizes`` whose cost is at most ``limit``, so that nothing more fits.

    1. Start from the nearest counts.
    2. While the cost is above the limit, lower the count that is largest relative to its size; of equal ones, the last.
    3. Raise the count that is smallest relative to its size after the step, the first of equal ones, while it fits.

    So all sizes give way by the same factor, and equal sizes differ by one component at most. One step of a coarse
    axis, such as the depth or the heads of a layer, can save far more than needed: 1.6 heads become 1 or 2. So the
    search is repeated with such counts held at the nearest, low ones at the next higher one, too, first one, then more,
    while that takes the counts no farther from ``sizes``, by the sum of their squared log ratios. Counts that leave a
    tenth of the limit unused win only if all do. The cost of counts is ``measured`` exactly and slowly.
    """
    nearest = [min(range(len(a)), key=lambda i: (abs(a[i] - s), a[i])) for s, a in zip(sizes, allowed, strict=True)]
    few = [next((i for i, n in enumerate(a[:FEW]) if n >= sizes[g]), nearest[g]) for g, a in enumerate(allowed)]

    def search(fits: Callable[[tuple[int, ...]], bool], held: Mapping[int, int]) -> tuple[int, ...] | None:
        at = [held.get(g, i) for g, i in enumerate(nearest)]

        def counts() -> tuple[int, ...]:
            return tuple(a[i] for i, a in zip(at, allowed, strict=True))

        while not fits(counts()):
            able = [g for g, i in enumerate(at) if i > 0 and g not in held]
            if not able:
                return None if held else counts()
            at[max(able, key=lambda g: (allowed[g][at[g]] / sizes[g], g))] -= 1
        rising = set(range(len(at)))
        while rising := {g for g in rising if at[g] + 1 < len(allowed[g])}:
            at[g := min(rising, key=lambda g: (allowed[g][at[g] + 1] / sizes[g], g))] += 1
            if not fits(counts()):
                at[g] -= 1
                rising.remove(g)
        return counts()

    def roughly(counts: tuple[int, ...]) -> bool:
        return estimate(counts) <= limit

    def ratio(count: int, g: int) -> float:
        return math.log(max(count, 0.5) / sizes[g]) ** 2

    def distance(counts: tuple[int, ...]) -> tuple[bool, float]:
        return estimate(counts) < USED * limit, math.fsum(map(ratio, counts, range(len(counts))))

    held: dict[int, int] = {}
    best = search(roughly, held)
    while best is not None and len(held) < HELD:
        free = [(ratio(n, g), g) for g, n in enumerate(best) if g not in held]
        tried = [{**held, g: i} for _, g in heapq.nlargest(TRIED, free) for i in sorted({nearest[g], few[g]})]
        found = {counts: hold for hold in tried if (counts := search(roughly, hold)) is not None}
        if not found or distance(nearer := min(found, key=distance)) > distance(best):
            break
        best, held = nearer, found[nearer]
    # Held counts may cost more than was estimated, and then nothing fits with them.
    exactly = (search(lambda counts: roughly(counts) and measured(counts) <= limit, hold) for hold in (held, {}))
    return next(filter(None, exactly))


def thinned(allowed: Allowed, total: int) -> list[list[int]]:
    """Leave out counts between, so that there are at most ``total`` steps, or one for each size.

    >>> thinned([range(1, 10), [1, 2]], 5)
    [[1, 3, 5, 7, 9], [1, 2]]
    """
    steps = [len(counts) - 1 for counts in allowed]
    fitting = bisect_right(range(1, max(steps) + 1), total, key=lambda most: sum(min(most, s) for s in steps))
    most = max(1, fitting)
    return [
        [counts[round(i * s / min(s, most))] for i in range(min(s, most) + 1)] if s else [*counts]
        for counts, s in zip(allowed, steps, strict=True)
    ]


def order_by_scores(allowed: Allowed, scores: Sequence[Tensor], cost: Cost) -> list[int]:
    """The sizes in the order in which the least score per cost goes; ``scores``: those of all components, [K] each."""
    sums = [torch.cat([s.new_zeros(1), s.cumsum(0)]).tolist() for s in scores]
    at = [len(counts) - 1 for counts in allowed]
    order: list[int] = []
    while able := [g for g, i in enumerate(at) if i]:
        now = [counts[i] for counts, i in zip(allowed, at, strict=True)]
        slopes = cost(torch.tensor(now, dtype=torch.float64))[1].clamp(min=1e-9 * cost.full).tolist()

        def worth(g: int, now: Sequence[int] = now, slopes: Sequence[float] = slopes) -> float:
            left = allowed[g][at[g] - 1]
            return (sums[g][now[g]] - sums[g][left]) / (slopes[g] * (now[g] - left))

        order.append(least := min(able, key=worth))
        at[least] -= 1
    return order


def points(
    order: Sequence[int], allowed: Allowed, cost: Cost, limits: Sequence[float]
) -> tuple[list[NestedCounts], list[float]]:
    """The largest counts on the way whose cost is within each of ``limits``, else the smallest, and their costs.

    The formula gives milliseconds, as of many measurements a lucky one would win. It gives all costs if it agrees with
    those that are counted in three places.
    """
    at = [len(counts) - 1 for counts in allowed]
    way = [tuple(counts[-1] for counts in allowed)]
    for g in order:
        at[g] -= 1
        way.append(tuple(counts[i] for counts, i in zip(allowed, at, strict=True)))
    tried = (way[0], way[len(way) // 2], way[-1])
    exact = cost.kind == "milliseconds" or all(cost.estimate(counts) == cost.measured(counts) for counts in tried)
    cost_of = cost.estimate if exact else cost.measured
    found = []
    for limit in limits:
        first = bisect_left(way, -limit, key=lambda counts: -cost.estimate(counts))
        found.append(next((counts for counts in way[first:] if cost_of(counts) <= limit), way[-1]))
    return found, [cost_of(counts) for counts in found]
