"""Accuracy against count in vision and graphs: fixed models of every count, and where the learned counts lie.

The paper has no such figure; it shows whether a learned count is a good one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.selection import Selection
from experiments.figures.model import Data, Panel, Point, Spec, gather
from experiments.studies import study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIXED, FROM_LOW, FROM_HIGH = "fixed", "learned from low", "learned from high"
PANELS = {"": Panel("retained count", "test accuracy (%)")}
_FIXED_AT, _LOW_AT, _HIGH_AT = -0.25, 0.0, 0.25
"""Where a series stands within the lane of a count."""


def _selections(task: str, gate: str) -> tuple[Selection, dict[str | int, Selection]]:
    """The ten learned seeds of a row of table 8, and its fixed runs by count."""
    of = {"task": task, "gate": gate}
    (learned,) = [s for s in study("vision").make() if dict(s.choices).items() >= of.items()]
    alone = [s for s in study("vision_frontier").make() if dict(s.choices).items() >= of.items()]
    return learned, {dict(s.overrides)["method.count"]: s for s in alone}


def _make(task: str, gate: str, reader: Reader, overrides: Mapping[str, Any]) -> Data:
    learned, alone = _selections(task, gate)
    phases = {FIXED: "fixed", FROM_LOW: "grown", FROM_HIGH: "from_high"}
    selections = alone | dict[str | int, Selection](dict.fromkeys(phases, learned))
    quantities = {
        key: [f"{phase}.count", f"{phase}.truncated.accuracy"]
        for key in selections
        for phase in [phases[key] if isinstance(key, str) else "fixed"]
    }
    gathered = gather(reader, selections, quantities, overrides)
    pooled: dict[float, dict[int, tuple[str, float]]] = defaultdict(dict)
    points = []
    for key, group in gathered.groups.items():
        for n, run in enumerate(group.runs):
            count, accuracy = (float(group.values[name][n]) for name in quantities[key])
            if key in (FROM_LOW, FROM_HIGH):
                points.append(Point(str(key), count, accuracy, (run.run_id,)))
            else:
                # the fixed phase of a learned run is the same model as the fixed run of that count and seed
                pooled[count].setdefault(run.seed, (run.run_id, accuracy))
    for count, seeds in sorted(pooled.items()):
        values = np.array([value for _, value in seeds.values()])
        mean, sd = float(values.mean()), float(values.std(ddof=0))
        points.append(Point(FIXED, count, mean, tuple(name for name, _ in seeds.values()), "", mean - sd, mean + sd))
    notes = [
        "line: mean of the fixed models; bars: one standard deviation; numbers: seeds; learned: truncated, a seed each"
    ]
    return gathered.data(points, notes=notes)


def paint(figure: Figure, data: Data) -> None:
    """The frontier of fixed models with the learned ones over it."""
    from experiments.figures import style

    axes = figure.subplots()
    style.label(axes, PANELS[""])
    fixed = data.of("", FIXED)
    name = f"fixed, {sum(len(point.runs) for point in fixed)} trainings" if fixed else "fixed (not run)"
    style.bars(axes, fixed, style.LOOKS[0], name, _FIXED_AT)
    for point in fixed:
        end = point.y if point.low is None else point.low
        axes.annotate(
            str(len(point.runs)),
            (point.x + _FIXED_AT, end),
            xytext=(0, -3),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=6.5,
            color=style.BLUE,
        )
    for series, look, shift in ((FROM_LOW, style.LOOKS[1], _LOW_AT), (FROM_HIGH, style.LOOKS[2], _HIGH_AT)):
        points = data.of("", series)
        xs, ys = [], []
        for count in sorted({point.x for point in points}):
            same = [point for point in points if point.x == count]
            xs += [count + shift + offset for offset in style.spread(len(same), 0.14)]
            ys += [point.y for point in same]
        text = style.seeds(len(points)) if points else "not run"
        axes.plot(xs, ys, label=f"{series}, {text}", markersize=3.5, **look.dots)
    axes.margins(y=0.1)  # room for the number under the lowest bar
    style.lanes(axes, [1, *(round(point.x) for point in data.points)])
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    order = [name, *(text for text in handles if text != name)]
    axes.legend([handles[text] for text in order], order, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _spec(task: str, gate: str, title: str) -> Spec:
    def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
        return _make(task, gate, reader, overrides)

    return Spec(f"frontier_{task}_{gate}", f"Accuracy against count: {title}", PANELS, make, paint, 2.8)


SPECS = (
    _spec("mnist", "mlp", "MNIST, tanh MLP features"),
    _spec("mnist", "conv", "MNIST, convolution branches"),
    _spec("cifar10", "conv", "CIFAR-10, convolution branches"),
    _spec("cora", "gcn", "Cora, 2-hop GCN branches"),
)
