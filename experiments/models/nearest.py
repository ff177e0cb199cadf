"""Counts within a limit that are nearest to continuous sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

USED = 0.9
"""Fraction of a limit that counts should use at least."""


def largest(
    sizes: Sequence[float],
    allowed: Sequence[Sequence[int]],
    estimate: Callable[[tuple[int, ...]], float],
    measured: Callable[[tuple[int, ...]], float],
    limit: float,
    fill: bool = False,
) -> tuple[int, ...]:
    """Find counts near ``sizes`` whose cost is at most ``limit``.

    The search has three steps:

    1. Start from the nearest counts.
    2. While the cost is above the limit, lower one count: the one that saves most for the distance it moves.
    3. Raise counts that are below their sizes, the nearest first, as long as they fit.

    One step of a coarse axis, such as the depth, can save far more than needed and leave much of the limit unused. If
    a tenth is unused, the search is repeated with each lowered count held in place, one at a time. The counts that use
    most of the limit win.

    Args:
        allowed: ascending counts of each axis.
        estimate, measured: cost of counts; ``measured`` is exact and slow.
        fill: also raise counts that are above their sizes, until no more fits.

    >>> total = lambda counts: sum(counts)
    >>> largest([2.6, 1.4], [range(1, 9)] * 2, total, total, 3)
    (2, 1)
    >>> largest([2.4, 1.4], [range(1, 9)] * 2, total, total, 4)
    (3, 1)
    >>> largest([2.4, 1.4], [range(1, 9)] * 2, total, total, 5, fill=True)
    (3, 2)
    >>> depth_times_width = lambda counts: counts[0] * counts[1]
    >>> largest([2.0, 6.4], [range(1, 3), range(1, 7)], depth_times_width, depth_times_width, 11)
    (2, 5)
    """

    def near(stays: int | None = None) -> tuple[int, ...] | None:
        return _largest(sizes, allowed, estimate, measured, limit, fill, stays)

    counts = near()
    assert counts is not None
    if estimate(counts) < USED * limit:
        nearest = [min(a, key=lambda n: (abs(n - s), n)) for s, a in zip(sizes, allowed, strict=True)]
        gave_way = [g for g, (now, n) in enumerate(zip(counts, nearest, strict=True)) if now < n]
        counts = max((counts, *filter(None, map(near, gave_way))), key=estimate)
    return counts


def _largest(
    sizes: Sequence[float],
    allowed: Sequence[Sequence[int]],
    estimate: Callable[[tuple[int, ...]], float],
    measured: Callable[[tuple[int, ...]], float],
    limit: float,
    fill: bool,
    stays: int | None,
) -> tuple[int, ...] | None:
    """One search of :func:`largest`, in which axis ``stays`` is not lowered; None if nothing fits then."""
    at = [min(range(len(a)), key=lambda i: (abs(a[i] - s), a[i])) for s, a in zip(sizes, allowed, strict=True)]

    def counts(lower: int | None = None) -> tuple[int, ...]:
        return tuple(a[i - (g == lower)] for g, (i, a) in enumerate(zip(at, allowed, strict=True)))

    def fits() -> bool:
        return measured(counts()) <= limit

    def saved(g: int) -> float:
        now, fewer = counts()[g], counts(g)[g]
        moved = abs(fewer - sizes[g]) - abs(now - sizes[g])
        return (estimate(counts()) - estimate(counts(g))) / (now - fewer + moved + 1e-9)

    while not (estimate(counts()) <= limit and fits()):
        able = [g for g, i in enumerate(at) if i > 0 and g != stays]
        if not able:
            break
        at[max(able, key=saved)] -= 1
    if stays is not None and not fits():
        return None
    rising = set(range(len(at)))
    while rising:
        left = {g: allowed[g][at[g] + 1] - sizes[g] for g in rising if at[g] + 1 < len(allowed[g])}
        rising = {g for g in left if fill or counts()[g] < sizes[g]}
        if rising:
            at[g := min(sorted(rising), key=left.__getitem__)] += 1
            if not fits():
                at[g] -= 1
                rising.remove(g)
    return counts()
