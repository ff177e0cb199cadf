"""examples/search.py: trials are runs with records, chosen by the validation split."""

import json
import sys
from pathlib import Path

import pytest

from experiments.paths import ROOT
from experiments.runs import run_files


def test_a_search_is_runs_with_records_on_held_out_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    monkeypatch.setattr(run_files, "SCRATCH", tmp_path / "scratch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from search import search

    study = search(str(tmp_path), 2, "smoke")
    records = [json.loads(path.read_text()) for path in (tmp_path / "cora").glob("*.json")]
    assert {record["config"]["task"]["split"] for record in records} == {"validation"}
    prices = {record["config"]["schedule"]["lambda0"] for record in records}
    assert prices == {trial.params["schedule.lambda0"] for trial in study.trials}
    again = search(str(tmp_path), 2, "smoke")
    assert [trial.value for trial in again.trials] == [trial.value for trial in study.trials]
    assert len(list((tmp_path / "cora").glob("*.json"))) == 2
    sys.modules.pop("search")
