"""Draw the comparison with rivals, scores against costs: one panel a work, one line a method."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from experiments.analysis import estimates
from experiments.report.drawing import style, svg
from experiments.studies.rivals import LEVEL, LIMITS, METHODS, OWN, WHOLE, WORKS, Unit

LOOKS = [
    style.Look(color, marker, dash)
    for dash, marker in (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))
    for color in (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.GREY)
]


FAR = 3.0
"""A method whose scores are this many times the range of the others' away from them is named, not drawn."""


def draw(units: list[Unit], scale: str, path: Path) -> None:
    """Write the figure of ``units`` at equal steps as an SVG file: means over seeds, bars of Student's 95 %."""
    units = [unit for unit in units if unit.equal == "steps" and WORKS[unit.work].scale == scale]
    works = [name for name in WORKS if any(unit.work == name for unit in units)]
    with matplotlib.rc_context(style.RC):
        rows = math.ceil(len(works) / 3)
        figure = Figure(figsize=(style.WIDTH, 1.4 + 2.2 * rows), layout="constrained")
        panels = figure.subplots(rows, math.ceil(len(works) / rows), squeeze=False).flat
        for axes, name in itertools.zip_longest(panels, works):
            if name is None:
                axes.set_axis_off()
                continue
            these, beyond = without_far([unit for unit in units if unit.work == name])
            shares, cutting = {unit.share for unit in these}, {unit.method for unit in these} - {*WHOLE}
            beside = [method for method in METHODS if method in cutting]
            apart = max(0.2, (max(shares) - min(shares)) / 100)
            for at, method in enumerate(METHODS):
                look = LOOKS[at]  # no method is left out where there are too few
                own = [unit for unit in these if unit.method == method]
                if method == "as given" and own:
                    axes.axhline(own[0].score, color="black", linewidth=0.8, label=method)
                elif own:
                    points = np.array([_point(own, share) for share in sorted({unit.share for unit in own})])
                    x, y, half = points.T
                    if method in beside:  # side by side, as methods have almost the same cost
                        x = x + apart * (beside.index(method) - (len(beside) - 1) / 2)
                    wide = {"zorder": 3, "linewidth": 2.0} if method in OWN else {"alpha": 0.8}
                    axes.errorbar(x, y, half, color=look.color, marker=look.marker, linestyle=look.dash, markersize=3,
                                  elinewidth=0.6, label=method, **wide)  # fmt: skip
            work = WORKS[name]
            axes.set_xlabel(f"% of the dense {LIMITS[work.limited]}{beyond}")
            axes.set_xticks(ticks := sorted({unit.share for unit in these if unit.method != "as given"}))
            if len(ticks) == 1:
                half = max(abs(end - ticks[0]) for end in axes.get_xlim())
                axes.set_xlim(ticks[0] - half, ticks[0] + half)
            axes.set_ylabel(work.unit)
            axes.set_title(re.sub(",? on .*", "", work.title))
            if work.better < 0:
                axes.invert_yaxis()
        shown = {
            text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4, fontsize=7)
    svg.save(figure, path.parent, path.stem)


def without_far(units: list[Unit]) -> tuple[list[Unit], str]:
    """Leave out a method that would squeeze all others into a line; return what says so, too."""
    for method in {unit.method for unit in units} - {*OWN, *WHOLE}:
        own = [unit.score for unit in units if unit.method == method]
        others = [unit.score for unit in units if unit.method != method]
        gap = max(min(own) - max(others), min(others) - max(own))
        if gap > FAR * (max(others) - min(others)) > 0:
            return [unit for unit in units if unit.method != method], f"\n(not drawn: {method}, {np.mean(own):.2f})"
    return units, ""


def _point(units: list[Unit], share: int) -> tuple[float, float, float]:
    """Mean cost in % of the dense one, mean score, and half of its interval, 0 for fewer than three seeds."""
    these = [unit for unit in units if unit.share == share]
    cost = [unit.part for unit in these]
    scores = np.array([u.score for u in these])
    interval = estimates.mean(scores).at(LEVEL) if len(scores) > 2 else None
    return float(np.mean(cost)), float(scores.mean()), interval.high - interval.value if interval else 0.0
