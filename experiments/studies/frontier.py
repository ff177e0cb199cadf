"""Grown models against fixed ones trained from scratch, at matched counts of the 1D regression (figure 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from experiments.analysis.claims import Claims, Estimate, Outcome, Tally
from experiments.analysis.collect import Reader
from experiments.analysis.estimates import bootstrap, ratio_of_geometric_means, share
from experiments.analysis.evidence import Evidence, Untested, geometric_mean
from experiments.analysis.figures import EACH, Data, Panel, Point, Spec
from experiments.analysis.gather import gather, points_of, spread
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array
from experiments.store.records import NO_CURVES
from experiments.studies.depth import NINE, TEN
from experiments.studies.model import Study
from experiments.studies.one_d import BASELINE, FIFTY
from experiments.studies.vision import EIGHT_FULL


def _fixed_frontier() -> list[Selection]:
    choices = {"task": "regression1d", "gate": "mlp", "method": "fixed", "schedule": "paper"}
    fixed = [Selection.of(choices, {"method.count": count}, FIFTY) for count in range(1, 13)]
    # the grown points of the figure: the baseline, and two other prices
    grown = [
        BASELINE.with_seeds(FIFTY).with_overrides(change)
        for change in ({}, *({"schedule.lambda0": price, "schedule.alpha_max": price} for price in (1e-5, 1e-3)))
    ]
    return fixed + grown


FIXED_FRONTIER = Study(
    "fixed_frontier", "figure 3: fixed counts 1 to 12 and grown runs, fifty seeds", _fixed_frontier, rank=104
)

FIXED, GROWN = "fixed", "grown"
"""Names of the series, and of the phases that they show."""
PANELS = {"": Panel("retained count", "truncated MSE", ylog=True, lanes=True, series=(FIXED, GROWN))}
_SIDE = {FIXED: -1.0, GROWN: 1.0}


def geometric(series: str, x: float, each: Sequence[Point]) -> Point:
    """Compute the geometric mean of points, with a bar of one population deviation of log10."""
    logs = np.log10([point.y for point in each])
    mean, sd = logs.mean(), logs.std(ddof=0)
    runs = tuple(chain(*(point.runs for point in each)))
    ends = (float(10 ** (mean - sd)), float(10 ** (mean + sd))) if len(runs) > 2 else (None, None)
    return Point(series, x, float(10**mean), runs, low=ends[0], high=ends[1], shift=0.12 * _SIDE[series])


def make(reader: Reader) -> Data:
    """Make the series "fixed" and "grown" (pooled by count over prices), each with a series of single runs."""
    selections = dict(enumerate(FIXED_FRONTIER.make()))
    phases = {key: FIXED if dict(runs.choices)["method"] == FIXED else GROWN for key, runs in selections.items()}
    quantities = {key: [f"{phase}.count", f"{phase}.truncated.mse"] for key, phase in phases.items()}
    gathered = gather(reader, selections, quantities)
    pooled: dict[tuple[str, float], list[Point]] = defaultdict(list)
    for key, group in gathered.groups.items():
        for point in points_of(group, f"{phases[key]} ({EACH})", *quantities[key]):
            pooled[phases[key], point.x].append(point)
    points: list[Point] = []
    for (series, x), each in sorted(pooled.items()):
        points += [geometric(series, x, each), *spread(each, 0.14, 0.28 * _SIDE[series])]
    prices = sorted({runs.config(0).schedule.lambda0 for key, runs in selections.items() if phases[key] == GROWN})
    means = {(point.series, point.x): point.y for point in points if not point.faint}
    both = [count for series, count in means if series == GROWN and (FIXED, count) in means]
    worse = sum(means[GROWN, count] > means[FIXED, count] for count in both)
    notes = [
        f"lower is better: at {worse} of {len(both)} counts grown models are worse than fixed ones",
        "lines: geometric mean; bars: one standard deviation of log₁₀ MSE, where there are three runs; faint: each run",
        "grown: pooled by count over the prices λ₀ = " + ", ".join(map(np.format_float_positional, prices)),
    ]
    return gathered.data(points, notes=notes)


SPEC = Spec(
    "figure3",
    "Figure 3: grown against fixed models at matched counts, 1D regression",
    PANELS,
    make,
    3.6,
    section="one_d",
    rank=3,
)

claim = Claims(400)
_COUNT, _MSE = "grown.count", "grown.truncated.mse"


def by_count(counts: Array, errors: Array) -> dict[int, Array]:
    """Count → errors of the runs that kept it, where there are at least three."""
    grouped = {int(count): errors[counts == count] for count in np.unique(counts)}
    return {count: own for count, own in grouped.items() if len(own) >= 3}


def _median_ratio(counts: Sequence[int]) -> Callable[..., Array]:
    """The median over counts of geometric mean errors, grown over fixed, for the bootstrap."""

    def statistic(*logarithms: Array, axis: int) -> Array:
        means = [each.mean(axis=axis) for each in logarithms]
        apart = [grown - fixed for grown, fixed in zip(means[: len(counts)], means[len(counts) :], strict=True)]
        ratio: Array = np.exp(np.median(np.stack(apart), axis=0))
        return ratio

    return statistic


@claim("frontier", "figure 3", "after results, 2026-11-23")
def _frontier(evidence: Evidence) -> Outcome:
    """Fixed models are slightly better at matched count: lower at most counts, typically by a factor of at most two."""
    made = FIXED_FRONTIER.make()
    fixed_runs = [s for s in made if dict(s.choices)["method"] == "fixed"]
    samples = evidence.samples(fixed_runs, ["fixed.count", "fixed.truncated.mse"], "fixed counts")
    fixed = by_count(samples["fixed.count"], samples["fixed.truncated.mse"])
    grown_runs = [s for s in made if dict(s.choices)["method"] == "ngn"]
    pooled = evidence.samples(grown_runs, [_COUNT, _MSE, "integer"], "grown runs of three prices")
    grown = by_count(pooled[_COUNT], pooled[_MSE])
    counts = sorted(set(fixed) & set(grown))
    if len(counts) < 3:
        raise Untested(f"only {len(counts)} counts have three grown and three fixed runs")
    whole = by_count(pooled[_COUNT][pooled["integer"] == 1], pooled[_MSE][pooled["integer"] == 1])
    settled = [geometric_mean(whole[n]) / geometric_mean(fixed[n]) for n in counts if n in whole]
    lower = [Estimate(f"count {n}", ratio_of_geometric_means(grown[n], fixed[n]), 1, spec=".2f") for n in counts]
    errors = tuple(np.log(each[n]) for each in (grown, fixed) for n in counts)
    listed = ", ".join(f"{n}: {geometric_mean(grown[n]) / geometric_mean(fixed[n]):.2f}" for n in counts)
    because = f"grown over fixed, geometric means by count: {listed}" + (
        f"; median of integer boundaries alone {np.median(settled):.2f}" if settled else ""
    )
    return Outcome(
        [
            Tally("counts at which fixed models are lower", tuple(lower), len(counts) // 2 + 1),
            Estimate("median of grown over fixed", bootstrap(errors, _median_ratio(counts)), 1, 2, ".2f"),
        ],
        because,
    )


@claim("steps", "limitations", "after results, 2026-11-28")
def _steps(evidence: Evidence) -> Outcome:
    """NGN takes more steps than a fixed model of its size to the same performance, the higher of both final training
    losses: in most runs of tables 8 and 9 with curves, same seed."""
    later = []
    for key, runs in {**EIGHT_FULL.runs, **NINE.runs, **TEN.runs}.items():
        for run in evidence.runs(runs.with_seeds(runs.seeds[:3]), key):  # those that keep their curves
            curves = evidence.reader.store.curves(run.run_id) or {}
            if not {"grown.task", "fixed.task"} <= curves.keys():
                continue
            both = [(curves[f"{phase}.step"], curves[f"{phase}.task"].ravel()) for phase in ("grown", "fixed")]
            loss = max(course[-max(1, len(course) // 100) :].mean() for _, course in both)
            grown, fixed = (step[course <= loss][0] for step, course in both)
            later.append(grown > fixed)
    if not later:
        raise Untested(f"tables 8 and 9: {NO_CURVES}")
    return Outcome([Estimate(f"of {len(later)} runs", share(sum(later), len(later)), 0.5, spec=".0%")])
