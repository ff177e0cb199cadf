"""Two samples of one distribution? Each test as the interval of the published values that it does not reject.

``level`` is the probability to reject when both samples come from one distribution, at most (for Welch's test: about).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtri, stdtrit

from experiments.analysis.statistics import Array


def wilson_interval(share: float, n: int, level: float) -> tuple[float, float]:
    """Shares p of which ``share`` of n examples lies within z (p (1 - p) / n)^½, z the 1 - level/2 quantile (Wilson).

    For means of scores in [0, 1] other than 0 and 1 it is wider than it has to be: their variance is less.
    """
    z = float(ndtri(1 - level / 2))
    middle, half = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)


def mean_interval(ours: Array, sd: float, level: float) -> tuple[float, float]:
    """Welch's t-test of two samples of one size n: our mean ± t (s₁²/n + s₂²/n)^½, with t the 1 - level/2 quantile.

    Only for equal sizes: for skewed samples of unequal ones the test rejects too often (docs/verdicts.md).

    Args:
        ours: shape [n], at least two.
        sd: the published *population* deviation of as many.
    """
    n, mean = len(ours), float(ours.mean())
    first, second = float(ours.var()) / (n - 1), sd**2 / (n - 1)  # squared standard errors
    if first + second == 0:
        return mean, mean
    # Welch and Satterthwaite's degrees of freedom
    freedom = (n - 1) * (first + second) ** 2 / (first**2 + second**2)
    half = float(stdtrit(freedom, 1 - level / 2)) * math.sqrt(first + second)
    return mean - half, mean + half


def median_interval(ours: Array, published_seeds: int, level: float) -> tuple[float, float] | None:
    """Order statistics of ours between which the median of m further runs lies with probability 1 - level at least.

    Below the r-th of our n lies a median of m only if half of the m do, rounded up, which is so with probability
    P(at least half of the m stand before the r-th of the n) of a random order of n + m runs (Fligner and Wolfe, 1979).

    Returns:
        None if even our least and our greatest run are too near.
    """
    n, m, half = len(ours), published_seeds, (published_seeds + 1) // 2

    def below(r: int) -> float:
        before = half + r - 1  # the r-th of ours comes after at least half of theirs
        ways = sum(math.comb(m, i) * math.comb(n, before - i) for i in range(half, before + 1))
        return ways / math.comb(n + m, before)

    r = 0
    while 2 * (r + 1) <= n and below(r + 1) <= level / 2:
        r += 1
    ordered = np.sort(ours)
    return (float(ordered[r - 1]), float(ordered[n - r])) if r else None


def rank_interval(ours: Array, level: float) -> tuple[float, float, bool]:
    """Between which of our n runs one more lies with probability 1 - level at least.

    Returns:
        (low, high, whether there are enough runs for that level); our whole range if there are not.
    """
    r = math.floor(level / 2 * (len(ours) + 1))
    ordered = np.sort(ours)
    return float(ordered[max(r, 1) - 1]), float(ordered[len(ours) - max(r, 1)]), r >= 1


def exact_test(first: Sequence[int], second: Sequence[int]) -> float:
    """Fisher's exact test of two rows of counts over the same categories; by Freeman and Halton for more than two.

    Returns:
        p, the probability of all tables with these margins that are no more probable than this one.
    """
    columns = [a + b for a, b in zip(first, second, strict=True)]

    def weight(row: Sequence[int]) -> int:
        return math.prod(math.comb(column, number) for column, number in zip(columns, row, strict=True))

    def rows(total: int, at: int = 0) -> Iterator[tuple[int, ...]]:
        if at == len(columns) - 1:
            if total <= columns[at]:
                yield (total,)
            return
        for number in range(min(columns[at], total) + 1):
            yield from ((number, *rest) for rest in rows(total - number, at + 1))

    observed = weight(first)
    return sum(w for w in map(weight, rows(sum(first))) if w <= observed) / math.comb(sum(columns), sum(first))


def count_interval(ours: int, seeds: int, published_seeds: int, level: float) -> tuple[int, int]:
    """The least and greatest published count, of ``published_seeds``, that Fisher's test does not reject."""
    kept = [
        number
        for number in range(published_seeds + 1)
        if exact_test((ours, seeds - ours), (number, published_seeds - number)) > level
    ]
    return kept[0], kept[-1]
