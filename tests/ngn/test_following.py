"""What follows a cut in place: optimisers, averages, callbacks, checkpoints."""

import copy
import re
import warnings

import pytest
import torch
from axes import X
from cuttable import optimizer_of, stack, steps, two_maps
from stopping import Stop, stop_after
from torch import nn

import ngn
from ngn.cut.truncation import deploy
from ngn.losses import Supervised
from ngn.train.batches import FullBatches, Split
from ngn.train.trainer import Trainer


class ModelEma(nn.Module):
    """An average like timm's: a copy, updated by the places of tensors in the state."""

    def __init__(self, model):
        super().__init__()
        self.module = copy.deepcopy(model)

    @torch.no_grad()
    def update_parameters(self, model):
        for mine, other in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            mine.lerp_(other, 0.3)


class ByName(dict):
    """An average by hand: a dictionary of tensors by name, of the parameters or of the state."""

    def __init__(self, model, tensors):
        super().__init__({name: value.detach().clone() for name, value in tensors(model).items()})
        self.tensors = tensors

    def update_parameters(self, model):
        for name, value in self.tensors(model).items():
            self[name] = 0.7 * self[name] + 0.3 * value.detach()


def averaged(average, model):
    """The model of an average."""
    if isinstance(average, nn.Module):
        return deploy(average.module)
    twin = copy.deepcopy(model)
    twin.load_state_dict({name.removeprefix("model."): value for name, value in average.items()}, strict=False)
    return deploy(twin)


AVERAGES = {
    "learner, buffers": lambda learner: torch.optim.swa_utils.AveragedModel(learner, use_buffers=True),
    "model, buffers": lambda learner: torch.optim.swa_utils.AveragedModel(learner.model, use_buffers=True),
    "model": lambda learner: torch.optim.swa_utils.AveragedModel(learner.model),
    "timm, model": lambda learner: ModelEma(learner.model),
    "by name": lambda learner: ByName(learner, lambda part: dict(part.named_parameters())),
    "state of the model by name": lambda learner: ByName(learner.model, lambda part: part.state_dict()),
}


@pytest.mark.parametrize("told", ["step", "callback"])
@pytest.mark.parametrize("name", AVERAGES)
def test_averages_are_cut_with_the_model(name, told):
    learner, twin = stack(), stack()
    averages = [AVERAGES[name](each) for each in (learner, twin)]
    if told == "callback":
        learner.on_cut(lambda cut: cut(averages[0]))
    for each, average in zip((learner, twin), averages, strict=True):
        optimizer = optimizer_of(each)
        for n in range(6):
            steps(each, optimizer, X, 1)
            average.update_parameters(each.model if "model" in name else each)
            passed = [average] if told == "step" else []
            each.step((n + 1) / 6, optimizer if each is learner else None, passed if each is learner else [])
    assert len(learner.model.layers) < 4
    one, two = (averaged(*each) for each in zip(averages, (learner.model, twin.model), strict=True))
    torch.testing.assert_close(one(X), two(X), rtol=1e-9, atol=1e-11)


class Around(torch.optim.Optimizer):
    """An optimiser with another inside that has the same groups, as SAM."""

    def __init__(self, groups):
        super().__init__(groups, {"rho": 0.05})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=1e-2, momentum=0.9)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            p.add_(self.state[p].get("before", p), alpha=1e-3)
            self.state[p]["before"] = p.detach().clone()
        self.base_optimizer.step()


def around(learner):
    return [Around([{"params": learner.body_parameters()}, {"params": learner.controller_parameters()}])]


def two(learner):
    body = learner.body_parameters()
    boundaries = {"params": learner.controller_parameters(), "weight_decay": 0.0}
    others = [{"params": [p for p in body if p.dim() != 2]}, boundaries]
    matrices = torch.optim.SGD([p for p in body if p.dim() == 2], lr=1e-2, momentum=0.9)
    return [matrices, torch.optim.AdamW(others, lr=1e-2)]


@pytest.mark.parametrize("make", [around, two])
def test_optimisers_within_others_and_beside_them_are_cut(make):
    learner, twin = stack(), stack()
    every = [*learner.parameters()]
    for each in (twin, learner):
        optimizers = make(each)
        for n in range(8):
            each.zero_grad()
            ((each(X) - X.sin()).square().mean() + each.penalty()).backward()
            for optimizer in optimizers:
                optimizer.step()
            each.step((n + 1) / 8, optimizers if each is learner else None)
    assert learner.masked == [] != twin.masked
    held = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in learner.parameters()} < {id(p) for p in every}
    torch.testing.assert_close(learner(X), twin(X), rtol=1e-9, atol=1e-11)


UNCUTTABLE = {
    "factored state": (lambda p: [torch.optim.Adafactor(p)], r"Adafactor keeps a state of shape \[32, 1\]"),
    "history of all": (lambda p: [torch.optim.LBFGS(p, max_iter=1)], "LBFGS keeps a state that is larger"),
    "one of two": (
        lambda p: [torch.optim.SGD(p[:2])],
        "no optimiser holds Linear.weight; pass all of them: learner.step",
    ),
    "quantised": (lambda p: [EightBit(p, momentum=0.9)], r"EightBit keeps a Quantised state"),
    "aside": (lambda p: [Aside(p)], "Aside keeps tensors outside of its state"),
}


class Quantised(torch.Tensor):
    """A tensor of another type, as moments of eight bits are."""


class EightBit(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for state in self.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].as_subclass(Quantised)


class Aside(torch.optim.SGD):
    def __init__(self, params):
        super().__init__(params, lr=0.01)
        self.slow = [p.detach().clone() for p in params]


@pytest.mark.parametrize("name", UNCUTTABLE)
def test_what_an_optimiser_cannot_follow_is_said_in_the_first_step_and_masked(name):
    learner, (make, message) = two_maps(), UNCUTTABLE[name]
    optimizers = make(learner.body_parameters())

    def closure():
        loss = (learner(X) - X.sin()).square().mean()
        learner.zero_grad()
        loss.backward()
        return loss

    for n in range(10):
        closure()
        for optimizer in optimizers:
            optimizer.step(closure)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            learner.step((n + 1) / 10, optimizers)
        assert [bool(re.search(message, str(w.message))) for w in said] == [True] * (n == 0)
    assert learner.masked == learner.names
    assert learner.deploy(example=X, unsettled="allow")[0].out_features == int(learner.count()) < 32


def trainer_of(learner, folder=None, stop=None, steps=20):
    plan = ngn.TrainPlan(steps=steps, lr=1e-2, lr_boundary=0.1, clip=0.5, optimizer="adamw", weight_decay=0.1)
    batches = FullBatches(Split(X, X.sin()))
    settings = {"folder": folder, "checkpoint_seconds": 1e-9, "progress": "never", "shrink": True}
    settings["on_step"] = stop_after(stop - 1 if stop else steps)
    trainer = Trainer(learner, batches, Supervised(nn.functional.mse_loss), plan, **settings)
    if stop is None:
        return trainer.fit()
    with pytest.raises(Stop):
        trainer.fit()
    return None


@pytest.mark.parametrize("stop", [5, 10, 12])  # the sizes are fixed and cut at the start of step 10
def test_fit_resumes_to_the_last_bit(tmp_path, stop):
    whole, first, second = (stack(seed, by_magnitude=True) for seed in (1, 1, 2))
    expected = trainer_of(whole)
    trainer_of(first, tmp_path, stop)
    got = trainer_of(second, tmp_path)
    assert got.resumed == (stop > 1)
    assert len(whole.model.layers) < 4
    one, other = whole.state(), second.state()
    assert [*one] == [*other]
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert str(whole.report()) == str(second.report())
    assert torch.equal(whole.size(), second.size())
    for name, curve in expected.curves.items():
        assert (curve == got.curves[name]).all(), name


HALF = ngn.Budget(parameters="50%", round_to=2)


@pytest.mark.parametrize(
    ("stop", "budget", "by_magnitude", "cut"),
    [(4, None, True, True), (8, None, True, False), (6, HALF, False, True), (8, HALF, True, False)],
)
def test_an_own_loop_resumes_to_the_last_bit_in_a_model_of_another_seed(tmp_path, stop, budget, by_magnitude, cut):
    def train(learner, optimizer, span):
        for n in span:
            loss = (learner(X) - X.sin()).square().mean() + learner.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            layers = len(learner.model.layers)
            learner.step((n + 1) / 12, optimizer if cut else None)  # while the graph of ``loss`` is alive
            assert (len(learner.model.layers) < layers) == (n == 5 and cut)
        return learner

    whole, first, second = (stack(seed, by_magnitude, budget=budget) for seed in (1, 1, 2))
    one, other = ([axis.order.tolist() for axis in each.axes if "layers." in axis.name] for each in (whole, second))
    assert (one == other) != by_magnitude
    train(whole, optimizer_of(whole), range(12))
    optimizer = optimizer_of(train(first, saved := optimizer_of(first), range(stop)))
    torch.save({"learner": first.state_dict(), "optimizer": saved.state_dict()}, tmp_path / "checkpoint.pt")
    kept = torch.load(tmp_path / "checkpoint.pt")
    second.load_state_dict(kept["learner"])
    optimizer = optimizer_of(second)
    optimizer.load_state_dict(kept["optimizer"])
    second.resume(stop, stop / 12)
    train(second, optimizer, range(stop, 12))
    one, other = whole.state(), second.state()
    assert [*one] == [*other]
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert str(whole.report()) == str(second.report())
    assert str(whole.report(latency=X)).count("->") == str(second.report()).count("->") + 1
    assert {*second.watch.missing()} <= {*whole.watch.missing()}
    assert torch.equal(whole.deploy()(X), second.deploy(example=X)(X))
