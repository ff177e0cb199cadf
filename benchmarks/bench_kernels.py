"""Compare training steps of the compiled kernels, torch and torch.compile, at the sizes of the studies.

    python benchmarks/bench_kernels.py [--quick]

One thread. The engines take turns in one process with fixed boundaries. The result is the median over rounds of the
ratio within a round. ``torch.compile`` gets its best case: the forward pass with gates and loss as one graph, and its
backward pass. Adam is torch's own kernel in both cases.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_models import Variants, show

import ngn.methods.ngn
from experiments.config.compose import compose
from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.trainer import Trainer
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.gate import active_components
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.train.batches import Batches
from ngn.train.losses import Loss
from ngn.train.plan import TrainPlan

BOUNDARY = 3.0
"""Fixed boundary. With a sharpness of 4, 13 components per boundary have an open gate."""
STEPS = 20
"""Training steps per call, so many that the setup does not count."""


@dataclass(frozen=True)
class TimedCase:
    """One training, and its number of steps per call."""

    learner: CapacityLearner
    batches: Batches
    loss: Loss
    plan: TrainPlan
    steps: int


def study(task: str, gate: str, settings: Mapping[str, Any] = {}, method: str = "ngn", replicas: int = 1) -> TimedCase:
    """Prepare the training of a configuration."""
    held = {"train.lr": 1e-6, "train.lr_boundary": 1e-12, "gate.t0": BOUNDARY, **settings}
    choices = {"task": task, "gate": gate, "method": method}
    stack = Stack.of(*(compose(choices, held | {"seed.value": seed}) for seed in range(replicas)))
    made = make_task(stack.first, torch.device("cpu"))
    train, learner = stack.first.train, learner_of(stack, made)
    assert isinstance(learner, CapacityLearner)
    return TimedCase(learner, made.batches(train, stack.seeds), made.loss, plan_of(stack, made.samples(train)), STEPS)


COUNT: dict[int, int] = {}
"""K → components that a step of the compiled training computes."""


def _known(t: Tensor, K: int, beta: Tensor, delta: float) -> int:
    return COUNT[K]


def compiled(case: TimedCase) -> type[Trainer]:
    """The plain trainer with a step compiled by torch.

    The number of active components is read from the boundary once, because each number needs its own graph.
    """
    learner = case.learner
    for group in learner.axes:
        if isinstance(gate := group.capacity, CountGate):
            COUNT[gate.K] = active_components(gate.size(), gate.K, gate.beta, gate.delta)

    def objective(batch: Any) -> tuple[Tensor, Tensor]:
        loss = case.loss(learner.model, batch)
        return loss.sum(), loss

    torch._dynamo.reset()  # the graphs of earlier cases count towards its limit
    whole = torch.compile(objective, fullgraph=True)

    class Compiled(Trainer):
        def _backward(self, step: int) -> Tensor:
            with mock.patch.object(ngn.methods.ngn, "active_components", _known):
                total, loss = whole(self.batches.at(step))
            total.backward()
            return loss.detach().clone()  # the next step of the recorded graph overwrites it

    return Compiled


def engines(make: Callable[[], TimedCase]) -> Variants:
    """Return name → (run, models trained at once), with the kernel if there is one."""
    plain, other, fast = make(), make(), make()
    kinds: list[tuple[str, TimedCase, type[Trainer]]] = [
        ("torch", plain, Trainer),
        ("torch.compile", other, compiled(other)),
    ]
    if unsupported(fast.learner, fast.batches, fast.loss, fast.plan) is None:
        kinds.append(("kernel", fast, KernelTrainer))
    return {name: (_steps(case, kind), case.learner.replicas or 1) for name, case, kind in kinds}


def _steps(case: TimedCase, kind: type[Trainer]) -> Callable[[int], None]:
    def run(steps: int) -> None:
        plan = replace(case.plan, steps=case.steps * steps)
        kind(case.learner, case.batches, case.loss, plan, progress="never").fit()

    return run


CASES: dict[str, Callable[[], TimedCase]] = {
    "1D bank, ten seeds": lambda: study("regression1d", "mlp", replicas=10),
    "1D bank, straight-through, ten seeds": lambda: study("regression1d", "mlp", method="ste", replicas=10),
    "1D bank, hard concrete, ten seeds": lambda: study("regression1d", "mlp", method="l0", replicas=10),
    "1D bank, normalised, ten seeds": lambda: study(
        "regression1d", "mlp", {"method.normalise": True}, method="decay", replicas=10
    ),
    "depth, a boundary per layer": lambda: study("twist", "layers"),
    "depth, one chain": lambda: study("twist", "chain"),
}
GROUPS: dict[str, Callable[[], Variants]] = {name: partial(engines, make) for name, make in CASES.items()}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    show("Training steps by kernels, torch and torch.compile, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
