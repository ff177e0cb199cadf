"""Training in two processes that share each batch equals training in one process with the whole batch."""

import pytest
import torch
import two_processes
from torch.nn.parallel import DistributedDataParallel

from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised, mean_squared_error
from ngn.methods.ngn import CountGate
from ngn.train.plan import TrainPlan
from ngn.train.trainer import Trainer

X = torch.linspace(-2, 2, 32, dtype=torch.float64).unsqueeze(-1)
Y = torch.sin(3 * X)
PLAN = TrainPlan(steps=12, lr=1e-2, lr_boundary=0.1, clip=0.1, optimizer="adamw", weight_decay=0.1)


class Share:
    """Every ``parts``-th sample."""

    def __init__(self, part, parts):
        self.part, self.parts = part, parts

    def at(self, index):
        return X[self.part :: self.parts], Y[self.part :: self.parts]


def trained(part, parts):
    """The state after training. Initial values differ between processes; those of the first process are used."""
    gate = CountGate(4, t0=1.3, lambda0=1e-2, alpha_max=1e-2)
    learner = Learner(ParallelModel(OrderedSum(MLPBank([1, 6, 1], 4, part), gate))).double()
    model = DistributedDataParallel(learner) if parts > 1 else learner
    Trainer(learner, Share(part, parts), Supervised(mean_squared_error), PLAN, model=model, progress="never").fit()
    return {name: value.detach().clone() for name, value in learner.state().items()}


@pytest.mark.slow
def test_processes_agree_and_follow_the_joint_batch(tmp_path):
    first, second = two_processes.results(tmp_path, trained, 2)
    alone = trained(0, 1)
    assert set(first) == set(alone)
    for name, value in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-9, atol=1e-12, msg=name)
    assert first["model.group.capacity.tau"] != CountGate(4, t0=1.3).tau
