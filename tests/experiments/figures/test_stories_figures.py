"""Figures of language models trained from scratch: retained components of both layers, and prefixes."""

from __future__ import annotations

from pathlib import Path

import record_samples as samples
from figure_samples import data

from experiments.analysis.selection import Selection
from experiments.store.records import Store
from experiments.studies.stories import STORIES

BITS = "bits_per_character"


def _learned(store: Store) -> str:
    grown = {**samples.grown([0.0, 2.0], 1.5, 1.6, BITS), "count": [1, 3], "prefixes": [2.5, 1.9]}
    fixed = {**samples.fixed(2, 1.55, BITS), "count": [1, 3]}
    back = {"prunes_back": samples.from_high(2.0, "no")["prunes_back"]}
    from_high = {**samples.grown([5.0, 4.0], 1.4, 1.4, BITS), **back}
    return samples.put(store, STORIES.runs["slices"], 0, {"grown": grown, "fixed": fixed, "from_high": from_high})


def test_a_frontier_adds_up_what_both_layers_keep(tmp_path: Path) -> None:
    store = Store(tmp_path)
    learned = _learned(store)
    four = Selection.of({"task": "tinystories", "gate": "slices", "method": "fixed"}, {"method.count": (4, 4)})
    alone = samples.put(store, four, 0, {"fixed": {**samples.fixed(4, 1.45, BITS), "count": [4, 4]}})
    found = data("stories_frontier", store)
    assert [(p.series, p.panel, p.x, p.y, p.runs) for p in found.points] == [
        ("grown", "slices", 4, 1.6, (learned,)),
        ("fixed as grown", "slices", 4, 1.55, (learned,)),
        ("from high", "slices", 11, 1.4, (learned,)),
        ("fixed, layers alike", "slices", 8, 1.45, (alone,)),
    ]
    assert found.notes[0] == "partial: 2 of 30 runs (28 not run)"


def test_a_prefix_keeps_at_most_so_many_components_of_each_layer(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _learned(store)
    found = data("stories_prefixes", store)
    assert [(p.series, p.x, p.y) for p in found.of("slices")] == [
        ("smaller prefix", 2, 2.5),
        ("smaller prefix", 3, 1.9),
        ("learned counts", 4, 1.6),
    ]
