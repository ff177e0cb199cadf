"""``scripts/measure_latency.py`` on records of small real runs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from experiments.analysis import latency
from experiments.analysis.collect import Reader
from experiments.analysis.selection import Selection
from experiments.config import run_files
from experiments.runs import launch
from experiments.store.provenance import Code
from experiments.store.records import Store
from experiments.tables.model import Table, row
from ngn import measuring
from scripts import build_report, measure_latency


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load the script with two rows of small runs as table 8; one row has records."""
    monkeypatch.setattr(run_files, "SCRATCH", tmp_path / "scratch")
    own = {"gate.t0": 1.0, "gate.K": 6}
    cora = Selection.of({"task": "cora", "gate": "gcn", "profile": "smoke"}, own, seeds=range(2))
    none = Selection.of({"task": "mnist", "gate": "mlp", "profile": "smoke"}, seeds=range(2))
    rows = tuple(row(key, seeds=2, runs=made) for key, made in (("cora", cora), ("mnist", none), ("story", None)))
    monkeypatch.setattr(measure_latency, "EIGHT", Table("eight", "", (), rows))
    monkeypatch.setattr(measuring, "PASSES", (1, 1))
    return measure_latency


def trained(tmp_path: Path, selection: Selection) -> Store:
    keys = {"results": str(tmp_path / "results"), "progress": "never"}
    for seed in selection.seeds:
        launch.launch([selection.with_overrides(keys).config(seed)])
    return Store(tmp_path / "results")


def test_every_model_of_every_record_is_timed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selection = script.EIGHT.runs["cora"]
    store = trained(tmp_path, selection)
    monkeypatch.setattr(script, "code", lambda: Code("f" * 40, True, "git"))
    monkeypatch.setattr(script, "code_block", lambda _: {"commit": "f" * 40, "clean": True, "source": "git"})
    # accept synthetic data and uncommitted code, which other tests cover
    monkeypatch.setattr("experiments.analysis.collect.fault_of", lambda *_: None)
    assert script.main(["--results", str(store.root), "--rounds", "2"]) == 0
    times = latency.read_latencies(store.root)
    collected = Reader(store).collect(selection)
    assert len(collected.runs) == 2
    for run in collected.runs:
        for phase, found in run.record["phases"].items():
            for part in found["cost"]["milliseconds"]:
                timed = times.of(run.run_id, phase, part, run.record)
                assert timed is not None
                assert timed[0] > 0
                assert timed[1] == found["cost"]["samples"]
    wanted = sum(len(found["cost"]["milliseconds"]) for r in collected.runs for found in r.record["phases"].values())
    assert len(times.milliseconds) == wanted


def test_another_count_than_the_boundary_retains_is_an_error(script: ModuleType) -> None:
    config = script.EIGHT.runs["cora"].config(0)
    task = script.make_task(config, script.torch.device("cpu"))
    with pytest.raises(RuntimeError, match=r"retains \[3\] components here, \[4\] in the record"):
        list(script.models(config, task, {"grown": {"status": "complete", "t": [2.1], "count": [4]}}))


def test_what_cannot_be_timed_is_said(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "code", lambda: Code("f" * 40, False, "git"))
    assert script.main(["--results", str(tmp_path)]) == 2
    assert "uncommitted changes" in capsys.readouterr().err
    monkeypatch.setattr(script, "code", lambda: Code("f" * 40, True, "git"))
    assert script.main(["--results", str(tmp_path)]) == 1
    assert "no record of table 8" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, "\xff", '{"schema": 1}'])
def test_damaged_times_end_the_report_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "latency.json").write_bytes(content.encode("latin-1"))
    (tmp_path / "data_generated.tex").write_text("")
    monkeypatch.setattr(build_report, "build_content", lambda reader: latency.read_latencies(reader.store.root))
    assert build_report.main([f"--results={tmp_path}", f"--output={tmp_path}"]) == 1
    assert f"{tmp_path / 'latency.json'}: " in (said := capsys.readouterr().err)
    assert "measure_latency.py writes it anew" in said
