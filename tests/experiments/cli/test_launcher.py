"""Multiruns as stacks, through the real command line."""

import json

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from experiments.cli import app
from experiments.runs import places, training
from experiments.runs import stack as stacks
from hydra_plugins.ngn_pack.launcher import ComposedOnce

SMOKE = ["profile=smoke", "train.steps=5", "gate.K=4", "progress=never"]


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.setenv("NGN_ROOT", "")
    monkeypatch.setattr(app, "ROOT", tmp_path)
    monkeypatch.setattr(places, "SCRATCH", tmp_path / "scratch")
    trained = []
    real = training.train_at_once

    def train_at_once(stack, *rest):
        trained.append([(c.task.name, c.seed.value, c.schedule.lambda0) for c in stack.runs])
        return real(stack, *rest)

    monkeypatch.setattr(training, "train_at_once", train_at_once)

    def run(*line):
        trained.clear()
        monkeypatch.setattr("sys.argv", ["run.py"])
        return app.main([*SMOKE, f"results={tmp_path}/results", *line]), list(trained)

    return run


def test_twenty_jobs_are_two_packs_with_a_record_and_a_folder_each(command, tmp_path, capsys):
    status, trained = command("task=regression1d,cora", "gate=mlp,gcn", "seed=0..1")
    assert status == 2, "regression1d has no gcn: nothing may start"
    assert trained == []
    capsys.readouterr()
    status, trained = command("seed=0..4", "gate.width=4,6", "schedule.lambda0=1e-4,1e-3")
    assert status == 0
    assert [len(pack) for pack in trained] == [10, 10]
    lines = capsys.readouterr().out.splitlines()
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
    return line.split("] ")[1].split(":")[0]


def test_packing_can_be_switched_off(command):
    status, trained = command("seed=0..2", "hydra/launcher=basic")
    assert status == 0
    assert [len(pack) for pack in trained] == [1, 1, 1]


def test_present_runs_are_not_trained_again(command):
    command("seed=1")
    status, trained = command("seed=0..3")
    assert status == 0
    assert [[seed for _, seed, _ in pack] for pack in trained] == [[0, 2, 3]]


def test_a_failing_pack_leaves_the_others(command, monkeypatch, capsys):
    real = training.train_at_once

    def fails(stack, *rest):
        if stack.first.gate.width == 6:
            raise RuntimeError("out of luck")
        return real(stack, *rest)

    monkeypatch.setattr(training, "train_at_once", fails)
    status, _ = command("seed=0..1", "gate.width=4,6,8")
    assert status == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 4
    assert "2 of 6 runs failed" in shown.err
    assert shown.err.count("out of luck") >= 2
    assert "gate.width=6" in shown.err


def test_a_pack_is_no_larger_than_allowed(command, monkeypatch):
    monkeypatch.setattr(stacks, "LARGEST_FUSED", 3)
    monkeypatch.setattr(stacks, "LARGEST", 3)
    status, trained = command("seed=0..6")
    assert status == 0
    assert [len(pack) for pack in trained] == [3, 3, 1]


def test_what_is_composed_once_is_what_hydra_composes(monkeypatch, tmp_path):
    """The copy with its scalars set equals Hydra's own composition, its own node included."""
    from hydra import initialize_config_dir
    from hydra.types import RunMode

    from experiments.paths import CONF

    monkeypatch.setenv("NGN_ROOT", str(tmp_path))
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", overrides=[], run_mode=RunMode.MULTIRUN)
        once = ComposedOnce(loader, master)
        for seed in (0, 5):
            for task in ("cora", "mnist"):
                gate = {"cora": "gcn", "mnist": "conv"}[task]
                line = [f"task={task}", f"gate={gate}", f"seed.value={seed}", "train.lr=0.5", "phases=[grown]"]
                expected = loader.load_sweep_config(master, line)
                expected.hydra.job.id = expected.hydra.job.num = seed
                got, file = once.job(line, seed)
                assert OmegaConf.to_container(got) == OmegaConf.to_container(expected)
                folder = tmp_path / "é: 'x' \"y\""
                text = file.of(got.hydra.job, list(got.hydra.overrides.task), folder)
                written = yaml.safe_load(text)["hydra"]
                assert written["runtime"].pop("output_dir") == str(folder)
                own = OmegaConf.to_container(expected.hydra, enum_to_str=True)
                own["runtime"].pop("output_dir")
                assert written == own
        assert len(once.composed) == 2


def test_folders_hold_what_hydra_writes(command, tmp_path):
    """The same files, with the same content, as Hydra's own launcher."""
    command("seed=0,1", f"hydra.sweep.dir={tmp_path}/pack", "hydra.sweep.subdir=j_${hydra.job.override_dirname}")
    command(
        "seed=0,1",
        f"hydra.sweep.dir={tmp_path}/basic",
        "hydra.sweep.subdir=j_${hydra.job.override_dirname}",
        "hydra/launcher=basic",
    )
    ours = {path.relative_to(tmp_path / "pack") for path in (tmp_path / "pack").rglob(".hydra/*")}
    theirs = {path.relative_to(tmp_path / "basic") for path in (tmp_path / "basic").rglob(".hydra/*")}
    assert ours == theirs
    assert len(ours) == 6
    for path in ours:
        a, b = OmegaConf.load(tmp_path / "pack" / path), OmegaConf.load(tmp_path / "basic" / path)
        if path.name == "hydra.yaml":
            for c in (a, b):
                del c.hydra.launcher, c.hydra.runtime.choices["hydra/launcher"], c.hydra.overrides.hydra
                del c.hydra.sweep.dir, c.hydra.runtime.output_dir
        assert OmegaConf.to_container(a) == OmegaConf.to_container(b), path
