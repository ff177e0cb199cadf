"""The boundary over training for each intrinsic dimension; the paper has no such figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Curve, Data, Line, Panel, Spec
from experiments.analysis.gather import boundaries, gather
from experiments.tables.vae import FIFTEEN

PANELS = {row.key: Panel("training step", "boundary t", f"D = {row.key}") for row in FIFTEEN.rows}
"""Panels by the key of the table's row, which is the dimension."""


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make a panel for each dimension: the boundary of each seed, the median, and the line of D terms."""
    gathered = gather(reader, FIFTEEN.runs, ["grown.count"], overrides, own_data=True)
    curves: list[Curve] = []
    lines: list[Line] = []
    for key, group in gathered.groups.items():
        own, median = boundaries(reader, group, key)
        curves, lines = curves + own, lines + median
        if own:
            ends = own[0].x[[0, -1]]
            lines.append(Line("t = D − 1: D terms kept", ends, np.full(2, int(key) - 1), key))
    return gathered.data(curves=curves, lines=lines, courses={key: key for key in PANELS})


SPEC = Spec(
    "manifold_courses",
    "Intrinsic dimension D: the boundary over training",
    PANELS,
    make,
    2.7,
    len(PANELS),
    section="manifold",
    rank=13,
)
