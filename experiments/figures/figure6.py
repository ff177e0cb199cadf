"""Figure 6: training continues from a converged model at other prices: the shared part, then three branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Curve, Data, Line, Panel, Spec
from experiments.analysis.gather import gather
from experiments.config.schema import branch_phase
from experiments.tables.one_d import CONTINUED

SHOWN_SEED = 0
"""The seed drawn strongly. It was fixed in advance, as for the numbers of the standard run."""
SHARED = "shared training"
PANELS = {
    "t": Panel("training step", "boundary t", "Boundary"),
    "mse": Panel("training step", "task MSE", "Error", ylog=True),
}
_COURSES = {"t": "t", "mse": "task"}
FACTORS: tuple[float, ...] = dict(CONTINUED.overrides)["continue_with"]


def branch(factor: float) -> str:
    """Name the series of the branch with this factor of the price."""
    return f"{factor:g} × λ₀"


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make curves of the shared training and of the branches, whose steps continue from its end."""
    quantities = ["grown.t", *(f"{branch_phase(factor)}.t" for factor in FACTORS)]
    gathered = gather(reader, {"": CONTINUED}, quantities, overrides, unit="seeds")
    curves = []
    for run in gathered.groups[""].runs:
        stored = reader.store.curves(run.run_id)
        if stored is None:
            continue
        end = run.record["phases"]["grown"]["steps"]
        parts = [*((branch(factor), branch_phase(factor), end) for factor in FACTORS), (SHARED, "grown", 0)]
        for series, phase, start in parts:
            step = stored[f"{phase}.step"] + start
            for panel, course in _COURSES.items():
                y = stored[f"{phase}.{course}"].reshape(len(step), -1)[:, 0]
                curves.append(Curve(series, run.run_id, run.seed, step, y, panel, run.seed == SHOWN_SEED))
    lines = []
    for panel in PANELS:
        shown = [curve for curve in curves if curve.panel == panel]
        values = np.concatenate([curve.y for curve in shown]) if shown else np.zeros(0)
        for start in {float(curve.x[0]) for curve in shown if curve.series != SHARED}:
            ends = np.array([values.min(), values.max()])
            lines.append(Line("the schedules start again", np.repeat(start, 2), ends, panel))
    notes = [f"strong: seed {SHOWN_SEED}; faint: the other seeds"] if gathered.found > 1 else []
    return gathered.data(curves=curves, lines=lines, notes=notes, courses=dict.fromkeys(PANELS, ""))


SPEC = Spec(
    "figure6", "Figure 6: continued training at three prices, 1D regression", PANELS, make, 4.4, section="one_d", rank=5
)
