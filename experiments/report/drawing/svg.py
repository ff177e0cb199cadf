"""Write figures as SVG files whose bytes change only with the picture."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ngn.files import write_atomically

RC: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "ngn"}
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
    write_atomically(path, text(figure).encode(), replace=True)
    return path


def text(figure: Figure) -> str:
    """Return a figure as the text of an SVG file.

    Equal figures give equal bytes in every process: the file has no date, version or random name. Coordinates have two
    decimals (of 1/72 inch); smaller differences between machines do not show.
    """
    drawn = io.StringIO()
    with matplotlib.style.context(["default", RC]):  # not what a user's matplotlibrc or this process has set
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
