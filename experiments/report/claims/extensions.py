"""What is expected of commits, of snapping tied to the price, of budgets and of orders; written before any such run.

Those on budgets and orders were judged again, on new runs, after the share of training at which a budget fixes its
sizes had been moved from 0.9 to 0.5, once more after the library's learner had taken the place of a price, and again
after its limit had another way up (2026-11-26); docs/log says how they came out before. That on where sizes start
under a budget was written when the grown runs were there, and before the others.
"""

from __future__ import annotations

import numpy as np

from experiments.analysis.claims import ABOVE, Estimate, Exact, Outcome, Tally, claim
from experiments.analysis.estimates import mean, median, share
from experiments.analysis.evidence import Evidence
from experiments.analysis.statistics import Array
from experiments.tables.budgets import BUDGETS
from experiments.tables.commit import COMMITTED
from experiments.tables.orders import ORDERED
from experiments.tables.tied_alpha import TIED

_BITS = "grown.truncated.bits_per_character"
_COUNT, _RANKED = "grown.count", ("ranks", "half")
_SOFT, _MSE = "grown.soft.mse", "grown.truncated.mse"
_SCHEDULES = ("baseline", "lambda_const", "alpha_const", "no_alpha", "beta4", "beta15")
_COUNTS = range(3, 13)
_AGAIN = "before results; judged again on new runs"


def _committed(evidence: Evidence, key: str) -> Array:
    """Truncated MSE with a commit over that of the same seed without, of a schedule, shape [seeds]."""
    runs = COMMITTED.runs
    return evidence.ratios(runs[f"datafour_{key}_commit"], runs[f"datafour_{key}"], _MSE, f"{key}, committed")


@claim("commit_exact", "study commit", by_construction=True)
def _exact(evidence: Evidence) -> Outcome:
    """With a commit at 90 % of training every boundary of the 1D schedules is an integer, and truncation changes no
    error by more than a part in a hundred thousand."""
    runs = [COMMITTED.runs[f"datafour_{key}_commit"] for key in _SCHEDULES]
    found = evidence.pooled(runs, ["integer", _SOFT, _MSE], "1D schedules, committed")
    cost = np.abs(found[_MSE] / found[_SOFT] - 1)
    return Outcome(
        [
            Exact("boundaries between integers", int((found["integer"] < 1).sum())),
            Exact("runs that truncation changes", int((cost > 1e-5).sum())),
        ],
        f"{len(cost)} runs, truncation changes at most {cost.max():.1e}",
    )


@claim("commit_fit", "study commit")
def _fit(evidence: Evidence) -> Outcome:
    """A commit leaves the baseline's truncated error as it is (within a factor of 1.5 from the same seed, in the
    median), and at least halves it where truncation costs most: without α, and at β = 4."""
    bounds = {"baseline": (1 / 1.5, 1.5), "no_alpha": (0.0, 0.5), "beta4": (0.0, 0.5)}
    said = {"baseline": "baseline", "no_alpha": "α = 0", "beta4": "β = 4"}
    return Outcome(
        [
            Estimate(f"truncated MSE over that without a commit, {said[key]}", median(_committed(evidence, key)), *ends)
            for key, ends in bounds.items()
        ]
    )


@claim("tied_distance", "study tied_alpha")
def _distance(evidence: Evidence) -> Outcome:
    """Under a constant price boundaries end as far from an integer as the minimum of λt + κλ sin²(πt) lies,
    asin(1/πκ)/2π: for κ = 1, 3 and 10 the median distance is that within a factor of two."""
    parts = []
    for kappa in (1, 3, 10):
        t = evidence.samples(TIED.runs[f"constant_{kappa}"], ["grown.t"], f"λ constant, κ = {kappa}")["grown.t"]
        ratio = np.abs(t - np.round(t)) / (np.arcsin(1 / (np.pi * kappa)) / (2 * np.pi))
        parts.append(Estimate(f"distance over the formula's, κ = {kappa}", median(ratio), 0.5, 2))
    return Outcome(parts)


@claim("tied_fit", "study tied_alpha")
def _tied_fit(evidence: Evidence) -> Outcome:
    """Tying the snapping strength to the price (κ = 3) costs the baseline no fit: truncated error within a factor of
    1.5 from the same seed, in the median."""
    ratio = evidence.ratios(TIED.runs["baseline_3"], TIED.runs["baseline_0"], _MSE, "baseline, κ = 3")
    return Outcome([Estimate("truncated MSE over that of κ = 0", median(ratio), 1 / 1.5, 1.5)])


def _spent(evidence: Evidence) -> tuple[Array, Array]:
    """Cost and budget of every budgeted run of the 1D study, each of shape [runs]."""
    runs = [BUDGETS.runs[f"one_d_{count}_budget"] for count in _COUNTS]
    found = evidence.pooled(runs, ["grown.budget.cost", "grown.budget.limit"], "1D budgets")
    return found["grown.budget.cost"], found["grown.budget.limit"]


@claim("budget_met", "study budget", _AGAIN, by_construction=True)
def _met(evidence: Evidence) -> Outcome:
    """No model of the 1D study is above its budget."""
    cost, limit = _spent(evidence)
    return Outcome([Exact("models above their budget", int((cost > limit).sum()))], f"{len(cost)} models")


@claim("budget_used", "study budget", _AGAIN, by_construction=True)
def _used(evidence: Evidence) -> Outcome:
    """At least two thirds of the models of the 1D study use all of their budget."""
    cost, limit = _spent(evidence)
    used = int((cost == limit).sum())
    because = f"{used} of {len(cost)} models, the least used {np.min(cost / limit):.0%}"
    return Outcome([Estimate("share that use all", share(used, len(cost)), 2 / 3, spec=".1%")], because)


@claim("budget_fit", "study budget", _AGAIN)
def _budget_fit(evidence: Evidence) -> Outcome:
    """At most budgets of 3 to 12 components the 1D error is within a factor of three of the fixed model's of that
    size, same seed, in the median."""
    ratios = {}
    for count in _COUNTS:
        limited, alone = (BUDGETS.runs[f"one_d_{count}_{method}"] for method in ("budget", "fixed"))
        ratios[count] = evidence.ratios(limited, alone, "truncated", f"budget of {count}")
    near = tuple(Estimate(f"budget {count}", median(ratio), most=3) for count, ratio in ratios.items())
    listed = ", ".join(f"{count}: {np.median(ratio):.2g}" for count, ratio in ratios.items())
    because = f"over the fixed model's error, by count: {listed}"
    return Outcome([Tally("budgets within a factor of three", near, len(near) // 2 + 1)], because)


@claim("budget_high", "study budget", "before the runs from all components; pairs since 2026-11-25, after results")
def _high(evidence: Evidence) -> Outcome:
    """On TinyStories sizes that start from all components are better under a budget than grown ones, at both budgets:
    fewer bits per character, same seed, in the mean."""
    parts = []
    for count in (8, 4):
        grown, high = (BUDGETS.runs[f"stories_{count}_{start}"] for start in ("budget", "high"))
        before, after = evidence.pairs(grown, high, _BITS, f"budget of {count} + {count}")
        saved = Estimate(f"bits saved, {count} + {count}, {len(before)} seeds", mean(before - after), ABOVE, spec=".3f")
        parts.append(saved)
    return Outcome(parts)


def _over_half(evidence: Evidence, order: str, quantity: str, count: int = 8) -> Array:
    """An error of a 1D order over that of r = ½ from the same seed and under the same budget, shape [seeds]."""
    first, second = (ORDERED.runs[f"one_d_{count}_{key}"] for key in (order, "half"))
    return evidence.ratios(first, second, quantity, f"{order}, budget of {count}")


@claim("orders_power", "study orders", _AGAIN)
def _power(evidence: Evidence) -> Outcome:
    """What weights 1/(k + 1) gain over (1/2)^k at one price is size: under one budget, of 4 and of 8 components, their
    1D errors are within a factor of three of each other, same seed, in the median."""
    return Outcome(
        [
            Estimate(
                f"truncated MSE over that of r = ½, {n} components",
                median(_over_half(evidence, "power", _MSE, n)),
                1 / 3,
                3,
            )
            for n in (4, 8)
        ]
    )


@claim("orders_needed", "study orders", _AGAIN)
def _needed(evidence: Evidence) -> Outcome:
    """Weights put the components in order: with r = 1 the first half of what a budget of eight keeps errs at least
    three times as much as with r = ½, same seed, in the median."""
    return Outcome(
        [Estimate("MSE of the first half over that with r = ½", median(_over_half(evidence, "none", "half")), 3)]
    )


@claim("orders_nested", "study orders", _AGAIN)
def _nested(evidence: Evidence) -> Outcome:
    """Nested dropout trades the whole model for its prefixes: under a budget of eight the first half of what it keeps
    errs at most a third as much as with r = ½, and all of it more, same seed, in the median."""
    kept = [float(evidence.samples(ORDERED.runs[f"one_d_8_{key}"], [_COUNT], key)[_COUNT].mean()) for key in _RANKED]
    return Outcome(
        [
            Estimate(
                "MSE of the first half over that with r = ½", median(_over_half(evidence, "ranks", "half")), 0, 1 / 3
            ),
            Estimate("of all components", median(_over_half(evidence, "ranks", _MSE)), 1),
        ],
        f"components kept, mean {kept[0]:.1f}, with r = ½ {kept[1]:.1f}",
    )


CLAIMS = (_exact, _fit, _distance, _tied_fit, _met, _used, _budget_fit, _high, _power, _needed, _nested)
