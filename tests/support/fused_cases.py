"""Small trainings for the tests of the compiled kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.tasks.regression1d.task import RegressionTask, target
from ngn.components.base import OrderedSum
from ngn.components.mlp import MLPBank
from ngn.components.parallel import ParallelModel
from ngn.learner import CapacityLearner
from ngn.methods.base import Scalar
from ngn.methods.fixed import FixedCount
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE
from ngn.train.batches import FullBatches, Split
from ngn.train.kernels.kernel import compiled
from ngn.train.trainer import Course, Trainer, TrainPlan

needs_kernel = pytest.mark.skipif(compiled() is None, reason="no C++ compiler that can build the kernel")

TASK = object.__new__(RegressionTask)
"""Only its loss is used, which needs no data."""


def batches(samples: int = 512) -> FullBatches:
    # Not symmetric: on even points the sum of an odd target's residuals is rounding, which Adam makes into full steps.
    x = torch.empty(samples, 1).uniform_(-np.pi, np.pi, generator=torch.Generator().manual_seed(1)).sort(0).values
    return FullBatches(Split(x, target(x)))


def gated(
    seeds: int | Sequence[int], K: int | None = 32, h: int = 16, t0: Scalar = 2.3, **settings: Any
) -> CapacityLearner:
    gate = CountGate(K, t0=t0, replicas=None if isinstance(seeds, int) else len(seeds), **settings)
    return CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, h, h, 1], gate.K, seeds), gate)))


def fixed(seeds: int | Sequence[int], count: int) -> CapacityLearner:
    bank = MLPBank([1, 16, 16, 1], count, seeds)
    return CapacityLearner(ParallelModel(OrderedSum(bank, FixedCount(count, r=0.7, replicas=bank.replicas))))


def stir(learner: CapacityLearner) -> CapacityLearner:
    """Last maps that are not zero, so that every gradient counts."""
    bank = learner.axes[0].bank
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name in ("W3", "b3"):
            p = getattr(bank, name)
            p.copy_(torch.randn(p.shape, generator=source) * 0.3)
    return learner


def plan(steps: int, lr: float | Tensor = 1e-3, clip: float | None = 0.003, **settings: Any) -> TrainPlan:
    return TrainPlan(steps=steps, lr=lr, lr_shape=COSINE, clip=clip, **settings)


def train(kind: type[Trainer], learner: CapacityLearner, how: TrainPlan, samples: int = 512, **settings: Any) -> Course:
    return kind(learner, batches(samples), TASK.loss, how, progress="never", **settings).fit()


def state(learner: CapacityLearner) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in learner.model.named_parameters()}


def assert_close(a: CapacityLearner, b: CapacityLearner, atol: float) -> None:
    for name, value in state(a).items():
        torch.testing.assert_close(value, state(b)[name], rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    """The same bits, NaN included."""
    for name, value in a.items():
        assert value.numpy().tobytes() == b[name].numpy().tobytes(), name


def replica(values: dict[str, Tensor], r: int) -> dict[str, Tensor]:
    return {name: value[r].clone() for name, value in values.items()}


class Stop(Exception):
    """The interruption."""
