"""Made-up runs behind figures. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import record_samples as samples

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data
from experiments.analysis.selection import Selection
from experiments.store.records import Store
from experiments.studies import FIGURES
from experiments.studies.one_d import BASELINE


def baseline(folder: Path) -> Store:
    """Write three seeds of the baseline, one without curves."""
    made = Store(folder)
    for seed in range(3):
        phase = {**samples.grown([6.0], 1e-5, 1e-5), "norms": [1.0, 0.5, 0.25]}
        samples.put(made, BASELINE, seed, {"grown": phase}, curves=samples.curves() if seed < 2 else None)
    return made


def put_grown(store: Store, selection: Selection, seed: int, t: float, truncated: float, **changes: Any) -> str:
    return samples.put(store, selection, seed, {"grown": samples.grown([t], truncated / 2, truncated)}, **changes)


def data(name: str, store: Store, overrides: Mapping[str, Any] | None = None) -> Data:
    found = FIGURES[name].data(Reader(store), overrides)
    stored = {path.name.removesuffix(".json") for path in store.root.rglob("*.json")}
    assert {run for point in found.points for run in point.runs} | {c.run for c in found.curves} <= stored
    assert stored & set(found.runs) or found.empty
    return found
