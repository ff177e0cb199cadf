"""Retained components of each of ten layers when every layer learns its size; the paper has no such figure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.figures import EACH, Data, Panel, Point, Spec
from experiments.analysis.gather import gather, spread
from experiments.studies import study
from experiments.tables.transfer import NINE

MEDIAN = "median over the seeds"
_TITLES = {
    "const-const": "λ constant, r constant",
    "const-inc": "λ constant, r rising",
    "dec-const": "λ falling, r constant",
    "dec-inc": "λ falling, r rising",
}
PANELS = {key: Panel("layer", "tanh components kept", title) for key, title in _TITLES.items()}
"""Panels by the key of the table's row."""


def kept(run: RecordedRun) -> list[int]:
    """Return how many components a run keeps in each layer, without the identity. The last layer has no identity."""
    *inner, last = run.record["phases"]["grown"]["count"]
    return [*(count - 1 for count in inner), last]


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make the series of runs and the series of medians over the layers, in each panel."""
    seeds = study("depth").make()[0].seeds
    selections = {key: runs.with_seeds(seeds) for key, runs in NINE.runs.items()}
    gathered = gather(reader, selections, ["grown.depth"], overrides)
    points: list[Point] = []
    titles: dict[str, str] = {}
    for key, group in gathered.groups.items():
        rows = [(run, kept(run)) for run in group.runs]
        for layer in range(len(rows[0][1]) if rows else 0):
            counts = [counts[layer] for _, counts in rows]
            points.append(Point(MEDIAN, layer + 1, median(counts), group.ids, key))
            points += spread((Point(EACH, layer + 1, counts[layer], (run.run_id,), key) for run, counts in rows), 0.6)
        if rows:
            depths = sorted(sum(count > 0 for count in counts) for _, counts in rows)
            titles[key] = "depth " + " to ".join(dict.fromkeys(map(str, (depths[0], depths[-1]))))
    notes = ["a layer that keeps none is the identity and is removed; the depth is the number of the others"]
    return gathered.data(points, notes=notes, titles=titles)


SPEC = Spec(
    "depth_layers",
    "Learned depth (twist): what each layer keeps",
    PANELS,
    make,
    3.0,
    len(PANELS),
    section="depth",
    rank=14,
)
