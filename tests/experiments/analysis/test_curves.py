"""Which runs keep their curve file, and that figures and claims find those that they read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import record_samples as samples

from experiments.analysis.claims import judge_claim
from experiments.analysis.collect import Reader
from experiments.core.paths import RESULTS
from experiments.store.records import CURVES, Store
from experiments.studies import CLAIMS, FIGURES, STUDIES
from experiments.studies.learners import DECAY
from experiments.studies.model import Study
from experiments.studies.schedules import FOUR


def _with_curves(store: Store) -> list[str]:
    return sorted(path.name.removesuffix(CURVES) for path in store.root.glob(f"*/*{CURVES}"))


class Noting(Store):
    """A store that notes whose curves were asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: set[str] = set()

    def curves(self, run_id: str) -> dict[str, np.ndarray] | None:
        self.asked.add(run_id)
        return super().curves(run_id)


def test_every_curve_file_among_the_records_is_kept_by_a_study() -> None:
    store = Store(RESULTS)
    stored = _with_curves(store)
    assert stored
    kept = set().union(*(each.with_curves(store) for each in STUDIES.values()))
    dropped = [str(store.curves_path(name).relative_to(RESULTS)) for name in stored if name not in kept]
    assert not dropped, "a study keeps the curves of its first seeds alone (curves=N): remove the others from results/"


def test_figures_and_claims_find_the_curves_that_they_read() -> None:
    store = Noting(RESULTS)
    reader = Reader(store)
    for spec in FIGURES.values():
        assert not spec.data(reader).without_curves, spec.name
    for claim in CLAIMS.values():
        with suppress(KeyError):  # there are no cells, so claims on runs alone are judged
            judge_claim(claim, reader, [])
    assert len(store.asked) >= 120
    assert sorted(store.asked - set(_with_curves(store))) == []


def test_a_study_keeps_the_first_seeds_of_each_selection_and_what_follows_from_them(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert Study("none", "", lambda: [FOUR.runs["beta4"]]).with_curves(store) == set()
    two = Study("two", "", lambda: [FOUR.runs["beta4"], DECAY.runs["learn_r"]], curves=2)
    assert sorted(name.split("-")[3] for name in two.with_curves(store)) == ["s0", "s0", "s1", "s1"]
    samples.put(store, DECAY.runs["learn_r"], 1, {"grown": samples.grown([4.0], 1e-5, 1e-5)})
    (fixed,) = two.with_curves(store) - Study("two", "", two.make, curves=2).with_curves(Store(tmp_path / "none"))
    assert "-fixed5-s1-" in fixed
