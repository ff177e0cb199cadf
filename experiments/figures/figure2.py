"""Figure 2: the price sweep: a staircase of retained counts, and what each price costs in fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.analysis.collect import Reader
from experiments.analysis.reductions.plateaus import LEAST, PRICES, SWEEP, Price, plateaus
from experiments.figures.model import Data, Panel, Point, Spec, gather

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LANDED, BETWEEN = "t at an integer", "t between integers"
SOFT, TRUNCATED = "soft", "truncated"
PLATEAU = "plateau"
_LABELLED = 1.3
"""The least width whose factor is printed; narrower plateaus would print over each other."""
_PRICE = "capacity price λ₀ (= α_max)"
PANELS = {
    "count": Panel(_PRICE, "retained count", xlog=True),
    "plateaus": Panel(_PRICE, "retained count", xlog=True),
    "mse": Panel(_PRICE, "MSE", xlog=True, ylog=True),
}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """In "count" two series, by whether t ended within 0.01 of an integer; in "mse" soft and truncated.

    "plateaus" has a point for each plateau: ``x`` is the geometric middle of its prices, ``low`` and ``high`` their
    ends, ``y`` the count.
    """
    quantities = ["grown.count", "integer", "grown.soft.mse", "grown.truncated.mse", "grown.t"]
    gathered = gather(reader, dict(zip(PRICES, SWEEP, strict=True)), quantities, overrides, unit="prices")
    points, steps = [], []
    for price, group in sorted(gathered.groups.items()):
        for n, run in enumerate(group.runs):
            count, integer, soft, truncated, t = (float(group.values[name][n]) for name in quantities)
            ids = (run.run_id,)
            points.append(Point(LANDED if integer else BETWEEN, price, count, ids, "count"))
            points.append(Point(SOFT, price, soft, ids, "mse"))
            points.append(Point(TRUNCATED, price, truncated, ids, "mse"))
            steps.append(Price(PRICES.index(price), price, int(count), t, soft, truncated, run.run_id))
    for plateau in plateaus(steps):
        middle = (plateau.low * plateau.high) ** 0.5
        points.append(Point(PLATEAU, middle, plateau.count, plateau.runs, "plateaus", plateau.low, plateau.high))
    notes = [f"bars: at least {LEAST} neighbouring prices of one count; ×: the factor of λ that they span"]
    return gathered.data(points, notes=notes)


def _staircase(axes: Axes, data: Data) -> None:
    from experiments.figures import style

    for series, look in ((LANDED, style.LOOKS[0]), (BETWEEN, style.LOOKS[1])):
        points = data.of("count", series)
        axes.plot(
            [p.x for p in points], [p.y for p in points], label=f"{series}: {len(points)}", markersize=2.2, **look.dots
        )
    for plateau in data.of("plateaus"):
        low, high = plateau.low or plateau.x, plateau.high or plateau.x
        axes.plot([low, high], [plateau.y] * 2, color=style.BLACK, linewidth=0.8, marker="|", markersize=5)
        if high / low >= _LABELLED:
            axes.annotate(
                f"×{high / low:.1f}",
                (plateau.x, plateau.y),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=6.5,
            )
    style.label(axes, PANELS["count"], f"Seed 0, n = 1 seed at each of {data.found} prices")
    axes.set_xlabel("")
    counts = {round(p.y) for p in data.of("count")}
    axes.set_yticks(range(0, max(counts) + 2, 2 if max(counts) > 8 else 1))
    axes.legend(loc="lower left")


def paint(figure: Figure, data: Data) -> None:
    """The staircase above the errors, on one axis of prices."""
    from experiments.figures import style

    above, below = figure.subplots(2, 1, sharex=True)
    _staircase(above, data)
    for series, look in ((SOFT, style.LOOKS[0]), (TRUNCATED, style.LOOKS[1])):
        points = data.of("mse", series)
        axes_points = [p.x for p in points], [p.y for p in points]
        below.plot(*axes_points, label=series, markersize=2.2, **look.dots)
    style.label(below, PANELS["mse"])
    below.legend(loc="upper left")


SPEC = Spec("figure2", "Figure 2: sweep of the capacity price, 1D regression", PANELS, make, paint, 4.2)
