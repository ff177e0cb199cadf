"""The 1D study for the benchmarks: its size, points, model and timed steps."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.models.kernels.libraries import library
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from experiments.tasks.regression1d import Regression1D
from experiments.tasks.regression1d.task import inputs, target
from ngn.components.base import OrderedSum
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE
from ngn.train.batches import FullBatches, Split
from ngn.train.losses import Supervised, mean_squared_error
from ngn.train.plan import TrainPlan

K, H, SAMPLES = 32, 16, 512
LOSS = Supervised(mean_squared_error)


@dataclass(frozen=True)
class TimedSteps:
    """The timed steps: ``start`` to ``stop`` of ``steps``, for at most ``seconds``."""

    steps: int
    start: int
    stop: int
    seconds: float


FULL = TimedSteps(steps=25_000, start=5_000, stop=6_000, seconds=2.0)
QUICK = TimedSteps(steps=25_000, start=200, stop=400, seconds=0.2)


def data() -> FullBatches:
    """Return the points of the task."""
    x = inputs(Regression1D(name="regression1d", points=SAMPLES))
    return FullBatches(Split(x.float(), target(x).float()))


def learner_of(seeds: int | list[int]) -> CapacityLearner:
    """Return the model of the baseline setting."""
    bank = MLPBank([1, H, H, 1], K, seeds)
    return CapacityLearner(ParallelModel(OrderedSum(bank, CountGate(K, replicas=bank.replicas))))


def plan_of(course: TimedSteps) -> TrainPlan:
    return TrainPlan(steps=course.steps, lr_shape=COSINE, clip=0.003)


def fused() -> bool:
    """Return whether the kernel can be built here."""
    return library("bank1d") is not None
