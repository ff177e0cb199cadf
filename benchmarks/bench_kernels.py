"""Compare training steps of the compiled kernels, torch and torch.compile, at the sizes of the studies.

    python benchmarks/bench_kernels.py [--quick]

One thread. The engines take turns in one process with fixed boundaries. The result is the median over rounds of the
ratio within a round. ``torch.compile`` gets its best case: the forward pass with gates and loss as one graph, and its
backward pass. Adam is torch's own kernel in both cases.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import torch
from bench_models import Groups, Variants, show, trained
from torch import Tensor

import ngn.methods.ngn
from experiments.config.compose import compose
from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.trainer import StudyTrainer
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.learner import Learner
from ngn.losses import Loss
from ngn.methods.base import active_components
from ngn.methods.ngn import CountGate
from ngn.train.batches import Batches
from ngn.train.plan import TrainPlan

BOUNDARY = 3.0
"""Fixed boundary. With a sharpness of 4, 13 components per boundary have an open gate."""
STEPS = 20
"""Training steps per call, so many that the setup does not count."""
Training = tuple[Learner, Batches, Loss, TrainPlan]


def training(choices: dict[str, str], settings: dict[str, Any], replicas: int) -> Training:
    """Prepare the training of a configuration."""
    held = {"train.lr": 1e-6, "train.lr_boundary": 1e-12, "gate.t0": BOUNDARY, **settings}
    stack = Stack.of(*(compose(choices, held | {"seed.value": seed}) for seed in range(replicas)))
    made = make_task(stack.first, torch.device("cpu"))
    train, learner = stack.first.train, learner_of(stack, made)
    assert isinstance(learner, Learner)
    return learner, made.batches(train, stack.seeds), made.loss, plan_of(stack, made.samples(train))


COUNT: dict[int, int] = {}
"""K → components that a step of the compiled training computes."""


def _known(t: Tensor, K: int, beta: Tensor, delta: float) -> int:
    return COUNT[K]


def compiled(learner: Learner, loss_of: Loss) -> type[StudyTrainer]:
    """The plain trainer with a step compiled by torch.

    The number of active components is read from the boundary once, because each number needs its own graph.
    """
    for group in learner.axes:
        if isinstance(gate := group.capacity, CountGate):
            COUNT[gate.K] = active_components(gate.size(), gate.K, gate.beta, gate.delta)

    def objective(batch: Any) -> tuple[Tensor, Tensor]:
        loss = loss_of(learner.model, batch)
        return loss.sum(), loss

    torch._dynamo.reset()  # the graphs of earlier cases count towards its limit
    whole = torch.compile(objective, fullgraph=True)

    class Compiled(StudyTrainer):
        def _backward(self, step: int) -> Tensor:
            with mock.patch.object(ngn.methods.ngn, "active_components", _known):
                total, loss = whole(self.batches.at(step))
            total.backward()
            return loss.detach().clone()  # the next step of the recorded graph overwrites it

    return Compiled


def engines(
    task: str, gate: str, method: str = "ngn", replicas: int = 1, settings: dict[str, Any] | None = None
) -> Variants:
    """Return the same training by torch, by torch.compile, and by the kernel if there is one."""
    choices = {"task": task, "gate": gate, "method": method}
    plain, other, fast = (training(choices, settings or {}, replicas) for _ in range(3))
    found = {
        "torch": trained(*plain, StudyTrainer, STEPS),
        "torch.compile": trained(*other, compiled(other[0], other[2]), STEPS),
    }
    return found if unsupported(*fast) else found | {"kernel": trained(*fast, KernelTrainer, STEPS)}


GROUPS: Groups = {
    "1D bank, ten seeds": partial(engines, "regression1d", "mlp", replicas=10),
    "1D bank, straight-through, ten seeds": partial(engines, "regression1d", "mlp", "ste", 10),
    "1D bank, hard concrete, ten seeds": partial(engines, "regression1d", "mlp", "l0", 10),
    "1D bank, normalised, ten seeds": partial(engines, "regression1d", "mlp", "decay", 10, {"method.normalise": True}),
    "depth, a boundary per layer": partial(engines, "twist", "layers"),
    "depth, one chain": partial(engines, "twist", "chain"),
}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    show("Training steps by kernels, torch and torch.compile, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
