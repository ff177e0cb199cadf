"""Figure 13: retained weights, score and forgetting after pruning, at three prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.tables.pruned import LADDER_RUNS
from experiments.tables.pruning import BACKBONES, TARGETS

_SERIES = tuple(f"{target}, {backbone}" for target in TARGETS.values() for backbone in BACKBONES)
_KEPT = "weights kept (%)"
PANELS = {
    "score": Panel(_KEPT, "exact match, truncated (%)", "WikiSQL-easy", series=_SERIES),
    "nats": Panel(_KEPT, "nats per answer token", "WikiSQL-easy", series=_SERIES),
    "forgetting": Panel(_KEPT, "perplexity / base", "general text", ylog=True, series=_SERIES),
}


def _make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    gathered = gather(reader, LADDER_RUNS, ["kept", "n", "low", "high", *PANELS], overrides)
    asked: set[int] = set()
    points: list[Point] = []
    for key, group in gathered.groups.items():
        target, backbone, _ = key.split("-", 2)
        series = f"{TARGETS[target]}, {backbone}"
        for at, run in enumerate(group.runs):
            x = float(group.values["kept"][at])
            asked.add(int(group.values["n"][at]))
            low, high = (float(group.values[end][at]) for end in ("low", "high"))
            for panel in PANELS:
                point = Point(series, x, float(group.values[panel][at]), (run.run_id,), panel)
                points.append(replace(point, low=min(low, point.y), high=high) if panel == "score" else point)
    lines = []
    for panel in PANELS:
        for series in _SERIES:
            drawn = [point for point in points if (point.panel, point.series) == (panel, series)]
            if len(drawn) > 1:
                x, y = np.array([[point.x, point.y] for point in drawn]).T
                lines.append(Line(series, x, y, panel, tuple(name for point in drawn for name in point.runs)))
    of = " or ".join(map(str, sorted(asked)))
    notes = [
        "weights: of attention and feed-forward maps; lines join the prices 1e-2, 1e-3, 1e-4 of one row; one epoch, "
        f"seed 0; bars: Wilson's 95 % interval over {of} questions"
    ]
    return gathered.data(points, lines=lines, notes=notes)


SPEC = Spec(
    "figure13",
    "Pruning frontier: SmolLM2-135M, budget=cpu, one epoch",
    PANELS,
    _make,
    3.4,
    3,
    section="pruning",
    rank=7,
)
"""The paper's is of Pythia-410M."""
