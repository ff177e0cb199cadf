"""TinyStories: bits per character against retained components, for fixed and learned models and smaller prefixes.

The paper has no such figures. They show whether learned counts are good, and what further truncation would cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.figures import Data, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.studies import study
from experiments.tables.stories import STORIES

_BITS = "validation bits per character"
_SCORE = "truncated.bits_per_character"
_TITLES = {"heads": "attention heads", "slices": "FFN slices", "heads_slices": "heads and slices"}
"""The structures that keep more than one component."""
FIXED = "fixed, layers alike"
_PHASES = {"grown": "grown", "fixed": "fixed as grown", "from_high": "from high"}
FRONTIERS = {
    gate: Panel("components kept, both layers", _BITS, _TITLES[gate], series=(FIXED, *_PHASES.values()))
    for gate in ("heads", "slices")
}
PREFIX, LEARNED = "smaller prefix", "learned counts"
PREFIXES = {
    gate: Panel("components kept, both layers", _BITS, title, series=(PREFIX, LEARNED))
    for gate, title in _TITLES.items()
}
_NOTE = "two layers of 128 entries, 2,500 steps; no number is to be compared with the paper's"


def _point(series: str, run: RecordedRun, phase: str, gate: str) -> Point:
    """Return the retained count over all layers of a phase, and the bits of the truncated model."""
    found = run.record["phases"][phase]
    return Point(series, sum(found["count"]), found["truncated"]["bits_per_character"], (run.run_id,), gate)


def _frontier(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    learned = {(gate, 0): STORIES.runs[gate] for gate in FRONTIERS}
    alone = {
        (dict(chosen.choices)["gate"], dict(chosen.overrides)["method.count"][0]): chosen
        for chosen in study("tinystories_frontier").make()
    }
    series = {key: _PHASES if key in learned else {"fixed": FIXED} for key in (*learned, *alone)}
    quantities = {key: [f"{phase}.{_SCORE}" for phase in phases] for key, phases in series.items()}
    gathered = gather(reader, learned | alone, quantities, overrides)
    points = [
        _point(name, run, phase, key[0])
        for key, group in gathered.groups.items()
        for run in group.runs
        for phase, name in series[key].items()
    ]
    return gathered.data(points, notes=[_NOTE, "learned models truncated; fixed, layers alike: seed 0"])


def _prefixes(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    gathered = gather(reader, {gate: STORIES.runs[gate] for gate in PREFIXES}, [f"grown.{_SCORE}"], overrides)
    points: list[Point] = []
    for gate, group in gathered.groups.items():
        for run in group.runs:
            grown = run.record["phases"]["grown"]
            for most, bits in enumerate(grown["prefixes"], 1):
                kept = sum(min(most, count) for count in grown["count"])
                points.append(Point(PREFIX, kept, bits, (run.run_id,), gate))
            points.append(_point(LEARNED, run, "grown", gate))
    notes = [_NOTE, "one grown model per seed, cut to at most 1, 2, … components per layer, without retraining"]
    return gathered.data(points, notes=notes)


FRONTIER = Spec(
    "stories_frontier",
    "TinyStories slice: bits against components kept",
    FRONTIERS,
    _frontier,
    3.2,
    2,
    section="transfer",
    rank=21,
)
SMALLER = Spec(
    "stories_prefixes",
    "TinyStories slice: every smaller prefix of a grown model",
    PREFIXES,
    _prefixes,
    3.0,
    3,
    section="transfer",
    rank=22,
)
