"""Hydra's documented ways, through the real command line: multiruns, launchers, sweepers, folders of jobs."""

import json

import programs
import pytest
import yaml

from experiments.cli import app
from experiments.config import identity
from experiments.config.compose import check
from experiments.config.identity import run_id, scientific
from experiments.core import paths
from experiments.runs import training
from experiments.store.records import Store

SMOKE = ["profile=smoke", "train.steps=5", "gate.K=4", "progress=never"]


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.setenv("NGN_SCRATCH", "")
    monkeypatch.setattr(paths, "SCRATCH", tmp_path / "scratch")
    monkeypatch.setattr(identity, "SCRATCH", tmp_path / "scratch")
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


@pytest.mark.parametrize("launcher", ["pack", "basic"])
def test_job_folders_hold_the_trained_configuration(command, tmp_path, launcher):
    """Both launchers write the record's configuration and the job's overrides into the folder that Hydra names."""
    places = [f"hydra.sweep.dir={tmp_path}/jobs", "hydra.sweep.subdir=j_${hydra.job.override_dirname}"]
    status, trained = command("seed=0,1", "gate.width=6", *places, f"hydra/launcher={launcher}")
    assert status == 0
    assert [len(stack) for stack in trained] == ([2] if launcher == "pack" else [1, 1])
    folders = sorted((tmp_path / "jobs").rglob(".hydra"))
    assert len(folders) == 2
    for seed, folder in enumerate(folders):
        assert f"seed.value={seed}" in str(folder)
        assert folder.parent.parent == tmp_path / "jobs", "the path of results= makes no folders"
        trained = check(yaml.safe_load((folder / "config.yaml").read_text()))
        record = Store(tmp_path / "results").get(run_id(trained))
        assert record["config"] == scientific(trained)
        assert {"gate.width=6", f"seed.value={seed}"} < set(yaml.safe_load((folder / "overrides.yaml").read_text()))
    assert "hydra" in yaml.safe_load((folder / "hydra.yaml").read_text())
    log = (folder.parent / "run.log").read_text()
    assert log.count("\n") == 1
    assert "[2/2] seed=1: grown t = " in log


def test_one_job_has_its_folder_and_its_log(command, tmp_path):
    status, _ = command("seed=4", f"hydra.run.dir={tmp_path}/mine", "hydra.output_subdir=h")
    assert status == 0
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"h", "run.log"}
    assert {path.stem for path in (tmp_path / "mine" / "h").iterdir()} == {"config", "hydra", "overrides"}
    assert "grown t = " in (tmp_path / "mine" / "run.log").read_text()


def test_present_runs_start_no_hydra_and_leave_no_folder(command, tmp_path, monkeypatch, capsys):
    command("seed=0..1")
    before = sorted((tmp_path / "scratch").rglob("*"))
    capsys.readouterr()
    monkeypatch.setattr(app, "start", lambda session: pytest.fail("Hydra was started"))
    status, trained = command("seed=0..1")
    assert (status, trained) == (0, [])
    assert capsys.readouterr().out.startswith("[1/2] seed=0: already in ")
    assert sorted((tmp_path / "scratch").rglob("*")) == before


def test_m_takes_batches(command, tmp_path):
    status, trained = command("-m", "seed=0..2", "hydra.sweeper.max_batch_size=2", f"hydra.sweep.dir={tmp_path}/jobs")
    assert status == 0
    assert [len(pack) for pack in trained] == [2, 1]
    assert {path.name for path in (tmp_path / "jobs").iterdir()} == {"multirun.yaml", "0", "1", "2"}


@pytest.fixture
def folder(tmp_path):
    """A folder for --config-dir, with a schedule and an experiment in Hydra's form."""
    for name, lines in {
        "schedule/slow": "schedule:\n  lambda0: 3.0e-5\n",
        "experiment/mine": "defaults:\n- override /schedule: slow\ntrain:\n  steps: 9\n"
        "hydra:\n  sweeper:\n    params:\n      seed: 4..5\n",
    }.items():
        (path := tmp_path / "own" / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# @package _global_\n{lines}")
    return tmp_path / "own"


def test_config_dir_has_choices_and_experiments(tmp_path, folder):
    """One process each: the suite reads its folders once."""
    shown = yaml.safe_load(
        programs.suite("--config-dir", folder, "+experiment=mine", "--cfg", "job", cwd=tmp_path).stdout
    )
    assert (shown["schedule"]["lambda0"], shown["train"]["steps"], shown["seed"]["value"]) == (3e-5, 9, 4)
    assert str(folder) in programs.suite("-cd", folder, "--info", "searchpath", cwd=tmp_path).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("hydra_submitit_launcher", ("hydra/launcher=submitit_local",)),
        ("hydra_joblib_launcher", ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")),
    ],
)
def test_other_launchers_run_the_jobs_in_processes_of_their_own(tmp_path, package, words):
    pytest.importorskip(f"hydra_plugins.{package}")
    out = programs.suite(*SMOKE, "seed=0..1", *words, cwd=tmp_path, NGN_OUTPUT=f"{tmp_path}/out").stdout
    assert out.splitlines()[-3:-1] == ["medians:", "runs  grown.t  grown.count  grown.truncated.mse"]
    assert len(list((tmp_path / "out" / "sweeps").rglob("run.log"))) == 2
    assert len(list((tmp_path / "out" / "results" / "regression1d").glob("*.json"))) == 2


@pytest.mark.slow
def test_optuna_searches_the_front_of_score_and_size(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    words = ["experiment=search", *SMOKE[:2], "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2"]
    place = {"cwd": tmp_path, "NGN_OUTPUT": f"{tmp_path}/out"}
    out = programs.suite(*words, f"hydra.sweep.dir={tmp_path}/search", **place).stdout
    assert "[4/4] schedule.lambda0=" in out
    records = [json.loads(path.read_text()) for path in (tmp_path / "out").rglob("cora-*.json")]
    assert {record["config"]["task"]["split"] for record in records} == {"validation"}
    assert {record["execution"]["replicas"] for record in records} == {2}, "the trials of a batch form a stack"
    found = yaml.safe_load((tmp_path / "search" / "optimization_results.yaml").read_text())["solutions"]
    prices = {record["config"]["schedule"]["lambda0"] for record in records}
    assert {each["params"]["schedule.lambda0"] for each in found} <= prices
