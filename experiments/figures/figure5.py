"""Figure 5: final against initial boundary, which shows whether it both grows and prunes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import EACH, Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.analysis.reductions import init_sweep

MEAN = "mean over the seeds"
PANELS = {panel.key: Panel("initial boundary t₀", "final boundary t", panel.title) for panel in init_sweep.PANELS}
_DIAGONAL = np.array([init_sweep.STARTS[0], init_sweep.STARTS[-1]])


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make a series of means, with bars of one population deviation, and a series of runs, in each panel."""
    selections = {
        (panel.key, start): panel.start(start).with_seeds(init_sweep.SEEDS)
        for panel in init_sweep.PANELS
        for start in init_sweep.STARTS
    }
    gathered = gather(reader, selections, ["grown.t"], overrides)
    points = []
    counts: dict[str, list[int]] = {}
    for (panel, start), group in gathered.groups.items():
        if not group.runs:
            continue
        counts.setdefault(panel, []).append(len(group.runs))
        final = group.values["grown.t"]
        mean, sd = float(final.mean()), float(final.std(ddof=0))
        points.append(Point(MEAN, start, mean, group.ids, panel, mean - sd, mean + sd))
        points += [Point(EACH, start, float(t), (run,), panel) for run, t in zip(group.ids, final, strict=True)]
    lines = [Line("t = t₀", _DIAGONAL, _DIAGONAL, panel) for panel in PANELS]
    spans = {panel: dict.fromkeys((min(numbers), max(numbers))) for panel, numbers in counts.items()}
    titles = {panel: f"seeds per start: {' to '.join(map(str, span))}" for panel, span in spans.items()}
    notes = ["bars: one standard deviation; faint: each run", "t₀ = 0 stands for 0.0001"]
    return gathered.data(points, lines=lines, notes=notes, titles=titles)


SPEC = Spec(
    "figure5",
    "Figure 5: final against initial boundary, 1D regression",
    PANELS,
    make,
    3.2,
    len(PANELS),
    section="one_d",
    rank=4,
)
