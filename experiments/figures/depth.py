"""What each of ten layers keeps when every layer learns its own size; the paper has no such figure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from experiments.analysis.collect import Reader, Run
from experiments.figures.model import Data, Panel, Point, Spec, gather
from experiments.studies import study
from experiments.tables.transfer import NINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEDIAN, EACH = "median over seeds", "each run"
_TITLES = {
    "const-const": "λ constant, r constant",
    "const-inc": "λ constant, r rising",
    "dec-const": "λ falling, r constant",
    "dec-inc": "λ falling, r rising",
}
PANELS = {key: Panel("layer", "tanh components kept", title) for key, title in _TITLES.items()}
"""By the key of the table's row."""


def kept(run: Run) -> list[int]:
    """How many components a run keeps in each layer beside the identity, which the last layer does not have."""
    *inner, last = run.record["phases"]["grown"]["count"]
    return [*(count - 1 for count in inner), last]


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """In each panel the series of runs and the series of medians, at every layer."""
    seeds = study("depth").make()[0].seeds
    selections = {row.key: row.runs.with_seeds(seeds) for row in NINE.rows if row.runs is not None}
    gathered = gather(reader, selections, ["grown.depth"], overrides)
    points: list[Point] = []
    for key, group in gathered.groups.items():
        rows = [(run, kept(run)) for run in group.runs]
        for layer in range(len(rows[0][1]) if rows else 0):
            counts = [counts[layer] for _, counts in rows]
            points.append(Point(MEDIAN, layer + 1, median(counts), group.ids, key))
            points += [Point(EACH, layer + 1, counts[layer], (run.run_id,), key) for run, counts in rows]
    notes = [
        "lines: median over seeds; dots: each seed",
        "a layer that keeps none is the identity and is removed; the depth is the number of the others",
    ]
    return gathered.data(points, notes=notes)


def depths(data: Data, panel: str) -> list[int]:
    """The learned depth of each run of a panel."""
    found: dict[str, int] = {}
    for point in data.of(panel, EACH):
        found[point.runs[0]] = found.get(point.runs[0], 0) + (point.y > 0)
    return sorted(found.values())


def paint(figure: Figure, data: Data) -> None:
    """Four panels on common axes."""
    from experiments.figures import style

    places = figure.subplots(1, 4, sharex=True, sharey=True)
    for axes, (key, panel), look in zip(places, PANELS.items(), style.LOOKS, strict=False):
        found = depths(data, key)
        said = "not run"
        if found:
            spread = f"{found[0]}" if found[0] == found[-1] else f"{found[0]} to {found[-1]}"
            said = f"depth {spread}\n{style.seeds(len(found))}"
        style.label(axes, panel, f"{panel.title}\n{said}")
        axes.label_outer()
        each: dict[float, list[Point]] = {}
        for point in data.of(key, EACH):
            each.setdefault(point.x, []).append(point)
        for at in each.values():
            for point, shift in zip(at, style.spread(len(at), 0.6), strict=True):
                axes.plot(point.x + shift, point.y, ".", color=look.color, markersize=2, alpha=0.5, zorder=1)
        style.bars(axes, data.of(key, MEDIAN), look, MEDIAN)
    places[0].set(xticks=range(1, 11, 3), yticks=range(0, 11, 2))


SPEC = Spec("depth_layers", "Learned depth: what each layer keeps", PANELS, make, paint, 2.5)
