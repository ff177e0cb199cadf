"""Truncation both ways: which of them a published ratio fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import record_samples as samples

from experiments.analysis.collect import Reader
from experiments.analysis.compare import compare_all
from experiments.report.alternatives import evidence, two_ways
from experiments.store.records import Store
from experiments.studies.manifold import FIFTEEN


@pytest.mark.parametrize(
    ("equation", "kept", "nearer", "outside"),
    [
        (0.9, 1.0, "gates kept", "In 1 rows the published ratio lies outside the range of our seeds by the equation"),
        (1.0, 1.2, "equation", "in 1 it is the other way round"),
        (0.9, 1.2, "equation", "in 1 it lies outside both"),
        (1.0, 1.005, "same", "In 0 of 1 rows the two ways differ"),
    ],
)
def test_a_published_ratio_is_compared_with_both_whatever_the_fit(
    tmp_path: Path, equation: float, kept: float, nearer: str, outside: str
) -> None:
    """The published ratio of D = 1 is 1.000."""
    store, runs = Store(tmp_path), FIFTEEN.runs["1"]
    for seed in runs.seeds:
        soft = 1e-6 * (seed + 1)  # fits of other seeds are other, and the ratio is not
        phase = samples.grown([0.0], soft, equation * soft, "nmse")
        samples.put(store, runs, seed, {"grown": phase | {"gates_kept": {"nmse": kept * soft}}})
    reader = Reader(store)
    (way,) = two_ways(reader, compare_all(reader, [FIFTEEN]))
    assert way.item.name == "datafifteenbody.1.truncated"
    assert way.published == pytest.approx(1.0, rel=1e-3)
    assert (way.equation.low, way.equation.value, way.equation.high) == pytest.approx((equation,) * 3)
    assert way.kept.value == pytest.approx(kept)
    assert way.nearer == nearer
    assert outside in evidence([way])
