"""Continued training: from the end of a grown model, with new schedules and a new optimiser, at other prices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import programs
import pytest
import torch

from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.config.schema import branch_of, branch_phase
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.paths import ROOT
from experiments.runs import phases
from experiments.runs.launch import launch
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.store.records import Store
from experiments.tasks import make_task
from ngn.train.trainer import Trainer

FACTORS = [0.1, 1.0, 10.0]
NAMES = ["continue_0p1", "continue_1", "continue_10"]
ENGINES = ["torch", "auto"]


def smoke(folder: Path, seeds: int = 1, **changes: object) -> list[Config]:
    """Short runs with a constant sharpness, so that it does not jump where a branch begins."""
    own = {"results": str(folder), "progress": "never", "train.steps": 40, "gate.K": 6, "gate.t0": 1.5}
    own |= {"schedule.beta_start": 4.0, "schedule.beta_end": 4.0, "continue_with": FACTORS}
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    return [compose({"profile": "smoke"}, {**own, **changed, "seed.value": seed}) for seed in range(seeds)]


def trained(configs: list[Config]) -> list[tuple[dict, dict]]:
    """Train and return (record, curves) of each run."""
    return [
        (json.loads(o.path.read_text()), Store(o.path.parent.parent).curves(o.run_id) or {}) for o in launch(configs)
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_branch_starts_where_the_grown_model_ended(tmp_path: Path, engine: str) -> None:
    for config, (record, curves) in zip(c := smoke(tmp_path, 2, engine=engine), trained(c), strict=True):
        grown = record["phases"]["grown"]
        assert list(record["phases"]) == ["grown", *NAMES]
        for factor, name in zip(FACTORS, NAMES, strict=True):
            assert record["phases"][name]["lambda0"] == pytest.approx(factor * config.schedule.lambda0)
            assert record["phases"][name]["steps"] == grown["steps"]
            assert curves[f"{name}.step"][0] == 0
            assert curves[f"{name}.t"][0] == pytest.approx(grown["t"], rel=1e-6)
            assert curves[f"{name}.task"][0] == pytest.approx(grown["soft"]["mse"], rel=1e-4)
            price = curves[f"{name}.loss"][0] - curves[f"{name}.task"][0]
            assert price == pytest.approx(factor * 1e-4 * grown["t"][0], rel=1e-2)


def test_branches_differ_only_in_their_price(tmp_path: Path) -> None:
    ((record, curves),) = trained(smoke(tmp_path, schedule__lambda0=1e-2))
    ends = [record["phases"][name]["t"][0] for name in NAMES]
    assert ends[0] > ends[1] > ends[2]
    assert record["phases"]["grown"]["status"] == "complete"
    assert np.array_equal(curves["continue_1.task"][0], curves["continue_10.task"][0])
    assert not np.array_equal(curves["continue_1.task"], curves["continue_10.task"])


@pytest.mark.parametrize("K", [6, None])
def test_a_branch_is_a_new_training_from_the_grown_parameters(tmp_path: Path, K: int | None) -> None:
    """Compare with two trainers in sequence; the second has its own optimiser and schedules."""
    (config,) = pack = smoke(tmp_path, engine="torch", gate__K=K)
    ((_, curves),) = trained(pack)
    task = make_task(config, torch.device("cpu"))
    grown = learner_of(Stack.of(config), task)
    batches = task.batches(config.train, config.seed.value)
    Trainer(grown, batches, task.loss, plan_of(Stack.of(config), len(task.train)), progress="never").fit()
    for factor, name in zip(FACTORS, NAMES, strict=True):
        branch = Stack.of(branch_of(config, factor))
        fresh = learner_of(branch, task)
        fresh.restore(grown.state())
        history = Trainer(fresh, batches, task.loss, plan_of(branch, len(task.train)), progress="never").fit()
        assert np.array_equal(history.curves["task"][:, 0].astype(np.float32), curves[f"{name}.task"])
        assert np.array_equal(history.curves["t"][:, 0].astype(np.float32), curves[f"{name}.t"])


def test_engines_and_stacks_agree(tmp_path: Path) -> None:
    stacked = trained(smoke(tmp_path / "stack", 2, engine="auto"))
    for seed, (record, _) in enumerate(stacked):
        ((alone, _),) = trained(smoke(tmp_path / "alone", 2, engine="torch")[seed : seed + 1])
        for name in NAMES:
            assert record["phases"][name]["t"] == pytest.approx(alone["phases"][name]["t"], abs=1e-4)
            assert record["phases"][name]["count"] == alone["phases"][name]["count"]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_interrupted_branch_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """Stop inside the second branch: finished phases are not trained again, and every number stays the same."""
    steps = 12 if engine == "torch" else 150  # the kernel saves between its calls, every 100 steps
    expected = trained(smoke(tmp_path / "calm", 2, engine=engine, train__steps=steps))
    configs = smoke(tmp_path / "stopped", 2, engine=engine, train__steps=steps, checkpoint_seconds=1e-9)
    begun: list[str] = []
    real_train, real_save = phases.fit_phase, Trainer._save

    def train(stack, task, device, setup):
        begun.append(setup.name)
        return real_train(stack, task, device, setup)

    def save(self, step, *rest):
        real_save(self, step, *rest)
        if begun == ["grown", *NAMES[:2]]:
            raise KeyboardInterrupt

    monkeypatch.setattr(phases, "fit_phase", train)
    monkeypatch.setattr(Trainer, "_save", save)
    with pytest.raises(KeyboardInterrupt):
        launch(configs)
    got = trained(configs)
    assert begun == ["grown", *NAMES[:2], *NAMES[1:]]
    for (record, curves), (calm, calm_curves) in zip(got, expected, strict=True):
        assert record["execution"]["resumed"] == 1
        for name, phase in calm["phases"].items():
            for key in ("t", "count", "soft", "truncated"):
                assert record["phases"][name][key] == phase[key], (name, key)
        assert all(np.array_equal(curves[name], value) for name, value in calm_curves.items())
    assert not list((tmp_path / "scratch").rglob("step-*"))


def test_a_model_that_diverged_has_diverged_branches(tmp_path: Path) -> None:
    calm, wild = smoke(tmp_path, 2, train__steps=12)
    wild = wild.model_copy(update={"train": wild.train.model_copy(update={"lr": 1e30})})
    (calm_record, _), (record, _) = trained([calm, wild])
    assert (calm_record["status"], record["status"]) == ("complete", "diverged")
    assert [record["phases"][name]["diverged_at"] for name in NAMES] == [0, 0, 0]
    assert not {"t", "soft", "truncated"} & set(record["phases"]["continue_1"])


def test_continue_with_changes_the_run_id_only_if_set() -> None:
    plain, branched = compose(), compose({}, {"continue_with": FACTORS})
    assert run_id(compose({}, {"continue_with": []})) == run_id(plain) != run_id(branched)
    assert [branch_phase(factor) for factor in FACTORS] == NAMES
    fixed = compose({"method": "fixed"}, {"method.count": 3})
    assert run_id(fixed.model_copy(update={"continue_with": FACTORS})) == run_id(fixed)


@pytest.mark.parametrize(
    ("method", "overrides", "named"),
    [
        ("ngn", {"continue_with": [1, 1.0]}, "continue_with must not contain a factor twice"),
        ("ngn", {"continue_with": [0]}, "continue_with"),
        ("l0", {"continue_with": [10]}, "method=l0 has no price schedule.lambda0"),
        ("decay", {"continue_with": [10], "method.boundary": False}, "has no price"),
    ],
)
def test_runs_that_cannot_be_continued_are_refused(method: str, overrides: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        compose({"method": method}, overrides)


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path) -> None:
    words = ["profile=smoke", "gate.K=4", "train.steps=20", "seed=0", "continue_with=[0.1,1,10]", "progress=never"]
    done = programs.run(ROOT / "run.py", *words, f"results={tmp_path}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.rglob("*.json")
    assert list(json.loads(path.read_text())["phases"]) == ["grown", *NAMES]
    assert all(f"{name} t = " in done.stdout for name in NAMES)
