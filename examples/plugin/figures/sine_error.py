"""Error against learned size on a sine, one point per run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.tables.sine_sizes import SINE_SIZES

from experiments.analysis.collect import Reader
from experiments.figures.gather import gather
from experiments.figures.model import Data, Panel, Point, Spec

PANELS = {"": Panel("mean t", "truncated MSE", ylog=True)}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    gathered = gather(reader, SINE_SIZES.runs, ["mean_t", "grown.truncated.mse"], overrides, own_data=True)
    points = [
        Point("NGN", float(t), float(error), (run.run_id,))
        for group in gathered.groups.values()
        for run, t, error in zip(group.runs, *group.values.values(), strict=True)
    ]
    return gathered.data(points)


SINE_ERROR = Spec("sine_error", "Error against learned size on a sine", PANELS, make)
