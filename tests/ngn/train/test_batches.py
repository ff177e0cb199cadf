"""Batches are addressed by index, whatever their source. Losses fit the batches."""

import warnings

import pytest
import torch
from torch import nn

from experiments.models.mlp import MLPBank
from ngn import Front, learn_sizes
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised, Taught, mean_squared_error
from ngn.methods.ngn import CountGate
from ngn.train.batches import IteratedBatches, ShuffledBatches
from ngn.train.fit import fit
from ngn.train.plan import TrainPlan

X = torch.linspace(-2, 2, 32).unsqueeze(-1)
Y = torch.sin(3 * X)
MSE = Supervised(mean_squared_error)


def model():
    return OrderedSum(MLPBank([1, 4, 1], 3, 0), CountGate(3, lambda0=1e-3))


def test_batches_of_an_iterable_are_addressed_by_index():
    batches = IteratedBatches([10, 20, 30])
    assert [batches.at(i) for i in (0, 0, 1, 5, 6, 2, 0)] == [10, 10, 20, 30, 10, 30, 10]
    once = IteratedBatches(x for x in (1, 2))
    assert [once.at(0), once.at(1)] == [1, 2]
    with pytest.raises(ValueError, match="ended after 2 and yields none"):
        once.at(2)


def test_tensors_come_in_shuffled_minibatches():
    data, rows = {"x": torch.arange(10), "y": 10 * torch.arange(10)}, torch.arange(10)
    torch.manual_seed(3)
    batches = ShuffledBatches(data, rows=10, size=3)
    epochs = [torch.cat([batches.at(3 * epoch + n)["x"] for n in range(3)]) for epoch in range(2)]
    assert all(len(epoch.unique()) == 9 for epoch in epochs)
    assert not torch.equal(epochs[0], rows[:9])
    assert not torch.equal(*epochs)
    torch.rand(5)  # what a training draws
    again = ShuffledBatches(data, rows=10, size=3)
    assert all(torch.equal(again.at(n)["x"], batches.at(n)["x"]) for n in (5, 0, 1))
    assert torch.equal(again.at(4)["y"], 10 * again.at(4)["x"])
    torch.manual_seed(4)
    assert not torch.equal(ShuffledBatches(data, rows=10, size=3).at(0)["x"], batches.at(0)["x"])


def test_fit_takes_the_rows_of_a_batch():
    seen = []

    def mse(output, target):
        seen.append(target.shape[-2])
        return mean_squared_error(output, target)

    fit(Learner(model()), X, Y, mse, TrainPlan(steps=4), batch=8, progress="never")
    assert seen[-4:] == [8] * 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(Learner(model()), X, Y, mse, TrainPlan(steps=1), progress="never")
    many, plan = X.repeat(40, 1), TrainPlan(steps=1)
    with pytest.warns(UserWarning, match="all 1,280 rows as one batch: pass batch=64"):
        fit(Learner(model()), many, many.sin(), mse, plan, progress="never")
    fit(Learner(model()), many, many.sin(), mse, plan, batch=1280, progress="never")  # no warning: it is meant
    assert seen[-1] == 1280


def of_output(output, target):
    return (output - target).square().mean((-2, -1))


def of_model(m, b):
    return of_output(m(b[0]), b[1])


def of_inner_model(model, batch):
    noise = torch.rand(3)  # must not be seen in the random numbers of the training
    return of_output(model.model(batch[0]), batch[1]) + 0 * noise.sum()


def of_attribute(output, target):
    return of_output(output.view_as(target.expand_as(output)), target)


@pytest.mark.parametrize("loss", [of_output, of_model, of_inner_model, of_attribute])
@pytest.mark.parametrize("loader", [True, False], ids=["loader", "tensors"])
def test_a_loss_takes_output_and_target_or_model_and_batch(loss, loader):
    pairs = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=32)
    data, states = ((pairs, None) if loader else (X, Y)), []
    for each in (MSE, loss):
        learner = Learner(model())
        torch.manual_seed(0)
        fit(learner, *data, each, TrainPlan(steps=3), progress="never")
        states.append([*learner.state().values(), torch.rand(1) if loss is not of_inner_model else torch.ones(1)])
    for a, b in zip(*states, strict=True):
        torch.testing.assert_close(a, b)


def test_a_loss_that_fits_neither_way_is_told_how_it_was_called():
    learner, pairs = Learner(model()), [(X, Y)]
    before = [p.detach().clone() for p in learner.parameters()]
    noted = r"as loss\(output, target\), with output: float32 \[32, 1\], target: float32 \[32, 1\]. As loss\(model, "
    with pytest.raises(AttributeError, match="logits") as caught:
        fit(learner, pairs, None, lambda output, target: output.logits, TrainPlan(steps=3), progress="never")
    caught.match(noted + r"batch\) it raised AttributeError: 'Learner'")
    wrong = {"a dict with x, y": [{"x": X, "y": Y}], "a tuple of 3": [(X, Y, Y)], r"float32 \[32, 1\]": X}
    for said, batches in wrong.items():
        with pytest.raises(TypeError, match=rf"needs batches of two, .* but a batch is {said}: write a loss\(model"):
            fit(learner, batches, None, of_output, TrainPlan(steps=3), progress="never")
    assert all(torch.equal(a, b) for a, b in zip(learner.parameters(), before, strict=True))


class WithLoss(nn.Module):
    """As a model of transformers: it returns its loss if the batch has labels."""

    def __init__(self):
        super().__init__()
        self.inner = model()

    def forward(self, values, labels=None):
        output = self.inner(values)
        return {"logits": output, **({} if labels is None else {"loss": mean_squared_error(output, labels)})}


def test_the_loss_may_be_that_of_the_models_output():
    states, batch = [], {"values": X, "labels": Y}
    trained = [(X, Y, lambda output, target: mean_squared_error(output["logits"], target)), ([batch],), (batch,)]
    trained += [(torch.utils.data.DataLoader([batch], batch_size=None),)]
    trained += [([batch], None, lambda model, batch: model(**batch)["loss"]), ({"values": X}, Y, trained[0][2])]
    for data in trained:
        learner = Learner(WithLoss())
        fit(learner, *data, plan=TrainPlan(steps=3), progress="never")
        states.append(learner.state())
    for name, value in states[0].items():
        assert all(torch.equal(value, other[name]) for other in states[1:]), name
    for wrong, why in ({"values": X}, "with logits has none. A batch is a dict with values"), ((X, Y), "a tuple of 2"):
        with pytest.raises(TypeError, match=why):
            fit(Learner(WithLoss()), [wrong], plan=TrainPlan(steps=3), progress="never")


def test_steps_with_a_teacher_learn_its_logits_and_judge_by_the_loss_alone():
    torch.manual_seed(0)
    loss, x, y = nn.functional.cross_entropy, torch.randn(64, 3), torch.randint(0, 4, (64,))
    teacher, model = (nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 4)) for _ in range(2))
    taught, aim = Taught(Supervised(loss), teacher), (teacher(x).detach() / 4).softmax(-1)
    before, least = loss(model(x) / 4, aim), -(aim * aim.log()).sum(-1).mean()
    torch.testing.assert_close(taught(model, (x, y)), 0.1 * loss(model(x), y) + 0.9 * 16 * (before - least))
    assert torch.equal(taught(model.eval(), (x, y)), loss(model(x), y))
    learner = learn_sizes(model, example=x, budget=Front(parameters="50%"))
    fit(learner, x, y, loss, TrainPlan(steps=100, lr=3e-2), teacher=teacher, progress="never")
    assert loss(model(x) / 4, aim) - least < (before - least) / 4
    with pytest.raises(ValueError, match="a model of its own"):
        fit(learner, x, y, loss, TrainPlan(steps=1), teacher=model)
    with pytest.raises(TypeError, match="a tuple of 2 is returned: leave teacher= out"):
        fit(learner, x, y, loss, TrainPlan(steps=1), teacher=nn.LSTM(3, 4), progress="never")
