"""Estimates from our runs with confidence intervals, for statements that say where a number lies.

Each function returns an :class:`Estimator`, since the level of an interval depends on how many intervals a statement
needs. docs/verdicts.md says which interval is used for what. ``scipy.stats`` takes a second to import, so only the
functions that need it import it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.analysis.statistics import Array, normal_quantile, student_quantile, wilson_interval

RESAMPLES, BOOTSTRAP_SEED = 4000, 0
"""Of the bootstrap; the seed makes intervals repeatable."""


class Interval(NamedTuple):
    """A number and its confidence interval; an end is infinite where the runs are too few for the level."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimator:
    """How a number and its interval follow from runs.

    Attributes:
        how: name of the interval.
        at: level (1 - confidence) → interval.
    """

    how: str
    at: Callable[[float], Interval]


def single(number: float) -> Estimator:
    """A number of one run, whose spread over seeds is unknown: the interval is the whole line."""
    return Estimator("none", lambda level: Interval(number, -math.inf, math.inf))


def exact(number: float) -> Estimator:
    """A number without uncertainty, such as the size of a model."""
    return Estimator("exact", lambda level: Interval(number, number, number))


def standard_error(numbers: Array) -> float:
    """Standard error of a mean, s / n^½, from at least two ``numbers`` of shape [runs]."""
    return float(numbers.std(ddof=1) / math.sqrt(len(numbers)))


def mean(numbers: Array) -> Estimator:
    """Student's interval of a mean: mean ± t s / n^½; of paired differences, if ``numbers`` are such.

    Args:
        numbers: shape [runs], at least two.
    """
    middle, error = float(numbers.mean()), standard_error(numbers)

    def at(level: float) -> Interval:
        half = student_quantile(len(numbers) - 1, level) * error
        return Interval(middle, middle - half, middle + half)

    return Estimator("Student", at)


def median(numbers: Array) -> Estimator:
    """Interval of a median between two order statistics, exact for any distribution.

    Args:
        numbers: shape [runs].
    """
    from scipy import stats

    def at(level: float) -> Interval:
        test = stats.quantile_test(numbers, q=0, p=0.5)
        low, high = map(float, test.confidence_interval(1 - level))
        # scipy gives nan where no order statistic reaches the level
        return Interval(
            float(np.median(numbers)), -math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high
        )

    return Estimator("order statistics", at)


def difference_of_means(first: Array, second: Array) -> Estimator:
    """Welch's interval of the difference of two means.

    Args:
        first, second: numbers of independent runs, shapes [n] and [m], at least two each.
    """
    apart = float(first.mean() - second.mean())
    errors = np.array([standard_error(first), standard_error(second)]) ** 2
    total = float(errors.sum())

    def at(level: float) -> Interval:
        if total == 0:
            return Interval(apart, apart, apart)
        # Welch and Satterthwaite's degrees of freedom
        freedom = total**2 / float((errors**2 / [len(first) - 1, len(second) - 1]).sum())
        half = student_quantile(freedom, level) * math.sqrt(total)
        return Interval(apart, apart - half, apart + half)

    return Estimator("Welch", at)


def ratio_of_geometric_means(first: Array, second: Array) -> Estimator:
    """Welch's interval of the difference of mean logarithms, as a ratio, of positive numbers."""
    apart = difference_of_means(np.log(first), np.log(second))
    return Estimator("Welch, of logarithms", lambda level: Interval(*map(math.exp, apart.at(level))))


def share(number: int, total: int) -> Estimator:
    """Clopper and Pearson's exact interval of a probability, from ``number`` of ``total`` runs."""
    from scipy import stats

    def at(level: float) -> Interval:
        low, high = stats.binomtest(number, total).proportion_ci(1 - level, method="exact")
        return Interval(number / total, float(low), float(high))

    return Estimator("Clopper-Pearson", at)


def difference_of_shares(first: tuple[float, int], second: tuple[float, int]) -> Estimator:
    """Newcombe's interval of p₁ - p₂, from two Wilson intervals (1998, method 10).

    Args:
        first, second: (share, number of trials). Two models that answer the same questions are treated as if the
            questions were others, which widens the interval.
    """
    (one, n), (other, m) = first, second

    def at(level: float) -> Interval:
        (low, high), (low2, high2) = wilson_interval(one, n, level), wilson_interval(other, m, level)
        return Interval(
            one - other,
            one - other - math.hypot(one - low, high2 - other),
            one - other + math.hypot(high - one, other - low2),
        )

    return Estimator("Newcombe", at)


def rank_correlation(x: Array, y: Array) -> Estimator:
    """Spearman's coefficient with Fisher's z and the standard error of Bonett and Wright (2000).

    Ties take their mean rank. The coefficient is 0 where one of the two does not vary.
    """
    from scipy import stats

    constant = np.ptp(x) == 0 or np.ptp(y) == 0
    value = 0.0 if constant else float(stats.spearmanr(x, y).statistic)

    def at(level: float) -> Interval:
        if abs(value) == 1:
            return Interval(value, value, value)
        half = normal_quantile(level) * math.sqrt((1 + value**2 / 2) / (len(x) - 3))
        return Interval(value, math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half))

    return Estimator("Fisher's z", at)


def bootstrap(samples: tuple[Array, ...], statistic: Callable[..., Array]) -> Estimator:
    """Percentile bootstrap of a statistic of independent samples.

    Args:
        samples: one array of shape [runs] each; every one is resampled by itself.
        statistic: takes the samples and ``axis``, and reduces that axis.
    """
    from scipy import stats

    def at(level: float) -> Interval:
        result = stats.bootstrap(
            samples,
            statistic,
            n_resamples=RESAMPLES,
            confidence_level=1 - level,
            method="percentile",
            vectorized=True,
            random_state=np.random.default_rng(BOOTSTRAP_SEED),
        )
        low, high = result.confidence_interval
        return Interval(float(statistic(*samples, axis=-1)), float(low), float(high))

    return Estimator("bootstrap", at)
