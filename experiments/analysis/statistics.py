"""Statistics over seeds, by the names in formats; and tests of whether two samples share a distribution.

Statistics reduce the last axis, so a bootstrap is one call. A test returns the published values that it does not
reject. If the samples share a distribution, it rejects with probability ``level`` at most (Welch's: approximately).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

NO, PARTIAL, YES = 0.0, 1.0, 2.0


def _one(samples: Array) -> Any:
    """Return the number that all samples share, such as a setting."""
    if samples.shape[-1] != 1 and not (samples == samples[..., :1]).all():
        raise ValueError("a single value was asked for, but the runs differ")
    return samples[..., 0]


def _aggregate(samples: Array) -> Any:
    """Return yes or no if every seed has that outcome, else partial (caption of the paper's table 8)."""
    return np.where((samples == YES).all(axis=-1), YES, np.where((samples == NO).all(axis=-1), NO, PARTIAL))


STATISTICS: dict[str, Callable[[Array], Any]] = {
    "value": _one,
    "median": lambda samples: np.median(samples, axis=-1),
    "mean": lambda samples: samples.mean(axis=-1),
    "sd": lambda samples: samples.std(axis=-1, ddof=0),  # the paper's tables give the population's
    "min": lambda samples: samples.min(axis=-1),
    "max": lambda samples: samples.max(axis=-1),
    "rate": lambda samples: 100.0 * samples.mean(axis=-1),  # percent
    "aggregate": _aggregate,
    "yes": lambda samples: (samples == YES).sum(axis=-1),
    "partial": lambda samples: (samples == PARTIAL).sum(axis=-1),
    "no": lambda samples: (samples == NO).sum(axis=-1),
}


def statistic(name: str, samples: Array) -> Any:
    """Reduce the last axis of ``samples``.

    Raises:
        ValueError: on an unknown statistic, no samples, or samples that are not finite.
    """
    if name not in STATISTICS:
        raise ValueError(f"unknown statistic '{name}'; there are: {', '.join(STATISTICS)}")
    if samples.shape[-1] == 0 or not np.isfinite(samples).all():
        raise ValueError(f"{name} of samples that are missing or not finite")
    return STATISTICS[name](samples)


def normal_quantile(level: float) -> float:
    """Return the 1 - level/2 quantile of the normal distribution."""
    from scipy.special import ndtri  # imported here: it takes longer than most commands need

    return float(ndtri(1 - level / 2))


def student_quantile(freedom: float, level: float) -> float:
    """Return the 1 - level/2 quantile of Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - level / 2))


def wilson_interval(share: float, n: int, level: float) -> tuple[float, float]:
    """Shares p of which ``share`` of n examples lies within z (p (1 - p) / n)^½, z the 1 - level/2 quantile (Wilson).

    For means of scores strictly between 0 and 1 the interval is too wide, because their variance is smaller.
    """
    z = normal_quantile(level)
    middle, half = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)


def mean_interval(ours: Array, sd: float, published_seeds: int, level: float) -> tuple[float, float]:
    """A t-test of two means: ours ± t s (1/n + 1/m)^½, with t the 1 - level/2 quantile.

    s² pools both variances, as both samples are of one distribution if nothing differs. With Welch's own standard
    error a small sample without bad seeds would have both a low mean and a small deviation, and reject too often
    (docs/verdicts.md). The degrees of freedom are Welch's. For n = m this is Welch's test.

    Args:
        ours: shape [n], at least two.
        sd: the published *population* deviation of ``published_seeds`` runs, at least two.
    """
    n, m, mean = len(ours), published_seeds, float(ours.mean())
    first, second = float(ours.var()) * n, sd**2 * m  # sums of squares
    pooled = (first + second) / (n + m - 2) * (1 / n + 1 / m)
    if pooled == 0:
        return mean, mean
    errors = first / (n - 1) / n, second / (m - 1) / m
    # Welch and Satterthwaite's
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / (n - 1) + errors[1] ** 2 / (m - 1))
    half = student_quantile(freedom, level) * math.sqrt(pooled)
    return mean - half, mean + half


@cache
def _median_rank(n: int, m: int, level: float) -> int:
    """Greatest r so that the median of m new runs lies below the r-th of n with at most level/2; 0 if there is none.

    It lies below only if at least half of the m do, rounded up. All orders of the n + m runs are equally probable,
    which gives this probability (Fligner and Wolfe, 1979).
    """
    half = (m + 1) // 2

    def below(r: int) -> float:
        before = half + r - 1  # the r-th of ours comes after at least half of theirs
        ways = sum(math.comb(m, i) * math.comb(n, before - i) for i in range(half, before + 1))
        return ways / math.comb(n + m, before)

    r = 0
    while 2 * (r + 1) <= n and below(r + 1) <= level / 2:
        r += 1
    return r


def median_interval(ours: Array, published_seeds: int, level: float) -> tuple[float, float] | None:
    """Return the order statistics of ours that contain the median of m new runs with probability 1 - level or more.

    Returns:
        None if our range is too narrow for this level.
    """
    n, r = len(ours), _median_rank(len(ours), published_seeds, level)
    ordered = np.sort(ours)
    return (float(ordered[r - 1]), float(ordered[n - r])) if r else None


def rank_interval(ours: Array, level: float) -> tuple[float, float, bool]:
    """Return the interval of our n runs that contains one more with probability 1 - level or more.

    Returns:
        (low, high, whether n is large enough for this level); if not, the interval is our whole range.
    """
    r = math.floor(level / 2 * (len(ours) + 1))
    ordered = np.sort(ours)
    return float(ordered[max(r, 1) - 1]), float(ordered[len(ours) - max(r, 1)]), r >= 1


def exact_test(first: Sequence[int], second: Sequence[int]) -> float:
    """Apply Fisher's exact test to two rows of counts (Freeman and Halton's for more than two categories).

    Returns:
        p, the total probability of all tables with these margins that are no more probable than this one.
    """
    columns, total = [a + b for a, b in zip(first, second, strict=True)], sum(first)
    heads = product(*(range(column + 1) for column in columns[:-1]))
    rows = ((*head, total - sum(head)) for head in heads if sum(head) <= total)
    observed, *weights = (math.prod(map(math.comb, columns, row)) for row in (first, *rows))
    return sum(weight for weight in weights if weight <= observed) / math.comb(sum(columns), total)


def count_interval(ours: int, seeds: int, published_seeds: int, level: float) -> tuple[int, int]:
    """Return the least and greatest published count, out of ``published_seeds``, that Fisher's test does not reject."""
    kept = [
        number
        for number in range(published_seeds + 1)
        if exact_test((ours, seeds - ours), (number, published_seeds - number)) > level
    ]
    return kept[0], kept[-1]
