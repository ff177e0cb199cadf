"""Figure 7: what four ways to learn a capacity keep, and how well that fits; one point a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiments.analysis.collect import Reader
from experiments.figures.model import Data, Panel, Point, Spec, gather
from experiments.tables.one_d import SEVEN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {"ngn": "NGN", "awnn": "AWNN (block adaptation)", "l0": "L₀ (hard concrete)", "ste": "STE (straight-through)"}
"""Row of table 7 → name of its series."""
PANELS = {"": Panel("retained count", "deployed MSE", ylog=True)}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """A series for each method, one point a seed."""
    # the fixed models of the table's last column are no part of this figure
    selections = {row.key: replace(row.runs, companions=()) for row in SEVEN.rows if row.runs is not None}
    gathered = gather(reader, selections, ["grown.count", "grown.truncated.mse"], overrides)
    points = []
    for key, name in METHODS.items():
        group = gathered.groups[key]
        for n, run in enumerate(group.runs):
            count, mse = (float(group.values[quantity][n]) for quantity in ("grown.count", "grown.truncated.mse"))
            points.append(Point(name, count, mse, (run.run_id,)))
    return gathered.data(points, notes=["one point a seed; points of one method and count are spread sideways"])


def paint(figure: Figure, data: Data) -> None:
    """One scatter; the methods differ in marker and filling, and stand side by side within a count."""
    from experiments.figures import style

    axes = figure.subplots()
    style.label(axes, PANELS[""])
    for place, (name, look) in enumerate(zip(METHODS.values(), style.LOOKS, strict=False)):
        points = data.of("", name)
        text = style.seeds(len(points)) if points else "not run"
        xs, ys = [], []
        for count in sorted({point.x for point in points}):
            same = [point for point in points if point.x == count]
            lane = count + 0.2 * (place - 1.5)
            xs += [lane + offset for offset in style.spread(len(same), 0.14)]
            ys += [point.y for point in same]
        axes.plot(xs, ys, label=f"{name}, {text}", markersize=3.5, alpha=0.85, **look.dots)
    style.lanes(axes, [round(point.x) for point in data.points])
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


SPEC = Spec("figure7", "Figure 7: capacity learners compared, 1D regression", PANELS, make, paint, 3.0)
