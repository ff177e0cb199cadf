"""Small runs of every task on any device, for tests that compare a device with the host."""

import numpy as np
import pytest
import torch

from experiments.config.compose import compose
from experiments.runs.phases import PhaseSetup, fit_phase
from experiments.tasks import make_task

STEPS = 3
LANGUAGE = ("wikisql_easy", "wikisql_hard", "spider", "gsm8k", "squad")


def config_of(task, gate, method="ngn", **keys):
    own = {
        "progress": "never", "engine": "torch", "train.steps": STEPS, "train.epochs": None, "phases": ["grown"],
        "checkpoint_seconds": 1e-9,
    }  # fmt: skip
    if task in LANGUAGE:
        own |= {"task.eval_examples": 2, "task.max_new_tokens": 3, "task.perplexity_tokens": 40}
    named = {key.replace("__", "."): value for key, value in keys.items()}
    return compose({"task": task, "gate": gate, "method": method, "profile": "smoke"}, {**own, **named})


def phase_of(stack, device, folder, crash_at=None):
    """Train and measure a phase; with ``crash_at``, its loss first fails at that call, and the phase starts again."""
    task = make_task(stack.first, device)
    count = stack.first.method.sizes(stack.first.gate)
    setup = PhaseSetup("grown" if count is None else "fixed", folder, count=count)
    if crash_at is not None:
        usual, calls = task.loss, iter(range(crash_at))

        def failing(model, batch):
            if next(calls, None) is None:
                raise InterruptedError("the machine has gone")
            return usual(model, batch)

        task.loss = failing
        with pytest.raises(InterruptedError):
            fit_phase(stack, task, device, setup)
        task.loss = usual
    return fit_phase(stack, task, device, setup)


def same_on_device(stack, device, folder):
    """Check that a training with a crash on ``device`` ends as one without a crash on the host."""
    on_host = phase_of(stack, torch.device("cpu"), folder / "host")
    there = phase_of(stack, device, folder / "device", crash_at=STEPS - 1)
    assert there.resumed == 1
    for ours, theirs in zip(there.curves, on_host.curves, strict=True):
        np.testing.assert_allclose(ours["task"], theirs["task"], rtol=1e-3)
        np.testing.assert_allclose(ours["t"], theirs["t"], rtol=1e-3)
    for mine, other in zip(there.results, on_host.results, strict=True):
        assert mine["count"] == other["count"]
        assert mine.get("n") == other.get("n")


PRUNED = {"gate__target": "both", "gate__rank_by": "wanda", "gate__calibration": 8, "task__replay": 32}
QUICK = [("regression1d", "mlp", {}), ("wikisql_easy", "lora", {}), ("wikisql_easy", "prune", PRUNED)]
SLOW = [
    ("manifold", "latent", {}), ("twist", "chain", {}), ("twist", "layers", {}),
    ("mnist", "mlp", {}), ("mnist", "conv", {}), ("cifar10", "conv", {}), ("cora", "gcn", {}),
    *(("tinystories", gate, {"task__context": 16, "train__batch": 2}) for gate in ("heads", "heads_slices", "states")),
    *((task, "adapter", {}) for task in LANGUAGE),
]  # fmt: skip
