"""Compare training steps of the compiled kernels, torch and torch.compile, at the sizes of the studies.

    python benchmarks/bench_kernels.py [--quick]

One thread. The engines take turns in one process with fixed boundaries. The result is the median over rounds of the
ratio within a round. ``torch.compile`` gets its best case: the forward pass with gates and loss as one graph, and its
backward pass. Adam is torch's own kernel in both cases.
"""

from __future__ import annotations

import sys
import types
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
from experiments.models.conv import ConvBank
from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.latent import GatedBottleneck
from experiments.models.parallel import ParallelModel
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from experiments.tasks.base import MiniBatches
from ngn.components.base import OrderedSum
from ngn.gate import active_components
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.train.batches import Batches, Split
from ngn.train.losses import Loss, Supervised, cross_entropy
from ngn.train.plan import TrainPlan
from ngn.train.trainer import Trainer

BOUNDARY = 3.0
"""Fixed boundary. With a sharpness of 4, 13 components per boundary have an open gate."""
STEPS = 20
"""Training steps per call, so many that the setup does not count; fewer for images, whose steps are long."""


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


def images(shape: tuple[int, int, int], channels: tuple[int, int], K: int) -> TimedCase:
    """Prepare a convolution study on synthetic images."""
    source = torch.Generator().manual_seed(0)
    split = Split(torch.randn(128, *shape, generator=source), torch.randint(10, (128,), generator=source))
    learner = CapacityLearner(ParallelModel(OrderedSum(ConvBank(shape, channels, 10, K, 0), CountGate(K, t0=BOUNDARY))))
    plan = TrainPlan(steps=1, lr=1e-6, lr_boundary=1e-12)
    return TimedCase(learner, MiniBatches(split, 128, 0, lambda x: x), Supervised(cross_entropy), plan, steps=3)


COUNT: dict[int, int] = {}
"""K → components that a step of the compiled training computes."""


def _known(t: Tensor, K: int, beta: Tensor, delta: float) -> int:
    return COUNT[K]


def _drawn(bottleneck: GatedBottleneck, like: Tensor, samples: int) -> Any:
    return bottleneck.drawn


def compiled(case: TimedCase, mode: str = "default", everything: bool = False) -> type[Trainer]:
    """The plain trainer with a step compiled by torch.

    The number of active components is read from the boundary once, because each number needs its own graph. With
    ``everything`` it is K. Noise is drawn outside the graph, because generators cannot be compiled.
    """
    learner = case.learner
    noisy = [group for group in learner.axes if isinstance(group, GatedBottleneck)]
    for bottleneck in noisy:
        bottleneck.noise = types.MethodType(_drawn, bottleneck)  # type: ignore[method-assign]
    for group in learner.axes:
        if isinstance(gate := group.capacity, CountGate):
            known = gate.K if everything else active_components(gate.size(), gate.K, gate.beta, gate.delta)
            COUNT[gate.K] = known

    def objective(batch: Any, noise: list[Tensor]) -> tuple[Tensor, Tensor]:
        for bottleneck, drawn in zip(noisy, noise, strict=True):
            bottleneck.drawn = drawn
        loss = case.loss(learner.model, batch)
        for group in learner.axes:
            activity = group.activity_penalty()
            loss = loss if activity is None else loss + activity
        return loss.sum(), loss

    torch._dynamo.reset()  # the graphs of earlier cases count towards its limit
    torch._dynamo.config.allow_unspec_int_on_nn_module = True  # the step number, which addresses the noise
    whole = torch.compile(objective, fullgraph=True, mode=mode)

    class Compiled(Trainer):
        def _backward(self, step: int) -> Tensor:
            batch = self.batches.at(step)
            noise = [GatedBottleneck.noise(group, batch[0], batch[0].shape[-2]) for group in noisy]
            with mock.patch.object(ngn.methods.ngn, "active_components", _known):
                total, loss = whole(batch, noise)
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
    "manifold autoencoder": lambda: study("manifold", "latent"),
    "MNIST convolution, K = 8, channels 8-16": lambda: images((1, 28, 28), (8, 16), 8),
    "CIFAR-10 convolution, K = 16, channels 16-16": lambda: images((3, 32, 32), (16, 16), 16),
}
GROUPS: dict[str, Callable[[], Variants]] = {name: partial(engines, make) for name, make in CASES.items()}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    show("Training steps by kernels, torch and torch.compile, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
