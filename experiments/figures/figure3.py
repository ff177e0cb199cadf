"""Figure 3: grown models against fixed ones trained from scratch, at matched counts of the 1D study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import EACH, Data, Panel, Point, Spec
from experiments.analysis.gather import gather, spread
from experiments.studies import study

FIXED, GROWN = "fixed", "grown"
PANELS = {"": Panel("retained count", "truncated MSE", ylog=True, lanes=True, series=(FIXED, GROWN))}
_SIDE = {FIXED: -1.0, GROWN: 1.0}


def geometric(series: str, x: float, values: list[tuple[str, float]]) -> Point:
    """Compute the geometric mean of (run id, value) pairs, with a bar of one population deviation of log10."""
    logs = np.log10([value for _, value in values])
    mean, sd = logs.mean(), logs.std(ddof=0)
    runs = tuple(name for name, _ in values)
    ends = (float(10 ** (mean - sd)), float(10 ** (mean + sd))) if len(runs) > 2 else (None, None)
    return Point(series, x, float(10**mean), runs, low=ends[0], high=ends[1], shift=0.12 * _SIDE[series])


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make the series "fixed" and "grown" (pooled by count over prices), each with a series of single runs."""
    selections = dict(enumerate(study("fixed_frontier").make()))
    quantities = {
        key: ["fixed.count", "fixed.truncated.mse"]
        if dict(selection.choices)["method"] == "fixed"
        else ["grown.count", "grown.truncated.mse"]
        for key, selection in selections.items()
    }
    gathered = gather(reader, selections, quantities, overrides)
    pooled: dict[tuple[str, float], list[tuple[str, float]]] = defaultdict(list)
    for key, group in gathered.groups.items():
        if not group.runs:
            continue
        count, mse = (group.values[name] for name in quantities[key])
        series = FIXED if "fixed.count" in quantities[key] else GROWN
        for name, x, y in zip(group.ids, count, mse, strict=True):
            pooled[series, float(x)].append((name, float(y)))
    points: list[Point] = []
    for (series, x), values in sorted(pooled.items()):
        points.append(geometric(series, x, values))
        each = (Point(f"{series} ({EACH})", x, y, (name,)) for name, y in values)
        points += spread(each, 0.14, 0.28 * _SIDE[series])
    prices = sorted({s.config(0).schedule.lambda0 for k, s in selections.items() if "grown.count" in quantities[k]})
    notes = [
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
