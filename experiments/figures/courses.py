"""The boundary over training under the six schedules of table 4; the paper has no such figure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Panel, Spec
from experiments.analysis.gather import boundaries, gather
from experiments.tables.one_d import FOUR

_TITLES = {
    "baseline": "baseline",
    "lambda_const": "λ constant",
    "alpha_const": "α constant",
    "no_alpha": "α = 0",
    "beta4": "β = 4 constant",
    "beta15": "β = 15 constant",
}
PANELS = {key: Panel("training step", "boundary t", title) for key, title in _TITLES.items()}
"""Panels by the key of the table's row."""


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make a panel for each schedule: the boundary of each seed, and the median."""
    gathered = gather(reader, FOUR.runs, ["grown.t"], overrides)
    drawn = [boundaries(reader, group, key) for key, group in gathered.groups.items()]
    curves, lines = (chain(*parts) for parts in zip(*drawn, strict=True))
    return gathered.data(curves=curves, lines=lines, courses={key: key for key in PANELS})


SPEC = Spec(
    "schedule_courses",
    "1D regression: the boundary over training under six schedules",
    PANELS,
    make,
    4.2,
    3,
    section="one_d",
    rank=12,
)
