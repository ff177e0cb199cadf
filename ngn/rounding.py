"""Counts within a limit: round continuous sizes to integers so that their cost fits."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

USED = 0.9
"""Fraction of a limit that counts should use at least."""
HELD = 4
"""Largest number of lowered counts that are tried unlowered, one at a time."""
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
    axis, such as the depth or the heads of a layer, can save far more than needed. So the search is repeated with each
    of the counts that gave way most held in place, one at a time. The counts nearest to ``sizes`` win, by the sum of
    their squared log ratios; counts that leave a tenth of the limit unused only if all do.

    Args:
        sizes: positive sizes, one per axis.
        allowed: ascending counts of each axis.
        estimate, measured: cost of counts; ``measured`` is exact and slow.

    >>> total = lambda counts: sum(counts)
    >>> largest([8.0] * 4, [range(1, 17)] * 4, total, total, 16)
    (4, 4, 4, 4)
    >>> largest([2.6, 1.4], [range(1, 9)] * 2, total, total, 6)
    (4, 2)
    >>> depth_times_width = lambda counts: counts[0] * counts[1]
    >>> largest([2.0, 6.4], [range(1, 3), range(1, 7)], depth_times_width, depth_times_width, 11)
    (2, 5)
    >>> largest([1.8, 16.0], [range(1, 5), range(1, 33)], lambda n: 10 * n[0] + n[1], lambda n: 10 * n[0] + n[1], 34)
    (2, 14)
    """
    counts = _search(sizes, allowed, estimate, measured, limit, None)
    assert counts is not None
    nearest = [min(a, key=lambda n: (abs(n - s), n)) for s, a in zip(sizes, allowed, strict=True)]
    gave_way = [g for g, (now, n) in enumerate(zip(counts, nearest, strict=True)) if now < n]
    held = heapq.nsmallest(HELD, gave_way, key=lambda g: counts[g] / sizes[g])
    others = (_search(sizes, allowed, estimate, measured, limit, g) for g in held)

    def distance(found: tuple[int, ...]) -> tuple[bool, float]:
        ratios = (max(n, 0.5) / s for n, s in zip(found, sizes, strict=True))
        return estimate(found) < USED * limit, sum(math.log(ratio) ** 2 for ratio in ratios)

    return min((counts, *filter(None, others)), key=distance)


def _search(
    sizes: Sequence[float],
    allowed: Sequence[Sequence[int]],
    estimate: Counted,
    measured: Counted,
    limit: float,
    stays: int | None,
) -> tuple[int, ...] | None:
    """One search of :func:`largest`, in which axis ``stays`` is not lowered; None if nothing fits then."""
    at = [min(range(len(a)), key=lambda i: (abs(a[i] - s), a[i])) for s, a in zip(sizes, allowed, strict=True)]

    def counts() -> tuple[int, ...]:
        return tuple(a[i] for i, a in zip(at, allowed, strict=True))

    def fits() -> bool:
        return estimate(counts()) <= limit and measured(counts()) <= limit

    while not fits():
        able = [g for g, i in enumerate(at) if i > 0 and g != stays]
        if not able:
            break
        at[max(able, key=lambda g: (allowed[g][at[g]] / sizes[g], g))] -= 1
    if stays is not None and not fits():
        return None
    rising = set(range(len(at)))
    while rising := {g for g in rising if at[g] + 1 < len(allowed[g])}:
        at[g := min(rising, key=lambda g: (allowed[g][at[g] + 1] / sizes[g], g))] += 1
        if not fits():
            at[g] -= 1
            rising.remove(g)
    return counts()
