"""Figure 6: training goes on from a converged model at another price: the shared course, then three branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.config.schema import branch_phase
from experiments.figures.model import Curve, Data, Panel, Spec, gather
from experiments.tables.one_d import CONTINUED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_SEED = 0
"""Drawn strongly; fixed beforehand, as for the numbers of the standard run."""
SHARED = "shared training"
PANELS = {
    "t": Panel("training step", "boundary t"),
    "mse": Panel("training step", "task MSE", ylog=True),
}
_COURSES = {"t": "t", "mse": "task"}
FACTORS: tuple[float, ...] = dict(CONTINUED.overrides)["continue_with"]


def branch(factor: float) -> str:
    """The series of the branch with that factor of the price."""
    return f"{factor:g} × λ₀"


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """In each panel the series of the shared course and of the branches, whose steps go on from its end."""
    quantities = ["grown.t", *(f"{branch_phase(factor)}.t" for factor in FACTORS)]
    gathered = gather(reader, {"": CONTINUED}, quantities, overrides, unit="seeds")
    curves = []
    for run in gathered.groups[""].runs:
        stored = reader.store.curves(run.run_id)
        if stored is None:
            continue
        end = run.record["phases"]["grown"]["steps"]
        parts = [(SHARED, "grown", 0), *((branch(factor), branch_phase(factor), end) for factor in FACTORS)]
        for series, phase, start in parts:
            step = stored[f"{phase}.step"] + start
            for panel, course in _COURSES.items():
                y = stored[f"{phase}.{course}"].reshape(len(step), -1)[:, 0]
                curves.append(Curve(series, run.run_id, run.seed, step, y, panel))
    notes = [f"strong lines: seed {SHOWN_SEED}; faint lines: the others"] if gathered.found > 1 else []
    return gathered.data(curves=curves, notes=["dashed: the schedules start again", *notes])


def paint(figure: Figure, data: Data) -> None:
    """The boundary above the error, on one axis of steps, the branch point dashed."""
    from experiments.figures import style

    places = figure.subplots(2, 1, sharex=True)
    looks = {SHARED: style.LOOKS[3], **dict(zip(map(branch, FACTORS), style.LOOKS, strict=False))}
    shared = data.curves_of("t", SHARED)
    for axes, (key, panel) in zip(places, PANELS.items(), strict=True):
        for series, look in looks.items():
            for n, curve in enumerate(data.curves_of(key, series)):
                weight = style.STRONG if curve.seed == SHOWN_SEED else style.FAINT
                axes.plot(curve.x, curve.y, label=series if n == 0 else None, **look.line, **weight)
        for end in {float(np.max(curve.x)) for curve in shared}:
            axes.axvline(end, color=style.GREY, linestyle="--", linewidth=0.8, zorder=1)
        style.label(axes, panel, "")
        axes.label_outer()
    if not data.curves:
        style.nothing(places[0], "no curves stored")
        return
    places[0].set_ylim(bottom=0)
    places[0].set_title(f"Continued training, {style.seeds(len(shared))}", pad=18)
    legend = places[0].legend(loc="lower center", bbox_to_anchor=(0.5, 0.97), ncols=4)
    for line in legend.get_lines():
        line.set(alpha=1.0, linewidth=style.STRONG["linewidth"])


SPEC = Spec("figure6", "Figure 6: continued training at three prices, 1D regression", PANELS, make, paint, 3.8)
