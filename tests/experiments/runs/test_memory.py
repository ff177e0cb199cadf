"""Measured memory limits the size of stacks."""

import pytest
import torch

from experiments.config.compose import compose
from experiments.runs import launch, memory, phases
from experiments.runs.memory import replica_bytes, replicas_that_fit
from experiments.runs.stack import Stack
from experiments.tasks import COMPONENTS, GATES_OF_TASK, TASKS, make_task

CPU = torch.device("cpu")


def smoke(task="mnist", gate="mlp", **overrides):
    settings = {"progress": "never", "train.steps": 3, "phases": ["grown"]}
    return compose({"task": task, "gate": gate, "profile": "smoke"}, {**settings, **overrides})


@pytest.mark.parametrize(
    ("task", "gate"),
    # cora's smoke graph has fewer features; for a model that is there already the check looks at its weights
    [
        (t, g)
        for t, gates in GATES_OF_TASK.items()
        for g in gates
        if t != "cora" and TASKS[t].usual_model == "none" and not COMPONENTS[g].given
    ],
)
def test_the_estimate_before_reading_data_is_below_measured_memory(task, gate):
    config = smoke(task, gate)
    config = smoke(task, gate, **{"gate.t0": config.gate.K})  # all gates are open
    made = make_task(config, CPU)
    samples = len(made.batches(config.train, 0).at(0)[0])
    K = sum(config.gate.K_of(group) for group in range(config.gate.groups))
    assert 0 < 4 * K * config.gate.numbers(config.task, samples) < replica_bytes(Stack.of(config), made)


def test_a_stack_that_does_not_fit_is_split(tmp_path, monkeypatch):
    configs = [smoke(**{"seed.value": seed, "results": str(tmp_path / "r")}) for seed in range(5)]
    one = replica_bytes(Stack.of(configs[0]), make_task(configs[0], CPU))
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(2.5 * one / memory.SHARE))
    assert replicas_that_fit(Stack.of(configs[0]), make_task(configs[0], CPU), CPU) == 2
    real, sizes = phases.fit_phase, []

    def train_phase(stack, *rest):
        sizes.append(len(stack))
        return real(stack, *rest)

    monkeypatch.setattr(phases, "fit_phase", train_phase)
    assert [o.status for o in launch.launch(configs)] == ["complete"] * 5
    assert sizes == [2, 2, 1]


def test_one_replica_is_always_tried(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    config = smoke()
    assert replicas_that_fit(Stack.of(config), make_task(config, CPU), CPU) == 1
