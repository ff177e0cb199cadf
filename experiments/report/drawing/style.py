"""The common style of all figures: one column wide, with colours that also differ in greyscale; and their SVG files."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.style
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.analysis.figures import Data, Panel, Point, Spec
from ngn.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours: told apart by people with any common colour blindness. Lines also differ in dash and weight,
# markers in shape and filling.
BLACK, BLUE, VERMILION, GREEN, ORANGE, GREY = "#000000", "#0072B2", "#D55E00", "#009E73", "#E69F00", "#666666"
PURPLE = "#CC79A7"
WIDTH = 7.0
"""Inches: the text width of a page with 0.68 inch margins, rounded down."""

RC: dict[Any, Any] = {
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.formatter.useoffset": False,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}

STRONG: dict[str, Any] = {"alpha": 1.0, "linewidth": 1.3, "zorder": 3}
FAINT: dict[str, Any] = {"alpha": 0.25, "linewidth": 0.6, "zorder": 2}


@dataclass(frozen=True)
class Look:
    """The style of a series. Any two differ in more than colour."""

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
    Look(GREY, "v", (0, (1, 2))),  # type: ignore[arg-type]
    Look(PURPLE, "P", (0, (8, 2))),  # type: ignore[arg-type]
)
"""Styles in the order in which series take them; no figure has more series."""


def draw(spec: Spec, data: Data) -> Figure:
    """Draw a figure: title, legend, panels, and the caption below; "not run" without data.

    Panels share an axis if it has the same label and scale in all of them.
    """
    with matplotlib.style.context(["default", RC]):
        caption = textwrap.wrap(data.caption, 125)
        figure = Figure(figsize=(WIDTH, spec.height + 0.14 * len(caption)), layout="constrained")
        if caption:
            figure.supxlabel("\n".join(caption), fontsize=7, parse_math=False)
        if data.empty:
            axes = figure.subplots()
            axes.set_axis_off()
            axes.set_title(spec.title)
            axes.text(0.5, 0.5, "not run", ha="center", va="center", fontsize=18, color=GREY)
            return figure
        rows = -(-len(spec.panels) // spec.columns)
        sharex, sharey = (
            len({(getattr(panel, f"{axis}label"), getattr(panel, f"{axis}log")) for panel in spec.panels.values()}) == 1
            for axis in "xy"
        )
        places = figure.subplots(rows, spec.columns, squeeze=False, sharex=sharex, sharey=sharey).flat
        looks = {name: LOOKS[at] for name, at in data.looks(spec.panels).items()}
        for axes, (key, panel) in zip(places, spec.panels.items(), strict=True):
            _panel(axes, panel, key, data, looks)
            place = axes.get_subplotspec()
            assert place is not None, "it is one of the subplots"
            if sharex and not place.is_last_row():
                axes.set_xlabel("")
                axes.tick_params(labelbottom=False)
            if sharey and not place.is_first_col():
                axes.set_ylabel("")
                axes.tick_params(labelleft=False)
        _legend(figure, spec.title, list(looks))
        return figure


def _panel(axes: Axes, panel: Panel, key: str, data: Data, looks: Mapping[str, Look]) -> None:
    """Draw curves, lines and points of one panel."""
    axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel, title=data.title(key, panel))
    if panel.xlog:  # setting the default again would reset the ticks of panels that share the axis
        axes.set_xscale("log")
    if panel.ylog:
        axes.set_yscale("log")
    for curve in data.curves_of(key):
        weight = STRONG if curve.strong else FAINT
        axes.plot(curve.x, curve.y, label=curve.series, **looks[curve.series].line, **weight)
    for line in (line for line in data.lines if line.panel == key):
        span = len(line.x) == 2
        dash = ":" if not line.runs else "-" if span else "--"
        marker = "|" if span and line.label else None
        joined = looks.get(line.series)  # a line through points that are in the legend
        color = joined.color if joined else BLACK if line.runs else GREY
        label = f"_{line.series}" if joined else line.series
        axes.plot(line.x, line.y, dash, marker=marker, label=label, color=color, linewidth=1.1, zorder=4)
        if line.label:
            middle = float(line.x.prod() ** 0.5 if panel.xlog else line.x.mean()), float(line.y.mean())
            _number(axes, line.label, middle, BLACK)
    points: dict[str, list[Point]] = {}
    for point in data.of(key):
        points.setdefault(point.series, []).append(point)
    for name in dict.fromkeys([*panel.series, *points]):
        _points(axes, name, points.get(name, []), looks[name], data.fewest(key, panel))
    if points and not panel.ylog and all(float(point.y).is_integer() for point in data.of(key)):
        axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))  # integer ticks for ranks
    if panel.labels:
        axes.set_xticks(range(len(panel.labels)), panel.labels, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_xlim(-0.5, len(panel.labels) - 0.5)
    if panel.lanes:
        lanes(axes, [round(point.x) for point in data.of(key)])
    if not (points or data.curves_of(key)):
        axes.text(0.5, 0.5, data.lack(key), ha="center", va="center", color=GREY, transform=axes.transAxes)
    axes.margins(y=0.08)  # room for a number at the lowest or highest point


def _points(axes: Axes, name: str, points: Sequence[Point], look: Look, fewest: int | None) -> None:
    """Draw runs as dots and means joined by a line, with bars; print the number of runs up to ``fewest``."""
    x, y = [p.x + p.shift for p in points], [p.y for p in points]
    single = all(len(point.runs) == 1 for point in points)
    if not points:
        axes.plot([], [], label=f"{name} (not run)", **look.dots)
    elif points[0].faint:
        axes.plot(x, y, ".", label=name, color=look.color, markersize=1.8, alpha=0.35, zorder=1)
    elif single and not any(point.low or point.high for point in points):
        axes.plot(x, y, label=name, markersize=2.2 if len(points) > 100 else 3.5, alpha=0.85, **look.dots)
    else:
        low = [0.0 if p.low is None else p.y - p.low for p in points]
        high = [0.0 if p.high is None else p.high - p.y for p in points]
        whole = look.dots if single else {**look.dots, "linestyle": look.dash}
        if any(low) or any(high):
            axes.errorbar(x, y, yerr=[low, high], label=name, markersize=3.5, elinewidth=0.8, capsize=2, **whole)
        else:
            axes.plot(x, y, label=name, markersize=3.5, **whole)
    for point in points if points and not points[0].faint else ():
        if len(point.runs) <= (fewest or 0) and any(len(other.runs) > 1 for other in points):
            _number(axes, str(len(point.runs)), (point.x + point.shift, point.high or point.y), look.color)


def _number(axes: Axes, text: str, at: tuple[float, float], color: str) -> None:
    """Print a small number above a point."""
    axes.annotate(text, at, (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=6.5, color=color)


def _legend(figure: Figure, title: str, order: list[str]) -> None:
    """Draw one legend for all panels below the title; lines come last. Without entries the title stands alone."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    for name in [*entries]:
        entries.pop(f"{name} (not run)", None)  # one panel lacks the series, another has it
    places = {name: at for at, known in enumerate(order) for name in (known, f"{known} (not run)")}
    names = sorted(entries, key=lambda name: places.get(name, len(order)))
    handles = [entries[name] for name in names]
    if not names:
        figure.suptitle(title, fontsize=9.5)
        return
    for columns in range(min(len(names), 5), 0, -1):  # as many columns as fit
        legend = figure.legend(
            handles, names, loc="outside upper center", ncols=columns, title=title, title_fontsize=9.5
        )
        if legend.get_window_extent().width <= figure.bbox.width:
            break
        if columns > 1:
            legend.remove()
    for entry in legend.legend_handles:
        if entry is not None:
            entry.set_alpha(1.0)


def lanes(axes: Axes, counts: Sequence[int]) -> None:
    """Make an axis of counts from the least to the largest, with faint lines between neighbours."""
    least, most = min(counts), max(counts)
    axes.set_xticks(range(least, most + 1))
    axes.set_xticks([count - 0.5 for count in range(least, most + 2)], minor=True)
    axes.tick_params(axis="x", which="minor", length=0)
    axes.grid(axis="x", which="minor", linewidth=0.4, alpha=0.6)
    axes.set_xlim(least - 0.5, most + 0.5)


SVG_RC: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "ngn"}
"""Text stays text, in fonts of nearly the same width; names of shared shapes depend on their content alone."""
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))

_COORDINATES = re.compile(r'(?<= d=")[^"]+|(?<= x=")[^"]+|(?<= y=")[^"]+')
_DECIMAL = re.compile(r"-?\d+\.\d+")
_NO_ROTATION = re.compile(r' transform="rotate\(-0 [^)]*\)"')
_ALIKE = re.compile(
    r'( *<use [^>]*?(?P<style> style="(?!opacity|[^"]*; opacity)[^"]*")/>\n)(?: *<use [^>]*(?P=style)/>\n)+'
)
"""Markers of one style, one after the other. Opacity as such is left alone: of a group it means something else."""


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write ``name.svg`` and return its path."""
    path = folder / f"{name}.svg"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, svg(figure).encode(), replace=True)
    return path


def svg(figure: Figure) -> str:
    """Return a figure as the text of an SVG file.

    Equal figures give equal bytes in every process: the file has no date, version or random name. Coordinates have two
    decimals (of 1/72 inch); smaller differences between machines do not show.
    """
    drawn = io.StringIO()
    with matplotlib.style.context(["default", SVG_RC]):  # not what a user's matplotlibrc or this process has set
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)  # print_svg would draw the figure twice, the first time only for its layout
        figure.set_layout_engine("none")
        FigureCanvasSVG(figure).print_svg(drawn, metadata=NO_METADATA)
    return compact(drawn.getvalue())


def compact(svg: str) -> str:
    """Shrink the file without changing the picture: round coordinates, and group markers of one style."""
    svg = _COORDINATES.sub(lambda found: _DECIMAL.sub(_rounded, found[0]), _NO_ROTATION.sub("", svg))
    svg = _ALIKE.sub(lambda run: f"<g{run['style']}>\n{run[0].replace(run['style'], '')}</g>\n", svg)
    return re.sub(r"^ +| +$", "", svg, flags=re.MULTILINE)


def _rounded(number: re.Match[str]) -> str:
    short = f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short
