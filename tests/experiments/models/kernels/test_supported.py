"""Which trainings a kernel supports, and its reasons for refusing others."""

import pytest
from kernel_cases import (
    BANK,
    LOSS,
    bank,
    chain,
    fixed_bank,
    plan,
    stack_of,
)  # fmt: skip

from experiments.methods.gates.decay import DecayGate
from experiments.methods.gates.ste import StraightThrough
from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel, StackedLinear
from experiments.tasks.base import MiniBatches
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE
from ngn.train.batches import FullBatches, Split


class OwnSum(OrderedSum):
    """A subclass that no kernel supports."""


class OwnLearner(Learner):
    """A subclass that no kernel supports."""


def blocks(hidden):
    return MLPBank([1, *hidden, 1], 4, 0)


def model(hidden, head=None):
    return Learner(ParallelModel(OrderedSum(blocks(hidden), CountGate(4)), head))


def frozen():
    learner = bank(1)
    learner.axes[0].bank.get_parameter("b1").requires_grad_(False)
    return learner


def absolute(output, target):
    return (output - target).abs().mean((-2, -1))


SPLIT = BANK.batches().split
NORMALISED = ParallelModel(OrderedSum(blocks([8, 8]), DecayGate(4, normalise=True, learn_r=False)))
CASES = [
    ({"learner": model([8, 8], StackedLinear(1, 1, 0))}, "one ordered sum and no head"),
    ({"learner": model([8])}, "MLP blocks of the sizes"),
    ({"learner": model([8, 16])}, "MLP blocks of the sizes"),
    ({"learner": model([65, 65])}, "width 65"),
    ({"learner": Learner(ParallelModel(OwnSum(blocks([8, 8]), CountGate(4))))}, "OwnSum"),
    ({"learner": OwnLearner(bank(1).model)}, "OwnLearner"),
    ({"learner": Learner(ParallelModel(OrderedSum(blocks([8, 8]), StraightThrough(4))))}, "StraightThrough"),
    ({"learner": Learner(NORMALISED)}, "DecayGate"),
    ({"learner": frozen()}, "trainable parameters"),
    ({"learner": bank(1).double()}, "body in float32"),
    ({"learner": fixed_bank(1, K=0)}, "no blocks"),
    ({"learner": chain(1, width=65)}, "at most 64 units"),
    ({"learner": stack_of(1, [CountGate(3), CountGate(3, delta=-0.5)])}, "same schedules for all groups"),
    ({"learner": stack_of(1, [StraightThrough(3), StraightThrough(3)])}, "StraightThrough"),
    ({"batches": MiniBatches(SPLIT, 64, 0, lambda x: x)}, "full batches"),
    ({"batches": FullBatches(Split(SPLIT.inputs.double(), SPLIT.targets.double()))}, "inputs and targets"),
    ({"loss": Supervised(absolute)}, "mean squared error"),
    ({"plan": plan(5, accumulate=2)}, "micro-batches"),
    ({"plan": plan(5, optimizer="adamw")}, "only train.optimizer=adam"),
    ({"plan": plan(5, warmup=0.1)}, "without train.warmup"),
    ({"plan": plan(5, autocast="bf16")}, "autocast"),
    ({"plan": plan(5, lr_boundary_shape=COSINE)}, "learning rate of the boundary"),
]


@pytest.mark.parametrize(("changed", "reason"), CASES)
def test_unsupported_trainings_are_refused(changed, reason):
    given = {"learner": bank(1), "batches": BANK.batches(), "loss": LOSS, "plan": plan(5)} | changed
    said = unsupported(**given)
    assert said is not None
    assert reason in said
    with pytest.raises(ValueError, match="no compiled kernel can do this training"):
        KernelTrainer(*given.values(), progress="never").fit()
