"""Figure 5: where the boundary ends against where it starts: whether it both grows and prunes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.analysis.collect import Reader
from experiments.analysis.reductions import init_sweep
from experiments.figures.model import Data, Panel, Point, Spec, gather

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEAN, EACH = "mean final t", "each run"
PANELS = {panel.key: Panel("initial boundary t", "final boundary t", panel.title) for panel in init_sweep.PANELS}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """In each panel the series of means, with one population standard deviation to either side, and one of runs."""
    selections = {
        (panel.key, start): panel.start(start).with_seeds(init_sweep.SEEDS)
        for panel in init_sweep.PANELS
        for start in init_sweep.STARTS
    }
    gathered = gather(reader, selections, ["grown.t"], overrides)
    points = []
    for (panel, start), group in gathered.groups.items():
        if not group.runs:
            continue
        final = group.values["grown.t"]
        mean, sd = float(final.mean()), float(final.std(ddof=0))
        points.append(Point(MEAN, start, mean, group.ids, panel, mean - sd, mean + sd))
        points += [Point(EACH, start, float(t), (run,), panel) for run, t in zip(group.ids, final, strict=True)]
    notes = [
        "lines: mean; bars: one standard deviation; faint: each run; dotted: the boundary stays where it starts",
        "a start of 0 is 0.0001",
    ]
    return gathered.data(points, notes=notes)


def paint(figure: Figure, data: Data) -> None:
    """Three panels on common axes, the diagonal dotted."""
    from experiments.figures import style

    places = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, (key, panel), look in zip(places, PANELS.items(), style.LOOKS, strict=False):
        means, each = data.of(key, MEAN), data.of(key, EACH)
        counts = sorted({len(point.runs) for point in means})
        seeds = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}" if counts else "not run"
        style.label(axes, panel, f"{panel.title}\n{seeds}{' seeds a start' if counts else ''}")
        if axes is not places[0]:
            axes.set_ylabel("")
        axes.plot([0, 16], [0, 16], color=style.GREY, linestyle=":", linewidth=0.8, zorder=1)
        axes.plot([p.x for p in each], [p.y for p in each], ".", color=look.color, markersize=1.5, alpha=0.2, zorder=1)
        style.bars(axes, means, look, MEAN)
    places[0].set(xticks=range(0, 17, 4), yticks=range(0, 21, 4))


SPEC = Spec("figure5", "Figure 5: final against initial boundary, 1D regression", PANELS, make, paint, 2.9)
