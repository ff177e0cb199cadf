"""Counts within a limit: round continuous sizes to integers so that their cost fits."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence

USED = 0.9
"""Fraction of a limit that counts should use at least."""
TRIED = 4
"""Number of counts, those farthest from their sizes, that are tried elsewhere at a time."""
FEW, HELD = 3, 64
"""Of these first counts of an axis the next higher one is tried, too; largest number of counts that are held."""
Counted = Callable[[tuple[int, ...]], float]


def largest(
    sizes: Sequence[float], allowed: Sequence[Sequence[int]], estimate: Counted, measured: Counted, limit: float
) -> tuple[int, ...]:
    """Find counts in proportion to ``sizes`` whose cost is at most ``limit``, so that no further component fits.

    The search has three steps:

    1. Start from the nearest counts.
    2. While the cost is above the limit, lower the count that is largest relative to its size; of equal ones, the last.
    3. Raise the count that is smallest relative to its size after the step, the first of equal ones, while it fits.

    So all sizes give way by the same factor, and equal sizes differ by one component at most. One step of a coarse
    axis, such as the depth or the heads of a layer, can save far more than needed: 1.6 heads become 1 or 2. So the
    search is repeated with such counts held at the nearest, low ones at the next higher one, too, first one, then more,
    while that takes the counts no farther from ``sizes``, by the sum of their squared log ratios. Counts that leave a
    tenth of the limit unused win only if all do.

    Args:
        sizes: positive sizes, one per axis.
        allowed: ascending counts of each axis.
        estimate, measured: cost of counts; ``measured`` is exact and slow.
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
