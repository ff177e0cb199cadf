"""The machine-readable trace: every number leads to records that exist, and can be computed again from what it says."""

# ruff: noqa: F401, F811 (fixtures are imported, and then named as arguments)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_samples as samples
from table_samples import baseline_id, filled, store

from experiments.analysis.collect import Reader
from experiments.report.content import build_content
from experiments.report.provenance import document
from experiments.store.records import Store
from experiments.tables.one_d import BASELINE, FOUR


@pytest.fixture(scope="module")
def trace(filled: Path) -> dict[str, Any]:
    reader = Reader(Store(filled))
    # as it is written and read again
    made: dict[str, Any] = json.loads(json.dumps(document(build_content(reader), reader, "f" * 40), allow_nan=False))
    return made


def test_every_run_is_a_file_of_the_store_with_its_commit(filled: Path, trace: dict[str, Any]) -> None:
    assert trace["code"] == "f" * 40
    assert len({name for name, _, _ in trace["runs"]}) == len(trace["runs"]) > 100
    for name, path, commit in trace["runs"]:
        file = filled / path
        if file.exists():
            record = json.loads(file.read_text())
            assert (record["run_id"], record["code"]["commit"]) == (name, trace["commits"][commit])
        else:
            assert trace["commits"][commit] == "unknown"


def test_printed_cells_follow_from_the_samples_of_their_runs(trace: dict[str, Any]) -> None:
    statistics = {"mean": np.mean, "sd": np.std, "median": np.median}
    checked = 0
    for cell in trace["cells"]:
        assert len(cell["runs"]) == cell["n"]
        for step in cell["arithmetic"]:
            numbers = np.asarray(cell["samples"][step["quantity"]])[step["gate"] or 0]
            assert len(numbers) == cell["n"]
            if step["statistic"] in statistics:
                assert step["result"] == pytest.approx(statistics[step["statistic"]](numbers), rel=1e-8)
                checked += 1
    assert checked > 200


def test_a_cell_names_the_runs_it_is_made_of(trace: dict[str, Any]) -> None:
    (cell,) = [cell for cell in trace["cells"] if cell["cell"] == "datafourbody.baseline.t"]
    assert [trace["runs"][at][0] for at in cell["runs"]] == [baseline_id(seed) for seed in range(10)]
    assert cell["samples"]["grown.t"] == [[samples.values(seed)[0] for seed in range(10)]]
    (fixed,) = [cell for cell in trace["cells"] if cell["cell"] == "decayablationbody.learn_r_and_t.fixed"]
    assert len(fixed["companions"]) == 10
    assert not set(fixed["companions"]) & set(fixed["runs"])


def test_what_does_not_count_is_said_and_not_used(store: Store) -> None:
    samples.put(store, BASELINE, 3, {"grown": samples.grown([6.0], 1e-5, 1e-5)}, clean=False)
    reader = Reader(store)
    trace = document(build_content(reader), reader, None)
    (cell,) = [cell for cell in trace["cells"] if cell["cell"] == "datafourbody.baseline.t"]
    assert (cell["n"], cell["wanted"], cell["printed"]) == (9, 10, "--")
    assert baseline_id(3) not in [trace["runs"][at][0] for at in cell["runs"]]
    assert any(problem.startswith("dirty: ") for problem in cell["problems"])
    assert trace["code"] is None


def test_the_open_end_of_an_interval_is_null(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key in ("baseline", "lambda_const", "alpha_const"):
        for seed in range(5):
            samples.put(store, FOUR.runs[key], seed, {"grown": samples.grown([6.0], 1e-5, 1e-5 * (1 + seed))})
    reader = Reader(store)
    claim = document(build_content(reader), reader, None)["claims"]["constant_schedules"]
    assert claim["verdict"] == "cannot tell", "five pairs do not bound a median at 95 %"
    assert [number[2:4] for number in claim["numbers"]] == [[None, None], [None, None]]
