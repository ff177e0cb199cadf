"""One look for all figures: a page column wide, fonts embedded, colours that differ in greyscale as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by people with any common colour blindness. Lines also differ in dash and weight.
BLUE, VERMILION, GREEN, ORANGE, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#666666"
WIDTH = 7.0
"""Inches: the text width of a page with 0.68 inch margins, rounded down."""

RC: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
}


def new_figure(height: float = 2.6) -> Figure:
    """An empty figure of the common width; ``height`` in inches. No window system is touched."""
    with matplotlib.rc_context(RC):
        return Figure(figsize=(WIDTH, height), layout="constrained")


def not_run(title: str) -> Figure:
    """What stands in place of a figure that has no records."""
    with matplotlib.rc_context(RC):
        figure = new_figure()
        axes = figure.subplots()
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not run", ha="center", va="center", fontsize=18, color=GREY, transform=axes.transAxes)
        axes.set_title(title)
        return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``name.pdf`` and ``name.png``, without a time stamp so that equal figures are equal files; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.pdf", folder / f"{name}.png"]
    with matplotlib.rc_context(RC):
        figure.savefig(paths[0], metadata={"CreationDate": None})
        figure.savefig(paths[1])
    return paths
