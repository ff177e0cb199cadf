"""Which trainings a kernel supports, and its reasons for refusing others."""

from __future__ import annotations

import pytest
from kernel_cases import (
    BANK,
    LOSS,
    Case,
    bank,
    chain,
    every,
    fixed_bank,
    needs_kernel,
    plan,
    stack_of,
)  # fmt: skip
from torch import Tensor

from experiments.methods.gates.decay import DecayGate
from experiments.methods.gates.ste import StraightThrough
from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel, StackedLinear
from experiments.tasks.base import MiniBatches
from ngn.components.base import OrderedSum
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE
from ngn.train.batches import Batches, FullBatches, Split
from ngn.train.losses import Loss, Supervised
from ngn.train.plan import TrainPlan


@needs_kernel
@every
@pytest.mark.parametrize("seeds", [1, [1, 2]])
def test_supported_trainings_are_accepted(case: Case, seeds: int | list[int]) -> None:
    assert unsupported(case.learner(seeds), case.batches(), LOSS, plan(10)) is None


class OwnSum(OrderedSum):
    """A subclass that no kernel supports."""


class OwnLearner(CapacityLearner):
    """A subclass that no kernel supports."""


def blocks(hidden: list[int]) -> MLPBank:
    return MLPBank([1, *hidden, 1], 4, 0)


def model(hidden: list[int], head: StackedLinear | None = None) -> CapacityLearner:
    return CapacityLearner(ParallelModel(OrderedSum(blocks(hidden), CountGate(4)), head))


def frozen() -> CapacityLearner:
    learner = bank(1)
    learner.axes[0].bank.get_parameter("b1").requires_grad_(False)
    return learner


def absolute(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).abs().mean((-2, -1))


SPLIT = BANK.batches().split
NORMALISED = ParallelModel(OrderedSum(blocks([8, 8]), DecayGate(4, normalise=True, learn_r=False)))
LEARNERS: list[tuple[CapacityLearner, str]] = [
    (model([8, 8], StackedLinear(1, 1, 0)), "one ordered sum and no head"),
    (model([8]), "MLP blocks of the sizes"),
    (model([8, 16]), "MLP blocks of the sizes"),
    (model([65, 65]), "width 65"),
    (CapacityLearner(ParallelModel(OwnSum(blocks([8, 8]), CountGate(4)))), "OwnSum"),
    (OwnLearner(bank(1).model), "OwnLearner"),
    (CapacityLearner(ParallelModel(OrderedSum(blocks([8, 8]), StraightThrough(4)))), "StraightThrough"),
    (CapacityLearner(NORMALISED), "DecayGate"),
    (frozen(), "trainable parameters"),
    (bank(1).double(), "body in float32"),
    (fixed_bank(1, K=0), "no blocks"),
    (chain(1, width=65), "at most 64 units"),
    (stack_of(1, [CountGate(3), CountGate(3, delta=-0.5)]), "same schedules for all groups"),
    (stack_of(1, [StraightThrough(3), StraightThrough(3)]), "StraightThrough"),
]
BATCHES: list[tuple[Batches, str]] = [
    (MiniBatches(SPLIT, 64, 0, lambda x: x), "full batches"),
    (FullBatches(Split(SPLIT.inputs.double(), SPLIT.targets.double())), "inputs and targets"),
]
PLANS = [
    (plan(5, accumulate=2), "micro-batches"),
    (plan(5, optimizer="adamw"), "only train.optimizer=adam"),
    (plan(5, warmup=0.1), "without train.warmup"),
    (plan(5, autocast="bf16"), "autocast"),
    (plan(5, lr_boundary_shape=COSINE), "learning rate of the boundary"),
]
CASES: list[tuple[CapacityLearner, Batches, Loss, TrainPlan, str]] = [
    *((learner, BANK.batches(), LOSS, plan(5), reason) for learner, reason in LEARNERS),
    *((bank(1), batches, LOSS, plan(5), reason) for batches, reason in BATCHES),
    (bank(1), BANK.batches(), Supervised(absolute), plan(5), "mean squared error"),
    *((bank(1), BANK.batches(), LOSS, how, reason) for how, reason in PLANS),
]


@pytest.mark.parametrize(("learner", "batches", "loss", "how", "reason"), CASES)
def test_unsupported_trainings_are_refused(
    learner: CapacityLearner, batches: Batches, loss: Loss, how: TrainPlan, reason: str
) -> None:
    said = unsupported(learner, batches, loss, how)
    assert said is not None
    assert reason in said
    with pytest.raises(ValueError, match="no compiled kernel can do this training"):
        KernelTrainer(learner, batches, loss, how, progress="never").fit()
