"""Figure 1: the 1D baseline. Left: objective, task MSE and boundary over training. Right: the norm of each f_k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.analysis.collect import Reader
from experiments.figures.model import Curve, Data, Panel, Point, Spec, gather
from experiments.tables.one_d import BASELINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_SEED = 0
"""Drawn strongly; fixed beforehand, as for the numbers of the standard run."""
_COURSES = {"total loss": "grown.loss", "task MSE": "grown.task", "t": "grown.t"}

PANELS = {
    "training": Panel("training step", "loss", "Training", ylog=True),
    "t": Panel("training step", "boundary t", "Training"),
    "norms": Panel("k", "‖fₖ‖₂", "Norms of the functions"),
}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Curves in the panels "training" and "t"; in "norms" a series for each seed."""
    gathered = gather(reader, {"baseline": BASELINE}, ["grown.t"], overrides, unit="seeds")
    points, curves = [], []
    for run in gathered.groups["baseline"].runs:
        stored = reader.store.curves(run.run_id)
        for series, name in _COURSES.items():
            if stored is None:
                break
            course = stored[name].reshape(len(stored["grown.step"]), -1)[:, 0]
            panel = "t" if series == "t" else "training"
            curves.append(Curve(series, run.run_id, run.seed, stored["grown.step"], course, panel))
        norms = run.record["phases"]["grown"].get("norms") or ()
        points += [Point(f"seed {run.seed}", k, norm, (run.run_id,), "norms") for k, norm in enumerate(norms)]
    notes = (
        [f"strong lines and bars: seed {SHOWN_SEED}; faint lines and dots: the others"] if gathered.found > 1 else []
    )
    return gathered.data(points, curves, notes)


def _training(axes: Axes, data: Data) -> None:
    from experiments.figures import style

    counts = axes.twinx()
    counts.spines["right"].set_visible(True)
    for series, look in zip(_COURSES, style.LOOKS, strict=False):
        for n, curve in enumerate(data.curves_of("t" if series == "t" else "training", series)):
            name = f"{series} (right)" if series == "t" else series
            weight = style.STRONG if curve.seed == SHOWN_SEED else style.FAINT
            (counts if series == "t" else axes).plot(
                curve.x, curve.y, label=name if n == 0 else None, **look.line, **weight
            )
    style.label(axes, PANELS["training"])
    axes.set_title(f"Training, {style.seeds(len(data.curves_of('t')))}", pad=18)
    counts.set_ylabel(PANELS["t"].ylabel)
    counts.set_ylim(bottom=0)
    (lines, names), (more_lines, more_names) = axes.get_legend_handles_labels(), counts.get_legend_handles_labels()
    # above the axes, where it can cover no curve
    legend = axes.legend(
        lines + more_lines, names + more_names, loc="lower center", bbox_to_anchor=(0.5, 0.99), ncols=3
    )
    for line in legend.get_lines():
        line.set(alpha=1.0, linewidth=style.STRONG["linewidth"])


def _norms(axes: Axes, data: Data) -> None:
    from experiments.figures import style

    points = data.of("norms")
    shown = data.of("norms", f"seed {SHOWN_SEED}")
    others = [point for point in points if point not in shown]
    axes.bar([p.x for p in shown], [p.y for p in shown], color=style.BLUE, width=0.7, zorder=2)
    axes.plot([p.x for p in others], [p.y for p in others], ".", color=style.GREY, markersize=2.5, alpha=0.7, zorder=3)
    style.label(axes, PANELS["norms"])
    axes.set_title(f"Norms of the functions, {style.seeds(len({p.runs for p in points}))}", pad=18)


def paint(figure: Figure, data: Data) -> None:
    """Two panels; what was not stored is said."""
    from experiments.figures import style

    left, right = figure.subplots(1, 2)
    _training(left, data)
    _norms(right, data)
    if not data.curves:
        style.nothing(left, "no curves stored")
    if not data.points:
        style.nothing(right, "no norms stored")


SPEC = Spec("figure1", "Figure 1: 1D regression, baseline", PANELS, make, paint)
