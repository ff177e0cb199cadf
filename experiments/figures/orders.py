"""Error of every smaller prefix of one trained model, for each order of its components, under one budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.tables.orders import ORDERED, ORDERED_AT, ORDERS

_SHOWN = {order: said for order, (_, said, _) in islice(ORDERS.items(), 6)}
"""At most as many series as there are styles."""


def _panel(label: str, count: int, score: str) -> Panel:
    said = "MSE" if score == "mse" else "test accuracy (%)"
    title = f"{label}, budget of {count}"
    return Panel("components of the prefix", said, title, ylog=score == "mse", series=tuple(_SHOWN.values()))


PANELS = {at: _panel(label, count, score) for at, (label, _, count, score, _) in ORDERED_AT.items()}


def _make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    rows = {(at, order): ORDERED.runs[f"{at}_{order}"] for at in PANELS for order in _SHOWN}
    quantities = {key: [f"grown.truncated.{ORDERED_AT[key[0]][3]}", "half"] for key in rows}
    gathered = gather(reader, rows, quantities, overrides, own_data=True)
    points: list[Point] = []
    for (at, order), group in gathered.groups.items():
        scores: dict[int, dict[str, float]] = defaultdict(dict)
        for run, last in zip(group.runs, group.values.get(quantities[at, order][0], ()), strict=True):
            for count, score in enumerate([*run.record["phases"]["grown"]["prefixes"], float(last)], 1):
                scores[count][run.run_id] = score
        for count, each in sorted(scores.items()):
            points.append(Point(_SHOWN[order], count, float(np.median([*each.values()])), tuple(each), at))
    notes = [
        "median over the seeds that keep so many components, of one trained model each, truncated to them without "
        "retraining; nested dropout with r = 0.9 is in the report's table"
    ]
    return gathered.data(points, notes=notes)


SPEC = Spec("orders", "Smaller prefixes of one model, by order", PANELS, _make, 3.2, 3, section="one_d", rank=19)
