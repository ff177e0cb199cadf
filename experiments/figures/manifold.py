"""The boundary over training for each intrinsic dimension; the paper has no such figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.analysis.collect import Reader
from experiments.figures.courses import THIN
from experiments.figures.model import Data, Panel, Spec, boundaries, gather
from experiments.tables.vae import FIFTEEN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {row.key: Panel("training step", "boundary t", f"D = {row.key}") for row in FIFTEEN.rows}
"""By the key of the table's row, which is the dimension."""


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """A panel for each dimension: a curve "t" for each seed."""
    selections = {row.key: row.runs for row in FIFTEEN.rows if row.runs is not None}
    gathered = gather(reader, selections, ["grown.count"], overrides, own_data=True)
    curves = [c for key, group in gathered.groups.items() for c in boundaries(reader, group, key)]
    return gathered.data(curves=curves, notes=[THIN, "dotted: t = D − 1, where exactly D terms are kept"])


def paint(figure: Figure, data: Data) -> None:
    """A panel for each dimension on common axes."""
    from experiments.figures import style

    places = figure.subplots(1, len(PANELS), sharex=True, sharey=True)
    for axes, (key, panel) in zip(places, PANELS.items(), strict=True):
        curves = data.curves_of(key)
        style.label(axes, panel, f"{panel.title}\n{style.seeds(len(curves)) if curves else 'not run'}")
        axes.label_outer()
        axes.axhline(int(key) - 1, color=style.GREY, linestyle=":", linewidth=0.8, zorder=1)
        style.courses(axes, curves)
        axes.locator_params(axis="x", nbins=2)
    places[0].set_ylim(bottom=-0.2)


SPEC = Spec("manifold_courses", "Intrinsic dimension: the boundary over training", PANELS, make, paint, 2.5)
