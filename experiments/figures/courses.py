"""The boundary over training under the six schedules of table 4; the paper has no such figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.analysis.collect import Reader
from experiments.figures.model import Data, Panel, Spec, boundaries, gather
from experiments.tables.one_d import FOUR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {
    "baseline": "baseline",
    "lambda_const": "λ constant",
    "alpha_const": "α constant",
    "no_alpha": "α = 0",
    "beta4": "β = 4 constant",
    "beta15": "β = 15 constant",
}
PANELS = {key: Panel("training step", "boundary t", title) for key, title in _TITLES.items()}
"""By the key of the table's row."""

THIN = "thin: each seed; dashed: median over the seeds at each step"


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """A panel for each schedule, a curve "t" for each seed."""
    selections = {row.key: row.runs for row in FOUR.rows if row.runs is not None}
    gathered = gather(reader, selections, ["grown.t"], overrides)
    curves = [c for key, group in gathered.groups.items() for c in boundaries(reader, group, key)]
    return gathered.data(curves=curves, notes=[THIN])


def paint(figure: Figure, data: Data) -> None:
    """Six panels on common axes."""
    from experiments.figures import style

    rows = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, (key, panel) in zip(rows.flat, PANELS.items(), strict=True):
        curves = data.curves_of(key)
        style.label(axes, panel, f"{panel.title}, {style.seeds(len(curves)) if curves else 'not run'}")
        axes.label_outer()
        style.courses(axes, curves)
    rows.flat[0].set_ylim(bottom=0)


SPEC = Spec("schedule_courses", "The boundary over training under six schedules", PANELS, make, paint, 3.8)
