"""Figure 1: the 1D baseline: objective and task MSE over training, the boundary, and the norm of each f_k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import EACH, Curve, Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.tables.one_d import BASELINE

SHOWN_SEED = 0
"""The seed drawn strongly. It was fixed in advance, as for the numbers of the standard run."""
_COURSES = {"total loss": "grown.loss", "task MSE": "grown.task", "boundary t": "grown.t"}

PANELS = {
    "training": Panel("training step", "loss", "Loss", ylog=True),
    "t": Panel("training step", "boundary t", "Boundary"),
    "norms": Panel("k", "‖fₖ‖₂ (without its weight wₖ)", "Norms of the functions"),
}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make curves in the panels "training" and "t"; in "norms", points of the shown seed and of the others."""
    gathered = gather(reader, {"baseline": BASELINE}, ["grown.t"], overrides, unit="seeds")
    points: list[Point] = []
    curves: list[Curve] = []
    lines: list[Line] = []
    for run in gathered.groups["baseline"].runs:
        shown = run.seed == SHOWN_SEED
        stored = reader.store.curves(run.run_id) or {}
        for series, name in _COURSES.items() if stored else ():
            course = stored[name].reshape(len(stored["grown.step"]), -1)[:, 0]
            panel = "t" if name == "grown.t" else "training"
            curves.append(Curve(series, run.run_id, run.seed, stored["grown.step"], course, panel, shown))
        grown = run.record["phases"]["grown"]
        norms = grown.get("norms") or ()
        series = f"seed {SHOWN_SEED}" if shown else EACH
        points += [Point(series, k, norm, (run.run_id,), "norms") for k, norm in enumerate(norms)]
        if shown and norms:
            ends = np.array([0.0, max(norms)])
            lines.append(Line("boundary t of seed 0", np.repeat(grown["t"], 2), ends, "norms", (run.run_id,)))
    notes = [f"strong: seed {SHOWN_SEED}; faint: the other seeds"] if gathered.found > 1 else []
    return gathered.data(points, curves, lines, notes, courses={"training": "baseline", "t": "baseline"})


SPEC = Spec("figure1", "Figure 1: 1D regression, baseline", PANELS, make, 2.9, 3, section="one_d", rank=1)
