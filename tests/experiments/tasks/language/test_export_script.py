"""``scripts/export_model.py`` on smoke runs of every method."""

import runpy

import pytest

from experiments.cli import app
from experiments.core.paths import ROOT

pytest.importorskip("peft")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")]
RUNS = {
    "ngn": ["gate=lora", "phases=[grown]", "gate.t0=2.2"],
    "adalora": ["gate=lora", "method=adalora", "method.target=3"],
    "adapter": ["gate=adapter", "phases=[grown]", "gate.t0=2.2"],
    "uniform": ["gate=lora", "method=uniform", "method.target=3"],
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_exported(name, tmp_path, monkeypatch, capsys):
    line = ["task=wikisql_easy", "profile=smoke", "progress=never", "save=deployed", f"results={tmp_path}/results"]
    folders = [f"hydra.sweep.dir={tmp_path}/multirun", f"hydra.run.dir={tmp_path}/run"]
    monkeypatch.setattr("sys.argv", ["run.py"])
    assert app.main([*line, *RUNS[name], *folders]) == 0
    (record,) = (tmp_path / "results").rglob("*.json")
    modes = {path.stat().st_mode for path in record.parent.iterdir()}
    assert len(modes) == 1, "models can be read by whom records can"
    script = runpy.run_path(str(ROOT / "scripts" / "export_model.py"))
    capsys.readouterr()
    assert script["main"]([str(record), str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert ("units behind" if name == "adapter" else "with peft logits differ by") in said
    if name in ("adalora", "uniform"):
        assert "3 terms" in said
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".safetensors", ""}
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert script["main"]([str(record), str(tmp_path / "out")]) == 2, "an export must not mix with another"
    assert "out: exists and is not an empty folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_pruned_run_is_exported(tmp_path, monkeypatch, capsys):
    line = ["task=wikisql_easy", "profile=smoke", "progress=never", "save=deployed", f"results={tmp_path}/results"]
    folders = [f"hydra.sweep.dir={tmp_path}/multirun", f"hydra.run.dir={tmp_path}/run"]
    monkeypatch.setattr("sys.argv", ["run.py"])
    assert app.main([*line, "gate=prune", "gate.target=both", *folders]) == 0
    (record,) = (tmp_path / "results").rglob("*.json")
    script = runpy.run_path(str(ROOT / "scripts" / "export_model.py"))
    capsys.readouterr()
    assert script["main"]([str(record), str(tmp_path / "out")]) == 0
    assert "parameters of 23,744; read back" in capsys.readouterr().out
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    assert script["main"]([str(tmp_path / "none.json"), str(tmp_path / "out")]) == 2
