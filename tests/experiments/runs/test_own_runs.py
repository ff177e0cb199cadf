"""What a run writes: records separate from those of the suite, and models that load again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import programs
import pytest
from record_samples import grown, record

from experiments.config import run_files
from experiments.config.compose import compose
from experiments.core.config import Config
from experiments.core.paths import ROOT
from experiments.runs.launch import launch
from experiments.store import provenance
from experiments.store.records import RecordError, Store


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean checkout with folders of its own."""
    monkeypatch.setattr(run_files, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(run_files, "code", lambda: provenance.Code("c", True, "git"))
    return tmp_path


def short(**overrides: object) -> Config:
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return compose({}, {"train.steps": 12, "gate.K": 4, "progress": "never", **keys})


def test_a_run_with_a_committed_record_is_trained_into_runs(clean: Path) -> None:
    (made,) = launch([short(results=str(clean / "results"))])
    before = made.path.read_bytes()
    (own,) = launch([short()])
    assert (own.status, own.path.parent.parent) == ("complete", clean / "runs")
    assert "(" in own.message
    assert launch([short()])[0].status == "present", "what runs/ has is not trained again"
    assert made.path.read_bytes() == before


LOAD = """
import sys
from pathlib import Path
import torch
from experiments.runs.models import load_model
from experiments.store.records import read_record
from experiments.config.schema import CheckedConfig
from experiments.core.config import Config
from experiments.tasks import make_task
from experiments.config.run_files import Run

for path in sys.argv[1:]:
    record = read_record(Path(path))
    task = make_task(CheckedConfig.model_validate(record["config"]), torch.device("cpu"))
    for phase, found in record["phases"].items():
        model = load_model(path, phase)
        with torch.no_grad():
            scores = task.evaluate(model)
        assert sum(p.numel() for p in model.parameters()) == found["parameters"]["deployed"]
        for name, score in scores.items():
            assert abs(float(score) - found["truncated"][name]) <= 1e-5 * abs(float(score)), (path, phase, name, score)
"""


def test_saved_models_load_in_another_process(tmp_path: Path) -> None:
    keys = {"save": "deployed", "results": str(tmp_path), "progress": "never", "phases": ["grown", "fixed"]}
    keys |= {"continue_with": [10.0], "train.steps": 12}
    paths = []
    for task in ("regression1d", "cora", "twist"):
        configs = [compose({"task": task, "profile": "smoke"}, {**keys, "seed.value": seed}) for seed in range(2)]
        for made in launch(configs):
            kept = {path.suffixes[0] for path in tmp_path.rglob(f"{made.run_id}.*.safetensors")}
            assert kept == {".grown", ".fixed", ".continue_10"}
            paths.append(made.path)
    done = programs.run_code(LOAD, *paths, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


def test_a_missing_or_damaged_model_is_named(tmp_path: Path) -> None:
    from experiments.core.reading import contents_digest, digest
    from experiments.runs import models
    from experiments.runs.models import load_model

    (made,) = launch([short(results=str(tmp_path), tag="mine")])
    assert json.loads(made.path.read_text())["execution"]["tag"] == "mine"
    with pytest.raises(RecordError, match=r"grown\.safetensors: no such model; .* if you add save=deployed"):
        load_model(made.path)
    assert Store(tmp_path).get(made.run_id) is not None
    wanted = short(results=str(tmp_path), tag="mine", save="deployed")
    (again,) = launch([wanted])
    assert again.status == "present"
    assert "add force=true to train it again and save its models, which are missing" in again.message
    launch([wanted.model_copy(update={"force": True})])
    load_model(made.path)
    (model,) = tmp_path.rglob("*.grown.safetensors")
    assert json.loads(made.path.read_text())["phases"]["grown"]["model_sha256"] == contents_digest(model)
    models._check(model, digest(model))  # of the file, as older records have it
    content = model.read_bytes()
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:99], b""):
        model.write_bytes(damaged)
        with pytest.raises(RecordError, match=r"grown\.safetensors: changed or damaged"):
            load_model(made.path)
    model.unlink()
    model.symlink_to("elsewhere")
    launch([wanted.model_copy(update={"force": True})])
    assert not model.is_symlink()
    load_model(made.path)


@pytest.mark.parametrize("seeds", ["0", "0..1"])
def test_a_command_whose_runs_have_records_imports_no_torch(tmp_path: Path, seeds: str) -> None:
    for seed in range(2):
        Store(tmp_path).write(record(compose(overrides={"seed.value": seed}), {"grown": grown([2.0], 1e-3, 1e-3)}))
    code = (
        "import sys; from experiments.cli.app import main; status = main(sys.argv[1:]); print('torch' in sys.modules)"
    )
    words = [f"seed={seeds}", f"results={tmp_path}"]
    environment = {**os.environ, "NGN_OUTPUT": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout.splitlines()[-1]) == ("", "False")
    assert "already in" in done.stdout
