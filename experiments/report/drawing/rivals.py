"""Draw the comparison with rivals, scores against costs: one panel a work, one line a method."""

from __future__ import annotations

import math
import re
from pathlib import Path

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.analysis import estimates
from experiments.report.drawing import style
from experiments.studies.front import BESIDE
from experiments.studies.rivals import CUT, LEVEL, LIMITS, METHODS, OWN, SCRATCH, WHOLE, WORKS

LOOKS = [
    style.Look(color, marker, dash)
    for dash, marker in (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"), ("-", "v"))
    for color in (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.GREY)
]
FRONT = {
    "dense": ("dense", style.Look(style.BLACK, "*", "-")),
    CUT: (CUT, style.Look(style.BLACK, "x", ":")),
    "one training": ("one training, steps of one", style.Look(style.GREY, "v", ":")),
    "one training, equal time": ("one training, time of all", style.Look(style.BLUE, "o", "-")),
    "one training, residual": ("one training, residual stream, too", style.Look(style.BLUE, "p", "--")),
    "one training, teacher": ("one training, a teacher", style.Look(style.GREEN, "^", "-")),
    **dict.fromkeys(OWN, ("a training a size, NGN", style.Look(style.ORANGE, "D", "-."))),
    SCRATCH: ("NGN's sizes, from scratch", style.Look(style.ORANGE, "d", ":")),
    "uniform width": ("a training a size, narrower", style.Look(style.VERMILION, "v", ":")),
    **dict.fromkeys(("even sizes", "magnitude"), ("a training a size, even", style.Look(style.VERMILION, "s", "--"))),
    **dict.fromkeys(("Torch-Pruning", "Torch-Pruning, local"), ("Torch-Pruning", style.Look(style.PURPLE, "P", "-."))),
}
"""Method → its name and style where one training stands beside one a size."""

FAR = 3.0
"""A method with a score this many times the range of the others' away from them is named, not drawn."""


def draw(units: pd.DataFrame, scale: str, path: Path) -> None:
    """Write the figure of ``units`` at equal steps as an SVG file: means over seeds, bars of Student's 95 %."""
    units = units[units.equal == "steps"]
    works = [name for name, work in WORKS.items() if work.scale == scale and name in set(units.work)]
    looks = FRONT if scale == "front" else dict(zip(METHODS, zip(METHODS, LOOKS, strict=False), strict=False))
    small = scale != "front"  # README shows that one on a phone, too
    sizes = {"legend.fontsize": 7.0} if small else {"font.size": 10.0, "axes.titlesize": 10.5, "legend.fontsize": 9.0}
    with matplotlib.style.context(["default", style.RC | sizes]):
        rows = math.ceil(len(works) / 3)
        figure = Figure(figsize=(style.WIDTH, 1.4 + 2.2 * rows), layout="constrained")
        panels = figure.subplots(rows, math.ceil(len(works) / rows), squeeze=False).flat
        for name, axes in zip(works, panels, strict=False):
            work, (these, beyond) = WORKS[name], without_far(units[units.work == name])
            beside = [method for method in METHODS if method in set(these.method) - {*WHOLE}]
            apart = max(0.2, (these.share.max() - these.share.min()) / 100)
            for method in METHODS:
                own = these[these.method == method]
                if method == "as given" and len(own):
                    axes.axhline(own.score.iloc[0], color="black", linewidth=0.8, label=method)
                elif len(own):
                    label, look = looks[method]
                    x, y, half = np.array([_point(of_share) for _, of_share in own.groupby("share")]).T
                    if method in beside:  # side by side, as methods have almost the same cost
                        x = x + apart * (beside.index(method) - (len(beside) - 1) / 2)
                    wide = {"zorder": 3, "linewidth": 2.0} if method in (work.together or OWN) else {"alpha": 0.8}
                    axes.errorbar(x, y, half, color=look.color, marker=look.marker, linestyle=look.dash,
                                  markersize=3 if small else 4.5, elinewidth=0.6, label=label, **wide)  # fmt: skip
            axes.set_xlabel(f"% of the dense {LIMITS[work.limited]}{beyond}")
            axes.set_xticks(ticks := sorted(set(these.share[these.method != "as given"])))
            if len(ticks) == 1:
                half = max(abs(end - ticks[0]) for end in axes.get_xlim())
                axes.set_xlim(ticks[0] - half, ticks[0] + half)
            axes.set_ylabel(work.unit)
            axes.set_title(re.sub(",? on .*", "", work.title))
            if work.better < 0:
                axes.invert_yaxis()
        for axes in panels:
            axes.set_axis_off()
        shown = {
            text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4 if small else 3)
    style.save(figure, path.parent, path.stem)


def few(units: pd.DataFrame) -> pd.DataFrame:
    """Return what README's figure shows: one training of every size, what it replaces, and the best-known rival."""
    beside = ("dense", "Torch-Pruning", "Torch-Pruning, local")
    these = (BESIDE[name] for name in ("front_narrow", "front20"))
    shown = {(work, method) for work, *both in these for method in (*beside, *both)}
    return units[[(row.work, row.method) in shown for row in units.itertuples()]]


def without_far(units: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Leave out a method that would squeeze all others into a line; return what says so, too."""
    for method in set(units.method) - {*OWN, *WHOLE}:
        there = units.method == method
        own, others = units.score[there], units.score[~there]
        gap = max(own.max() - others.max(), others.min() - own.min())
        if gap > FAR * (others.max() - others.min()) > 0:
            return units[~there], f"\n(not drawn: {method}, {own.mean():.2f})"
    return units, ""


def _point(units: pd.DataFrame) -> tuple[float, float, float]:
    """Mean cost in % of the dense one, mean score, and half of its interval, 0 for fewer than three seeds."""
    scores = units.score.to_numpy()
    interval = estimates.mean(scores).at(LEVEL) if len(scores) > 2 else None
    return units.part.mean(), scores.mean(), interval.high - interval.value if interval else 0.0
