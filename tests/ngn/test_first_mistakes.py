"""Common mistakes raise an error in one sentence, and a boundary that has not settled gives a warning."""

import warnings

import pytest
import torch
from torch import nn

import ngn
from experiments.models.mlp import MLPBank
from ngn.cut.truncation import deploy
from ngn.integrations import BoundaryOptimizer
from ngn.methods.fixed import FixedCount
from ngn.methods.orders import Order
from ngn.schedules import LINEAR, Shape, shape_at


def learner_at(t0: float, **settings: object) -> ngn.Learner:
    seeds = settings.pop("seeds", 0)
    return ngn.Learner(ngn.OrderedSum(MLPBank([1, 3, 1], K=4, seeds=seeds), ngn.CountGate(4, t0=t0, **settings)))


def fit(learner: object, x: object, loss: object, progress: str = "never", **settings: object) -> None:
    ngn.fit(learner, x, torch.zeros(2, 1), loss, ngn.TrainPlan(steps=1), progress=progress, **settings)


MSE, X = nn.functional.mse_loss, torch.zeros(2, 1)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))


MLP = mlp()

MISTAKES = {
    "such as ngn.Learner(model), not Linear": lambda: fit(nn.Linear(1, 1), torch.zeros(2, 1), MSE),
    "inputs must be a tensor, not a numpy array": lambda: fit(learner_at(1.0), torch.zeros(2, 1).numpy(), MSE),
    "but has shape (2, 1): return its mean": lambda: fit(learner_at(1.0), torch.zeros(2, 1), lambda a, b: a - b),
    "K must be at least 1, not 0": lambda: ngn.CountGate(0),
    "delta must be 0.5 or -0.5, not 0.25": lambda: ngn.CountGate(3, delta=0.25),
    "expected one number, not shape (2,)": lambda: ngn.CountGate(3, t0=[1.0, 2.0]),
    "a fraction of training in (0, 1), not 0.0": lambda: ngn.CountGate(4, commit=0.0),
    "a fraction of training in (0, 1), not 1.0": lambda: ngn.CountGate(4, commit=1.0),
    "a count must be 0 or more, not -1": lambda: FixedCount(-1),
    "lambda0 must not be negative, but is -1": lambda: ngn.CountGate(4, lambda0=-1),
    "alpha_max must not be negative": lambda: ngn.CountGate(4, alpha_max=-1e-4),
    "beta_end must not be negative": lambda: ngn.CountGate(4, beta=(4.0, float("nan"))),
    "beta must be two sharpnesses": lambda: ngn.CountGate(4, beta=8.0),
    "progress must lie in [0, 1], not 1.01": lambda: shape_at(LINEAR, 1.01),
    "a shape must be one of constant, linear": lambda: Shape("linaer"),
    "OrderedSum(bank, capacity), not (CountGate, MLPBank)":
        lambda: ngn.OrderedSum(ngn.CountGate(4), MLPBank([1, 3, 1], K=4, seeds=0)),
    "K=3": lambda: ngn.OrderedSum(MLPBank([1, 3, 1], K=3, seeds=0), ngn.CountGate(4)),
    "no OrderedAxis": lambda: ngn.Learner(nn.Linear(1, 1)),
    "OrderedAxis(capacity, cuts), not Linear": lambda: ngn.OrderedAxis(nn.Linear(1, 1), []),
    "lr must be at least 0, not -1": lambda: ngn.TrainPlan(steps=1, lr=-1),
    "lr_shape must be a shape": lambda: ngn.TrainPlan(steps=1, lr_shape="cosine"),
    "autocast must be one of none, bf16, not 'fp16'": lambda: ngn.TrainPlan(steps=1, autocast="fp16"),
    "clip_scope must be one of joint, separate, body, not 'all'": lambda: ngn.TrainPlan(steps=1, clip_scope="all"),
    "optimizer must be one of adam, adamw, not 'sgd'": lambda: ngn.TrainPlan(steps=10, optimizer="sgd"),
    "warmup must be a fraction of training in [0, 1), not 1": lambda: ngn.TrainPlan(steps=10, warmup=1.0),
    "clip must be positive": lambda: ngn.TrainPlan(steps=1, clip=0.0),
    "steps and accumulate must be integers": lambda: ngn.TrainPlan(steps=1.5),
    "such as ngn.methods.orders.Order('power'), not 'power'": lambda: ngn.CountGate(4, order="power"),
    "such as (1, 2, 4), not 4": lambda: Order("matryoshka", ranks=4),
    "r must be positive, not -1": lambda: ngn.CountGate(4, r=-1.0),
    "weights must be positive, not [-1.0": lambda: ngn.CountGate(4, weights=-torch.ones(4)),
    "weights must be a tensor of K numbers": lambda: ngn.CountGate(4, weights=[1.0, 0.5, 0.2, 0.1]),
    "weights must have shape": lambda: ngn.CountGate(4, weights=torch.ones(3)),
    "stride must be positive, not 0": lambda: ngn.CountGate(4, stride=0.0),
    "sizes= is a Width; give names and sizes: {'blocks.*.mlp': ngn.Width(16)}":
        lambda: ngn.learn_sizes(MLP, ngn.Width(4)),
    "an nn.Module, first; this is a function": lambda: ngn.learn_sizes(lambda x: x, example=X),
    "pass example=, an input of it": lambda: ngn.learn_sizes(mlp()),
    "a gate has no setting 'lamda0'; did you mean lambda0?": lambda: ngn.learn_sizes(MLP, example=X, lamda0=1.0),
    "no setting 'K'; did you mean lambda0, alpha_max": lambda: ngn.learn_sizes(MLP, example=X, K=3),
    "it needs held_out=": lambda: ngn.fit(learner_at(1.0), X, X, MSE, ngn.TrainPlan(steps=2), retrain=True),
    "held_out= judges sizes under a budget": lambda: fit(learner_at(1.0), X, MSE, held_out=(X, X)),
    "preset K": lambda: ngn.CountGate(None, weights=torch.ones(3)),
    "0 has no shapes yet: call the model once":
        lambda: ngn.learn_sizes(nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.Linear(8, 1)), {"": ngn.Width(8)}),
    "sizes= names no size: add one": lambda: ngn.learn_sizes(MLP, {"0": None}, example=X),
    "'exmaple'; did you mean example?": lambda: ngn.learn_sizes(MLP, exmaple=X),
    "capacity= takes a function of a name and K": lambda: ngn.learn_sizes(MLP, example=X, capacity=ngn.CountGate(8)),
    "capacity= returned a NoneType": lambda: ngn.learn_sizes(MLP, example=X, capacity=lambda name, K: None),
    "capacity= returned one of 3 comp": lambda: ngn.learn_sizes(MLP, example=X, capacity=lambda _, K: ngn.CountGate(3)),
    "Give several arguments as a tuple": lambda: ngn.learn_sizes(MLP, example=[X]),
    "find_sizes takes a model": lambda: ngn.find_sizes(lambda x: x, X),
    "1 is a Tanh, not a linear map: name nn.Linear modules": lambda: ngn.learn_sizes(MLP, {"1": ngn.Rank(2)}),
    "no layer has a weight matrix": lambda: ngn.learn_sizes(nn.Sequential(nn.Tanh()), example=X),
    "call learner.step(progress) after each optimizer.step()":
        lambda: ngn.learn_sizes(mlp(), example=X, budget=ngn.Budget(parameters="50%")).deploy(),
    "Frozen parameters count, too; they are 25":
        lambda: ngn.learn_sizes(mlp(), {"": ngn.Width()}, example=X, frozen=True, budget=ngn.Budget(parameters="4%")),
    "by_importance=4 is not a permutation such as": lambda: ngn.Heads(4),
    "ngn.Budget(parameters=": lambda: ngn.learn_sizes(MLP, {"": ngn.Width(4)}, budget="60%", example=X),
    "round_to=-8 is not a number of entries": lambda: ngn.Width(round_to=-8),
    "not shape (2,)": lambda: ngn.learn_sizes(mlp(), example=X, budget=ngn.Front(parameters=["50%", "80%"])),
    "write a share as in '60%'":
        lambda: ngn.learn_sizes(MLP, {"": ngn.Width(4)}, example=X + 1, budget=ngn.Budget(parameters=0.6)),
    "unsettled must be 'warn' or 'allow', not 'ignore'": lambda: learner_at(1.0).deploy(unsettled="ignore"),
    "choose one with replica=0, 1, ...": lambda: learner_at(1.0, seeds=[0, 1], replicas=2).deploy(),
    "leave replica= out": lambda: learner_at(1.0).deploy(replica=1),
    "most must be at least 1, not 0": lambda: deploy(learner_at(1.0).model, most=0),
    "load takes a model, then a file; the model is a str": lambda: ngn.load("small.safetensors", MLP),
    "is no file of safetensors, or is damaged": lambda: ngn.load(MLP, __file__),
    "ngn.fit(learner, Tensor, Tensor, 'mse', TrainPlan): after the data, fit needs a loss":
        lambda: fit(learner_at(1.0), X, "mse"),
    "MSELoss is a class: pass an object of it, MSELoss()": lambda: fit(learner_at(1.0), X, nn.MSELoss),
    "None, TrainPlan): loss=None takes the loss of the model's output, and targets need a loss":
        lambda: fit(learner_at(1.0), X, None),
    "a loss must be a tensor with a gradient, not 1.0: leave .item() out":
        lambda: fit(learner_at(1.0), X, lambda output, target: 1.0),
    "but softsign(input) does not take two arguments": lambda: fit(learner_at(1.0), X, nn.functional.softsign),
    "fit has no steps=: pass ngn.TrainPlan(steps=...)": lambda: fit(learner_at(1.0), X, MSE, steps=3),
    "fit has no batch_size=: did you mean batch=?": lambda: fit(learner_at(1.0), X, MSE, batch_size=3),
    "ngn.fit(learner, TensorDataset, None, mse_loss, TrainPlan): a data set yields single samples":
        lambda: ngn.fit(learner_at(1.0), torch.utils.data.TensorDataset(X, X), None, MSE, ngn.TrainPlan(steps=1)),
    "a tuple of tensors is no batches": lambda: ngn.fit(learner_at(1.0), (X, X), None, MSE, ngn.TrainPlan(steps=1)),
    "targets come before the loss": lambda: ngn.fit(learner_at(1.0), X, MSE, ngn.TrainPlan(steps=1)),
    "batch=2 is for tensors: a DataLoader has its own batches":
        lambda: ngn.fit(learner_at(1.0), torch.utils.data.DataLoader(X), None, MSE, ngn.TrainPlan(steps=1), batch=2),
    "batch must be a number of rows, such as 64, not 0": lambda: fit(learner_at(1.0), X, MSE, batch=0),
    "batch=1 takes rows of tensors of equal length, not of float32 [2, 1] and float32 [1, 1]":
        lambda: ngn.fit(learner_at(1.0), X, X[:1], MSE, ngn.TrainPlan(steps=1), batch=1),
    "a DataLoader already yields the targets": lambda: fit(learner_at(1.0), torch.utils.data.DataLoader(X), MSE),
    "the callback needs a learner, as of ngn.learn_sizes": lambda: BoundaryOptimizer(MLP),
    "progress must be one of auto, always, never, not 'on'": lambda: fit(learner_at(1.0), X, MSE, progress="on"),
}  # fmt: skip


@pytest.mark.parametrize("said", MISTAKES)
def test_a_mistake_has_a_message(said: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        MISTAKES[said]()
    assert said in str(raised.value)


def test_an_unsettled_boundary_is_rounded_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"has not settled and is rounded: t = 1\.30\. .*raise alpha_max"):
        learner_at(1.3).deploy()
    stack = learner_at([1.3, 2.05], seeds=[0, 1], replicas=2)
    with pytest.warns(UserWarning, match=r"t = 1\.30\."):
        stack.deploy(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stack.deploy(1)
        stack.deploy(0, unsettled="allow")
        report = stack.report()
    assert report.count == [[2], [3]]
    assert [round(d, 9) for (d,) in report.distance] == [0.3, 0.05]
    assert (report.parameters, report.deployed) == (40, [19, 28])


def test_a_report_scores_what_is_trained_and_what_is_deployed() -> None:
    learner, x = learner_at(1.3), torch.linspace(-1, 1, 5)[:, None]
    for p in learner.body_parameters():  # last maps start at zero
        torch.nn.init.normal_(p, generator=torch.Generator().manual_seed(0))

    def score(model: torch.nn.Module) -> torch.Tensor:
        assert (model is learner.model, model.training, torch.is_grad_enabled()) == (True, False, False)
        return model(x).square().mean()

    report = learner.train().report(score=score)
    assert learner.training
    with torch.no_grad():
        want = {}
        for mode in ("soft", "kept", "hard"):
            with learner.mode(mode):
                want[mode] = learner(x).square().mean()
        want["hard"] = learner.deploy(unsettled="allow")(x).square().mean()
    assert all(torch.allclose(report.scores[mode], want[mode]) for mode in want)
    assert len({round(float(v), 9) for v in want.values()}) == 3
    soft, kept, hard = (f"{float(v):.4g}" for v in report.scores.values())
    words = f"score: {soft} as trained (soft), {kept} with gates on what is kept (kept), {hard} as deployed (hard)"
    assert words in str(report).splitlines()
    assert learner.report().scores == {}
