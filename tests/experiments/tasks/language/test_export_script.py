"""``scripts/export_model.py`` on smoke runs of every method."""

import runpy

import pytest

from experiments.cli import app
from experiments.core.paths import ROOT

pytest.importorskip("peft")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")]
RUNS = {
    "ngn": (["gate=lora", "phases=[grown]", "gate.t0=2.2"], "with peft logits differ by"),
    "adalora": (["gate=lora", "method=adalora", "method.target=3"], "3 terms"),
    "adapter": (["gate=adapter", "phases=[grown]", "gate.t0=2.2"], "units behind"),
    "uniform": (["gate=lora", "method=uniform", "method.target=3"], "3 terms"),
    "prune": (["gate=prune", "gate.target=both"], "parameters of 23,744; read back"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_exported(name, tmp_path, monkeypatch, capsys):
    words, expected = RUNS[name]
    line = ["task=wikisql_easy", "profile=smoke", "progress=never", "save=deployed", f"results={tmp_path}/results"]
    folders = [f"hydra.sweep.dir={tmp_path}/multirun", f"hydra.run.dir={tmp_path}/run"]
    monkeypatch.setattr("sys.argv", ["run.py"])
    assert app.main([*line, *words, *folders]) == 0
    (record,) = (tmp_path / "results").rglob("*.json")
    modes = {path.stat().st_mode for path in record.parent.iterdir()}
    assert len(modes) == 1, "models can be read by whom records can"
    export = runpy.run_path(str(ROOT / "scripts" / "export_model.py"))["main"]
    capsys.readouterr()
    out = tmp_path / "out"
    assert export([str(record), str(out)]) == 0
    said = capsys.readouterr().out
    assert expected in said
    assert ("with peft logits differ by" in said) == (name not in ("adapter", "prune"))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    if name == "prune":
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= before.keys()
    else:
        assert {path.suffix for path in out.iterdir()} == {".json", ".safetensors", ""}
    assert export([str(record), str(out)]) == 2, "an export must not mix with another"
    assert "out: exists and is not an empty folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert export([str(tmp_path / "none.json"), str(out)]) == 2
