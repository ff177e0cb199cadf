"""A small drawing beside an interval, with the published value and ours."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from experiments.analysis.compare import Comparison
from experiments.analysis.verdict import TestedNumber

WIDTH, HEIGHT, MARGIN = 92, 14, 5
WIDE = 30.0
"""The axis is logarithmic if the ratio of the largest to the smallest (positive) number exceeds this."""


def _ours(item: Comparison, part: TestedNumber) -> float | None:
    """Return our number for a part, which belongs to one gate; None if our format prints another statistic."""
    entry = (item.cell.value or {}).get(part.name)
    return None if entry is None else float(np.ravel(entry)[0])


def strip(item: Comparison, part: TestedNumber) -> Markup:
    """Draw the interval as a bar, the published value as a vertical line, and ours as a dot.

    The SVG element is hidden from screen readers, since the page prints the numbers beside it.
    """
    ours = _ours(item, part)
    numbers = [part.low, part.high, part.published, *([] if ours is None else [ours])]
    low, high = min(numbers), max(numbers)
    logarithmic = low > 0 and high / low > WIDE
    if logarithmic:
        low, high = math.log(low), math.log(high)

    def at(number: float) -> str:
        place = math.log(number) if logarithmic else number
        share = (place - low) / (high - low) if high > low else 0.5
        return f"{MARGIN + share * (WIDTH - 2 * MARGIN):.1f}"

    width = max(float(at(part.high)) - float(at(part.low)), 2.0)
    dot = "" if ours is None else f'<circle class="ours" cx="{at(ours)}" cy="{HEIGHT / 2:g}" r="3"/>'
    # safe as markup: all its text is numbers from here
    return Markup(
        f'<svg class="strip" width="{WIDTH}" height="{HEIGHT}" aria-hidden="true">'
        f'<rect class="span" x="{at(part.low)}" y="4" width="{width:.1f}" height="6"/>'
        f'<path class="published" d="M{at(part.published)},1v12"/>{dot}</svg>'
    )
