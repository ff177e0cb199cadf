"""Error against learned size on a sine, one point per run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.tables.sine_sizes import SINE_SIZES

PANELS = {"": Panel("learned size t", "truncated MSE", ylog=True)}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Take t and the error of every run of the table; a series per row."""
    gathered = gather(reader, SINE_SIZES.runs, ["grown.t", "grown.truncated.mse"], overrides)
    points = [
        Point(SINE_SIZES.row(key).labels[0], float(t), float(error), (run.run_id,))
        for key, group in gathered.groups.items()
        for run, t, error in zip(group.runs, *group.values.values(), strict=True)
    ]
    return gathered.data(points)


SINE_ERROR = Spec("sine_error", "Error against learned size on a sine", PANELS, make)
