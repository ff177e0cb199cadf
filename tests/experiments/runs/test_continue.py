"""Continued training: from the end of a grown model, with new schedules and a new optimiser, at other prices."""

import json

import numpy as np
import pytest
import torch

from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.config.schema import branch_of, branch_phase
from experiments.models.trainer import StudyTrainer
from experiments.runs.launch import launch
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.store.records import Store
from experiments.tasks import make_task

FACTORS = [0.1, 1.0, 10.0]
NAMES = ["continue_0p1", "continue_1", "continue_10"]


def smoke(folder, seeds=1, **changes):
    """Short runs with a constant sharpness, so that it does not jump where a branch begins."""
    own = {"results": str(folder), "progress": "never", "train.steps": 40, "gate.K": 6, "gate.t0": 1.5}
    own |= {"schedule.beta_start": 4.0, "schedule.beta_end": 4.0, "continue_with": FACTORS}
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    return [compose({"profile": "smoke"}, {**own, **changed, "seed.value": seed}) for seed in range(seeds)]


def trained(configs):
    """Train and return (record, curves) of each run."""
    return [
        (json.loads(o.path.read_text()), Store(o.path.parent.parent).curves(o.run_id) or {}) for o in launch(configs)
    ]


@pytest.mark.parametrize("K", [6, None])
def test_a_branch_is_a_new_training_from_the_grown_parameters(tmp_path, K):
    """Compare with two trainers in sequence; the second has its own optimiser and schedules."""
    (config,) = pack = smoke(tmp_path, engine="torch", gate__K=K)
    ((_, curves),) = trained(pack)
    task = make_task(config, torch.device("cpu"))
    grown = learner_of(Stack.of(config), task)
    batches = task.batches(config.train, config.seed.value)
    StudyTrainer(grown, batches, task.loss, plan_of(Stack.of(config), len(task.train)), progress="never").fit()
    for factor, name in zip(FACTORS, NAMES, strict=True):
        branch = Stack.of(branch_of(config, factor))
        fresh = learner_of(branch, task)
        fresh.restore(grown.state())
        history = StudyTrainer(fresh, batches, task.loss, plan_of(branch, len(task.train)), progress="never").fit()
        assert np.array_equal(history.curves["task"][:, 0].astype(np.float32), curves[f"{name}.task"])
        assert np.array_equal(history.curves["t"][:, 0].astype(np.float32), curves[f"{name}.t"])


def test_a_model_that_diverged_has_diverged_branches(tmp_path):
    calm, wild = smoke(tmp_path, 2, train__steps=12)
    wild = wild.model_copy(update={"train": wild.train.model_copy(update={"lr": 1e30})})
    (calm_record, _), (record, _) = trained([calm, wild])
    assert (calm_record["status"], record["status"]) == ("complete", "diverged")
    assert [record["phases"][name]["diverged_at"] for name in NAMES] == [0, 0, 0]
    assert not {"t", "soft", "truncated"} & set(record["phases"]["continue_1"])


def test_continue_with_changes_the_run_id_only_if_set():
    plain, branched = compose(), compose({}, {"continue_with": FACTORS})
    assert run_id(compose({}, {"continue_with": []})) == run_id(plain) != run_id(branched)
    assert [branch_phase(factor) for factor in FACTORS] == NAMES
    fixed = compose({"method": "fixed"}, {"method.count": 3})
    assert run_id(fixed.model_copy(update={"continue_with": FACTORS})) == run_id(fixed)
