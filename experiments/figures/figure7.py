"""Figure 7: retained count and error of four capacity learners, one point per seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Panel, Point, Spec
from experiments.analysis.gather import gather, spread
from experiments.tables.one_d import SEVEN

METHODS = {"ngn": "NGN", "awnn": "AWNN (block adaptation)", "l0": "L₀ (hard concrete)", "ste": "STE (straight-through)"}
"""Key of a row of table 7 → name of its series."""
PANELS = {"": Panel("retained count", "deployed MSE", ylog=True, lanes=True, series=tuple(METHODS.values()))}


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make a series for each method, one point per seed, with the methods side by side within a count."""
    # this figure does not show the fixed models of the table's last column
    selections = {key: replace(runs, companions=()) for key, runs in SEVEN.runs.items()}
    gathered = gather(reader, selections, ["grown.count", "grown.truncated.mse"], overrides)
    points: list[Point] = []
    for place, (key, name) in enumerate(METHODS.items()):
        group = gathered.groups[key]
        numbers = zip(group.ids, *group.values.values(), strict=True)
        points += spread((Point(name, float(x), float(y), (run,)) for run, x, y in numbers), 0.14, 0.2 * (place - 1.5))
    return gathered.data(points, notes=["one point per seed, spread sideways within its count"])


SPEC = Spec(
    "figure7", "Figure 7: capacity learners compared, 1D regression", PANELS, make, 3.4, section="one_d", rank=6
)
