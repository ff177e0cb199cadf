"""Batches are addressed by index, whatever their source. Micro-batches have weights."""

import pytest
import torch

from experiments.models.mlp import MLPBank
from ngn.components.base import OrderedSum
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.train.batches import IteratedBatches
from ngn.train.fit import fit
from ngn.train.losses import Supervised, mean_squared_error
from ngn.train.plan import TrainPlan
from ngn.train.trainer import Trainer

X = torch.linspace(-2, 2, 32).unsqueeze(-1)
Y = torch.sin(3 * X)
MSE = Supervised(mean_squared_error)


def model():
    return OrderedSum(MLPBank([1, 4, 1], 3, 0), CountGate(3, lambda0=1e-3))


def masked(model, batch):
    x, y, mask = batch
    return ((model(x) - y).square().squeeze(-1) * mask).sum(-1) / mask.sum()


def kept(batch):
    return float(batch[2].sum())


@pytest.mark.parametrize("counts", [(1, 8, 3), (0, 5, 7), (4, 4, 4)])
def test_weighted_micro_batches_have_the_gradient_of_one_batch(counts):
    x, y = X[:24].double(), Y[:24].double()
    mask = torch.zeros(24, dtype=torch.float64)
    for part, count in enumerate(counts):
        mask[8 * part : 8 * part + count] = 1

    class Parts:
        def at(self, index):
            part = slice(8 * (index % 3), 8 * (index % 3) + 8)
            return x[part], y[part], mask[part]

    class Whole:
        def at(self, index):
            return x, y, mask

    gradients = []
    for batches, accumulate in ((Parts(), 3), (Whole(), 1)):
        learner = CapacityLearner(model()).double()
        plan = TrainPlan(steps=3, lr=1e-2, accumulate=accumulate)
        history = Trainer(learner, batches, masked, plan, weight=kept, progress="never").fit()
        gradients.append([*learner.state().values(), torch.from_numpy(history.curves["task"])])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_equal_weights_change_no_bit():
    class Halves:
        def at(self, index):
            half = slice(0, 16) if index % 2 == 0 else slice(16, 32)
            return X[half], Y[half]

    states = []
    for weight in (None, lambda batch: 37.0):
        learner = CapacityLearner(model())
        plan = TrainPlan(steps=10, lr=1e-2, accumulate=2)
        history = Trainer(learner, Halves(), MSE, plan, weight=weight, progress="never").fit()
        states.append([*learner.state().values(), torch.from_numpy(history.curves["loss"])])
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_batches_may_be_a_data_loader_a_list_or_whole_tensors():
    pairs = torch.utils.data.TensorDataset(X, Y)
    loader = torch.utils.data.DataLoader(pairs, batch_size=32)
    plan, states = TrainPlan(steps=7, lr=1e-2), []
    for inputs, targets, loss in ((X, Y, mean_squared_error), (loader, None, MSE), ([(X, Y)], None, MSE)):
        learner = CapacityLearner(model())
        fit(learner, inputs, targets, loss, plan, progress="never")
        states.append(learner.state())
    for name, value in states[0].items():
        assert all(torch.equal(value, other[name]) for other in states[1:]), name


def test_batches_of_an_iterable_are_addressed_by_index():
    batches = IteratedBatches([10, 20, 30])
    assert [batches.at(i) for i in (0, 0, 1, 5, 6, 2, 0)] == [10, 10, 20, 30, 10, 30, 10]
    once = IteratedBatches(x for x in (1, 2))
    assert [once.at(0), once.at(1)] == [1, 2]
    with pytest.raises(ValueError, match="ended after 2 and yields none"):
        once.at(2)
