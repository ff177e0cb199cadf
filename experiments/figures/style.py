"""One look for all figures: a page column wide, fonts embedded, colours that differ in greyscale as well."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure

from experiments.figures.model import Curve, Data, Panel, Point, Spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours: told apart by people with any common colour blindness. Lines also differ in dash and weight,
# markers in shape and filling.
BLACK, BLUE, VERMILION, GREEN, ORANGE, GREY = "#000000", "#0072B2", "#D55E00", "#009E73", "#E69F00", "#666666"
WIDTH = 7.0
"""Inches: the text width of a page with 0.68 inch margins, rounded down."""

PNG_DPI = 200

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
}

STRONG: dict[str, Any] = {"alpha": 1.0, "linewidth": 1.3, "zorder": 3}
FAINT: dict[str, Any] = {"alpha": 0.25, "linewidth": 0.6, "zorder": 2}


@dataclass(frozen=True)
class Look:
    """How a series looks; two of them differ in more than colour."""

    color: str
    marker: str
    dash: str
    filled: bool = True

    @property
    def line(self) -> dict[str, Any]:
        """For a line without markers."""
        return {"color": self.color, "linestyle": self.dash}

    @property
    def dots(self) -> dict[str, Any]:
        """For markers without a line."""
        face = self.color if self.filled else "none"
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": "none",
            "markerfacecolor": face,
            "markeredgewidth": 0.7,
        }


LOOKS = (
    Look(BLUE, "o", "-"),
    Look(VERMILION, "s", "--", filled=False),
    Look(GREEN, "^", "-."),
    Look(BLACK, "x", ":", filled=False),
    Look(ORANGE, "D", (0, (5, 1, 1, 1, 1, 1)), filled=False),  # type: ignore[arg-type]
)
"""In the order in which series take them."""


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


def drawn(spec: Spec, data: Data) -> Figure:
    """The picture of a figure that has data, with its notes below."""
    with matplotlib.rc_context(RC):
        figure = new_figure(spec.height)
        spec.paint(figure, data)
        if data.notes:
            figure.supxlabel("\n".join(textwrap.wrap("; ".join(data.notes), 135)), fontsize=7, parse_math=False)
        return figure


def label(axes: Axes, panel: Panel, title: str | None = None) -> None:
    """Give the axes what their panel says; ``title`` replaces the panel's own."""
    axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    if panel.xlog:
        axes.set_xscale("log")
    if panel.ylog:
        axes.set_yscale("log")
    axes.set_title(panel.title if title is None else title)


def nothing(axes: Axes, text: str = "not run") -> None:
    """Say in empty axes why they are."""
    axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes.transAxes)


def bars(axes: Axes, points: Sequence[Point], look: Look, name: str, shift: float = 0.0) -> None:
    """A line through ``points`` with their error bars; ``shift`` moves them along x, clear of another series."""
    y = [p.y for p in points]
    low = [p.y - (p.y if p.low is None else p.low) for p in points]
    high = [(p.y if p.high is None else p.high) - p.y for p in points]
    axes.errorbar(
        [p.x + shift for p in points],
        y,
        yerr=[low, high],
        label=name,
        markersize=3.5,
        elinewidth=0.8,
        capsize=2,
        **{**look.dots, "linestyle": look.dash},
    )


def courses(axes: Axes, curves: Sequence[Curve]) -> None:
    """Thin lines, and dashed their median at each step where all have the same steps."""
    for curve in curves:
        axes.plot(curve.x, curve.y, color=BLUE, linewidth=0.7, alpha=0.6)
    if curves and all(np.array_equal(curve.x, curves[0].x) for curve in curves):
        middle = np.median([curve.y for curve in curves], axis=0)
        axes.plot(curves[0].x, middle, color=BLACK, linestyle="--", linewidth=1.3)


def lanes(axes: Axes, counts: Sequence[int]) -> None:
    """An axis of counts from the least to the largest, with a faint line between any two of them."""
    least, most = min(counts), max(counts)
    axes.set_xticks(range(least, most + 1))
    axes.set_xticks([count - 0.5 for count in range(least, most + 2)], minor=True)
    axes.tick_params(axis="x", which="minor", length=0)
    axes.grid(axis="x", which="minor", linewidth=0.4, alpha=0.6)
    axes.set_xlim(least - 0.5, most + 0.5)


def spread(number: int, width: float) -> list[float]:
    """Offsets for ``number`` markers at the same place, evenly over ``width`` and always the same."""
    if number < 2:
        return [0.0] * number
    return [width * (n / (number - 1) - 0.5) for n in range(number)]


def seeds(number: int) -> str:
    """``n = 10 seeds``."""
    return f"n = {number} seed{'' if number == 1 else 's'}"


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``name.pdf`` and ``name.png``, without a time stamp so that equal figures are equal files; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pdf, png = folder / f"{name}.pdf", folder / f"{name}.png"
    with matplotlib.rc_context(RC):
        # Not savefig: it draws each file twice, the first time only to lay the figure out, which is done here for both.
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)
        figure.set_layout_engine("none")
        FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})
        figure.set_dpi(PNG_DPI)
        FigureCanvasAgg(figure).print_png(png)
    return [pdf, png]
