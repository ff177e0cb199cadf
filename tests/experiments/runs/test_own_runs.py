"""What a run writes beside its record: records apart from the suite's, models that load again, curves of loggers."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from record_samples import grown, record
from whole_runs import smoke

from experiments.cli.watch import watch
from experiments.config import identity
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.core.paths import ROOT
from experiments.core.reading import contents_digest, digest
from experiments.models import trainer
from experiments.models.trainer import StudyTrainer
from experiments.runs import loggers, models
from experiments.runs.launch import launch
from experiments.runs.models import load_model
from experiments.store import provenance
from experiments.store.records import RecordError, Store
from experiments.tasks import make_task


@pytest.fixture
def clean(tmp_path, monkeypatch):
    """A clean checkout with folders of its own."""
    monkeypatch.setattr(identity, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(identity, "code", lambda: provenance.Code("c", True, "git"))
    return tmp_path


def short(**overrides):
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return compose({}, {"train.steps": 12, "gate.K": 4, "progress": "never", **keys})


def test_a_run_with_a_committed_record_is_trained_into_runs(clean):
    (made,) = launch([short(results=str(clean / "results"))])
    before = made.path.read_bytes()
    (own,) = launch([short()])
    assert (own.status, own.path.parent.parent) == ("complete", clean / "runs")
    assert "(" in own.message
    assert launch([short()])[0].status == "present", "what runs/ has is not trained again"
    assert made.path.read_bytes() == before


def test_saved_models_score_as_their_records_say(tmp_path):
    """test_runs.py loads one in another process."""
    keys = {"save": "deployed", "results": str(tmp_path), "progress": "never", "phases": ["grown", "fixed"]}
    keys |= {"continue_with": [10.0], "train.steps": 12}
    for name in ("regression1d", "cora", "twist"):
        configs = [compose({"task": name, "profile": "smoke"}, {**keys, "seed.value": seed}) for seed in range(2)]
        task = make_task(configs[0], torch.device("cpu"))
        for made in launch(configs):
            phases = json.loads(made.path.read_text())["phases"]
            kept = {path.suffixes[0] for path in tmp_path.rglob(f"{made.run_id}.*.safetensors")}
            assert kept == {f".{phase}" for phase in phases} == {".grown", ".fixed", ".continue_10"}
            for phase, told in phases.items():
                model = load_model(made.path, phase)
                assert sum(p.numel() for p in model.parameters()) == told["parameters"]["deployed"]
                with torch.no_grad():
                    scores = {score: float(value) for score, value in task.evaluate(model).items()}
                assert scores == pytest.approx({score: told["truncated"][score] for score in scores}, rel=1e-5)


def test_a_missing_or_damaged_model_is_named(tmp_path):
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
    model.write_bytes(model.read_bytes()[:99])
    with pytest.raises(RecordError, match=r"grown\.safetensors: changed or damaged"):
        load_model(made.path)


def test_a_command_whose_runs_have_records_imports_no_torch(tmp_path):
    for seed in range(2):
        Store(tmp_path).write(record(compose(overrides={"seed.value": seed}), {"grown": grown([2.0], 1e-3, 1e-3)}))
    code = (
        "import sys; from experiments.cli.app import main; status = main(sys.argv[1:]); print('torch' in sys.modules)"
    )
    words = ["seed=0..1", f"results={tmp_path}"]
    environment = {**os.environ, "NGN_OUTPUT": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout.splitlines()[-1]) == ("", "False")
    assert "already in" in done.stdout


def logged(tmp_path, logger, seed=0, **more):
    return smoke(tmp_path, gate__K=4, phases=["grown"], seed__value=seed, logger=logger, **more)


def rows(config, phase="grown"):
    path = Store(Path(config.results or "")).path(run_id(config)).with_suffix(f".{phase}.csv")
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_csv_holds_the_points_of_the_record_for_every_run_of_a_stack(tmp_path, engine):
    configs = [logged(tmp_path, "csv", seed, engine=engine) for seed in (0, 1)]
    assert run_id(configs[0]) == run_id(logged(tmp_path, "none", engine=engine)), "no part of the identity"
    launch(configs)
    for config in configs:
        curves, written = Store(tmp_path / "results").curves(run_id(config)), rows(config)
        assert [int(row["step"]) for row in written] == curves["grown.step"].tolist()
        np.testing.assert_allclose([float(row["t"]) for row in written], curves["grown.t"][:, 0], rtol=1e-6)
        np.testing.assert_allclose([float(row["loss"]) for row in written], curves["grown.loss"], rtol=1e-6)


def test_after_an_interruption_no_point_is_missing_or_twice(tmp_path, monkeypatch, capsys):
    config = logged(tmp_path, "csv", engine="torch", checkpoint_seconds=1e-9)
    real = StudyTrainer._step

    def dies(self, step, *rest):
        if step == 7:
            raise KeyboardInterrupt
        return real(self, step, *rest)

    monkeypatch.setattr(StudyTrainer, "_step", dies)
    monkeypatch.setattr(trainer, "EVERY", -1)
    with pytest.raises(KeyboardInterrupt):
        launch([config])
    watch()
    head, now, *plots = capsys.readouterr().out.splitlines()
    assert head == "regression1d s0 grown: step 6 of 12, 0 s ago"
    assert now.split()[::2] == ["loss", "t"]
    assert ["█" in line for line in plots] == [True] * 5
    monkeypatch.setattr(StudyTrainer, "_step", real)
    assert launch([config])[0].status == "complete"
    assert [int(row["step"]) for row in rows(config)] == list(range(12))


@pytest.mark.parametrize("where", ["opening", "writing", "closing"])
def test_a_failing_logger_does_not_stop_training(tmp_path, monkeypatch, caplog, where):
    def fails(*_):
        raise OSError("no space left")

    def sink(run, phase, ends):
        if where == "opening":
            fails()
        ends.callback(fails if where == "closing" else lambda: None)
        return fails if where == "writing" else lambda *_: None

    monkeypatch.setitem(loggers.SINKS, "csv", sink)
    assert launch([logged(tmp_path, "csv")])[0].status == "complete"
    assert caplog.text.count("logger=csv failed (OSError: no space left); training continues without it") == 1
