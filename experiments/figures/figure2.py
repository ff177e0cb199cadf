"""Figure 2, the price sweep: a staircase of retained counts, and the error at each price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.analysis.reductions.plateaus import LEAST, PRICES, SWEEP, Price, plateaus

LANDED, BETWEEN = "t at an integer", "t between integers"
SOFT, TRUNCATED = "soft", "truncated"
PLATEAU = "plateau"
_LABELLED = 1.3
"""Least width of a plateau whose factor is printed. Labels of narrower plateaus would overlap."""
_PRICE = "capacity price λ₀ (= the largest α)"
PANELS = {
    "count": Panel(_PRICE, "retained count", "Retained count", xlog=True),
    "mse": Panel(_PRICE, "MSE", "Error", xlog=True, ylog=True),
}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make two series in "count", t within 0.01 of an integer or not, and the plateaus; in "mse", both errors."""
    quantities = ["grown.count", "integer", "grown.soft.mse", "grown.truncated.mse"]
    gathered = gather(reader, dict(zip(PRICES, SWEEP, strict=True)), quantities, overrides, unit="prices")
    points, steps, lines = [], [], []
    for price, group in sorted(gathered.groups.items()):
        for n, run in enumerate(group.runs):
            count, integer, soft, truncated = (float(group.values[name][n]) for name in quantities)
            ids = (run.run_id,)
            points.append(Point(LANDED if integer else BETWEEN, price, count, ids, "count"))
            points.append(Point(SOFT, price, soft, ids, "mse"))
            points.append(Point(TRUNCATED, price, truncated, ids, "mse"))
            steps.append(Price(PRICES.index(price), price, int(count), run.run_id))
    for plateau in plateaus(steps):
        label = f"×{plateau.width:.1f}" if plateau.width >= _LABELLED else ""
        ends = np.array([plateau.low, plateau.high])
        lines.append(Line(PLATEAU, ends, np.full(2, plateau.count), "count", plateau.runs, label))
    notes = [
        "one run of seed 0 per price",
        f"plateau: at least {LEAST} neighbouring prices of one count; ×: the factor of λ₀ that it spans",
    ]
    return gathered.data(points, lines=lines, notes=notes)


SPEC = Spec(
    "figure2", "Figure 2: sweep of the capacity price, 1D regression", PANELS, make, 4.8, section="one_d", rank=2
)
