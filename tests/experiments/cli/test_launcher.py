"""Multiruns train as stacks, through the real command line."""

import json
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from experiments import paths
from experiments.cli import app
from experiments.config.identity import run_id, scientific
from experiments.config.schema import CheckedConfig
from experiments.runs import run_files, training
from experiments.runs import stack as stacks
from experiments.store.records import Store

SMOKE = ["profile=smoke", "train.steps=5", "gate.K=4", "progress=never"]


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.setenv("NGN_SCRATCH", "")
    monkeypatch.setattr(paths, "SCRATCH", tmp_path / "scratch")
    monkeypatch.setattr(run_files, "SCRATCH", tmp_path / "scratch")
    trained = []
    real = training.train_stack

    def train_stack(stack, *rest):
        trained.append([(c.task.name, c.seed.value, c.schedule.lambda0) for c in stack.configs])
        return real(stack, *rest)

    monkeypatch.setattr(training, "train_stack", train_stack)

    def run(*line):
        trained.clear()
        monkeypatch.setattr("sys.argv", ["run.py"])
        return app.main([*SMOKE, f"results={tmp_path}/results", *line]), list(trained)

    return run


def test_twenty_jobs_are_two_stacks_with_a_record_and_a_folder_each(command, tmp_path, capsys):
    status, trained = command("task=regression1d,cora", "gate=mlp,gcn", "seed=0..1")
    assert status == 2, "regression1d has no gcn: nothing may start"
    assert trained == []
    capsys.readouterr()
    status, trained = command("seed=0..4", "gate.width=4,6", "schedule.lambda0=1e-4,1e-3")
    assert status == 0
    assert [len(pack) for pack in trained] == [10, 10]
    lines, table = (part.splitlines() for part in capsys.readouterr().out.split("medians:\n"))
    assert table[0].split()[:3] == ["gate.width", "schedule.lambda0", "runs"]
    assert [line.split()[:3] for line in table[1:]] == [
        [width, price, "5"] for width in ("4", "6") for price in ("0.0001", "0.001")
    ]
    assert lines[0].startswith("[1/20] seed=0 gate.width=4 schedule.lambda0=0.0001: grown t = ")
    assert [line.split("]")[0] for line in lines] == [f"[{i}/20" for i in range(1, 21)]
    records = list((tmp_path / "results").rglob("*.json"))
    assert len(records) == 20
    assert {json.loads(r.read_text())["execution"]["replicas"] for r in records} == {10}
    (sweep,) = (tmp_path / "scratch" / "sweeps").glob("*/*")
    assert sorted(int(f.name) for f in sweep.iterdir() if f.is_dir()) == list(range(20))
    for number in range(20):
        config = OmegaConf.load(sweep / str(number) / ".hydra" / "config.yaml")
        record = json.loads((tmp_path / "results" / "regression1d" / f"{_id(lines[number])}.json").read_text())
        assert config.seed.value == record["config"]["seed"]["value"]
        assert config.gate.width == record["config"]["gate"]["width"]


def _id(line):
    return Path(line.split(" -> ")[1]).stem


def test_stacks_can_be_switched_off(command):
    status, trained = command("seed=0..2", "hydra/launcher=basic")
    assert status == 0
    assert [len(pack) for pack in trained] == [1, 1, 1]


def test_present_runs_are_not_trained_again(command):
    command("seed=1")
    status, trained = command("seed=0..3")
    assert status == 0
    assert [[seed for _, seed, _ in pack] for pack in trained] == [[0, 2, 3]]


def test_a_failing_stack_does_not_stop_the_others(command, monkeypatch, capsys):
    real = training.train_stack

    def fails(stack, *rest):
        if stack.first.gate.width == 6:
            raise RuntimeError("out of luck")
        return real(stack, *rest)

    monkeypatch.setattr(training, "train_stack", fails)
    status, _ = command("seed=0..1", "gate.width=4,6,8")
    assert status == 1
    shown = capsys.readouterr()
    assert sum(line.startswith("[") for line in shown.out.splitlines()) == 4
    assert "2 of 6 runs failed" in shown.err
    assert shown.err.count("out of luck") >= 2
    assert "gate.width=6" in shown.err


def test_the_size_of_a_stack_is_limited(command, monkeypatch):
    monkeypatch.setattr(stacks, "LARGEST_FUSED", 3)
    monkeypatch.setattr(stacks, "LARGEST", 3)
    status, trained = command("seed=0..6")
    assert status == 0
    assert [len(pack) for pack in trained] == [3, 3, 1]


@pytest.mark.parametrize("launcher", ["pack", "basic"])
def test_job_folders_hold_the_trained_configuration(command, tmp_path, launcher):
    """Both launchers write the record's configuration and the job's overrides into the folder that Hydra names."""
    places = [f"hydra.sweep.dir={tmp_path}/jobs", "hydra.sweep.subdir=j_${hydra.job.override_dirname}"]
    status, _ = command("seed=0,1", "gate.width=6", *places, f"hydra/launcher={launcher}")
    assert status == 0
    folders = sorted((tmp_path / "jobs").rglob(".hydra"))
    assert len(folders) == 2
    for seed, folder in enumerate(folders):
        assert f"seed.value={seed}" in str(folder)
        assert folder.parent.parent == tmp_path / "jobs", "the path of results= makes no folders"
        trained = CheckedConfig.model_validate(yaml.safe_load((folder / "config.yaml").read_text()))
        record = Store(tmp_path / "results").get(run_id(trained))
        assert record["config"] == scientific(trained)
        assert {"gate.width=6", f"seed.value={seed}"} < set(yaml.safe_load((folder / "overrides.yaml").read_text()))
