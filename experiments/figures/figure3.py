"""Figure 3: grown models against fixed ones trained from scratch, at matched counts of the 1D study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.figures.model import Data, Panel, Point, Spec, gather
from experiments.studies import study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIXED, GROWN = "fixed", "grown"
SEEDS = " (each run)"
"""Ends the names of the series that hold one point a run."""
PANELS = {"": Panel("retained count", "truncated MSE", ylog=True)}


def geometric(series: str, x: float, values: list[tuple[str, float]]) -> Point:
    """Geometric mean of (run id, value) pairs, and one population standard deviation of log10 to either side."""
    logs = np.log10([value for _, value in values])
    mean, sd = logs.mean(), logs.std(ddof=0)
    runs = tuple(name for name, _ in values)
    return Point(series, x, float(10**mean), runs, low=float(10 ** (mean - sd)), high=float(10 ** (mean + sd)))


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """The series "fixed" and "grown" (pooled by count over its prices), and for each one of single runs."""
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
    means = [geometric(series, x, values) for (series, x), values in sorted(pooled.items())]
    each = [
        Point(series + SEEDS, x, y, (name,)) for (series, x), values in sorted(pooled.items()) for name, y in values
    ]
    prices = sorted({s.config(0).schedule.lambda0 for k, s in selections.items() if "grown.count" in quantities[k]})
    notes = [
        "lines: geometric mean; bars: one standard deviation of log₁₀ MSE; numbers: runs in a point; faint: each run",
        "grown: pooled by count over the prices λ₀ = " + ", ".join(f"{price:.0e}" for price in prices),
    ]
    return gathered.data([*means, *each], notes=notes)


def paint(figure: Figure, data: Data) -> None:
    """The two frontiers side by side, each point with the number of its runs."""
    from experiments.figures import style

    axes = figure.subplots()
    style.label(axes, PANELS[""])
    for series, look, shift in ((FIXED, style.LOOKS[0], -0.12), (GROWN, style.LOOKS[1], 0.12)):
        points = data.of("", series)
        if not points:
            axes.errorbar([], [], label=f"{series} (not run)", **look.dots)
            continue
        runs = sum(len(point.runs) for point in points)
        style.bars(axes, points, look, f"{series}, {runs} runs", shift)
        for point in points:
            singles = [single for single in data.of("", series + SEEDS) if single.x == point.x]
            offsets = [point.x + shift * 2 + offset for offset in style.spread(len(singles), 0.14)]
            axes.plot(offsets, [s.y for s in singles], ".", color=look.color, markersize=1.6, alpha=0.35, zorder=1)
            above = series == GROWN
            end = point.high if above else point.low
            axes.annotate(
                str(len(point.runs)),
                (point.x + shift, point.y if end is None else end),
                xytext=(0, 3 if above else -3),
                textcoords="offset points",
                ha="center",
                va="bottom" if above else "top",
                fontsize=6.5,
                color=look.color,
            )
    axes.set_xticks(sorted({round(point.x) for point in data.points}))
    axes.legend(loc="upper right")


SPEC = Spec("figure3", "Figure 3: grown against fixed at matched counts, 1D regression", PANELS, make, paint, 3.2)
