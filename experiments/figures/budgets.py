"""Score of models under a budget, next to the fixed model that defines the budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.tables.budgets import BUDGETS

_SIDE = {"budget": -0.08, "fixed": 0.08, "high": 0.0}
"""Horizontal offset of each series within a budget."""
_SERIES = {"budget": "under the budget", "fixed": "fixed", "high": "under the budget, from all components"}
PANELS = {
    task: Panel(
        "components of the fixed model", label, title, ylog=task == "one_d", series=tuple(_SERIES.values())[:number]
    )
    for task, title, label, number in (
        ("one_d", "1D", "MSE", 2),
        ("mnist", "MNIST, branches", "MNIST test accuracy (%)", 2),
        ("cifar10", "CIFAR-10, branches", "CIFAR-10 test accuracy (%)", 2),
        ("stories", "TinyStories slice, per layer", "bits per character", 3),
    )
}


def _make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    quantities = {row.key: [BUDGETS.quantity(row, "truncated")] for row in BUDGETS.rows}
    gathered = gather(reader, BUDGETS.runs, quantities, overrides, own_data=True)
    points: list[Point] = []
    for key, group in gathered.groups.items():
        task, count, method = key.rsplit("_", 2)
        if group.runs:
            low, middle, high = np.quantile(group.values[quantities[key][0]], (0.25, 0.5, 0.75))
            point = Point(_SERIES[method], int(count), float(middle), group.ids, task, float(low), float(high))
            points.append(replace(point, shift=_SIDE[method]))
    points.sort(key=lambda point: point.x)
    return gathered.data(points, notes=["median over seeds, bars: quartiles; truncated models within the budget"])


SPEC = Spec("budgets", "Under a budget, beside fixed models", PANELS, _make, 4.6, 2, section="one_d", rank=20)
