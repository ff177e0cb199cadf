"""The order of importance: units of any order form components, and scores say which are in front."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from traceable import Experts, ResNet, ShuffleNet, Swin, example_of, network

import ngn
from ngn.cut.truncation import deploy

X, Y = torch.randn(64, 8), torch.randn(64, 4)
PAIRS = [[X[:32], Y[:32]], [X[32:], Y[32:]]]
FROM = {"calibration": PAIRS, "loss": F.mse_loss}
SCORES = {"magnitude": {}, "taylor": FROM, "wanda": FROM}


def two_maps(units: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, units), nn.ReLU(), nn.Linear(units, 4))


def leading(model: nn.Module, parts: int = 4) -> nn.Module:
    """The model with the first of every ``parts`` components."""
    axes = [module for module in model.modules() if isinstance(module, ngn.OrderedAxis)]
    return deploy(model, most=max(axis.K for axis in axes) // parts)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    "sizes", [None, {"": ngn.Width()}, {"": ngn.Width(8)}], ids=["found", "single units", "components of 8"]
)
def test_dead_units_in_front_go_first(score, sizes):
    model = two_maps()
    with torch.no_grad():
        model[0].weight[:48], model[0].bias[:48], model[2].weight[:, :48] = 0, 0, 0
    whole = model(X).detach()
    unsorted = ngn.learn_sizes(copy.deepcopy(model), sizes, example=X, by_importance=None).model
    assert float((leading(unsorted)(X).detach() - whole).norm() / whole.norm()) > 0.3
    learner = ngn.learn_sizes(model, sizes, example=X, by_importance=score, **SCORES[score])
    small = leading(learner.model)
    assert small[2].in_features == 16
    torch.testing.assert_close(small(X), whole)


def ranked(scores: torch.Tensor, K: int) -> torch.Tensor:
    """The component of each unit, if the best form component 0."""
    return scores.argsort(descending=True, stable=True).argsort() // (len(scores) // K)


def test_the_magnitude_is_the_norm_over_all_members_of_a_group():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)
    )
    model[1].weight.data.uniform_(0, 2)
    learner = ngn.learn_sizes(model, example=torch.randn(2, 3, 4, 4), by_importance="magnitude")
    conv, norm, last = model[0].weight, model[1].weight, model[4].weight
    scores = [
        conv[k].square().sum() + norm[k].square() + last[:, 16 * k : 16 * k + 16].square().sum() for k in range(8)
    ]
    assert torch.equal(learner.axes[0].ranks, ranked(torch.stack(scores).sqrt(), 8))


def test_wanda_is_the_weight_times_the_norm_of_what_it_reads():
    model = two_maps()
    learner = ngn.learn_sizes(model, {"": ngn.Width(8)}, example=X, by_importance="wanda", **FROM)
    norms = model[1](model[0](X)).norm(dim=0)
    assert torch.equal(learner.axes[0].ranks, ranked(model[2].weight.abs().sum(0) * norms, 8))


def test_taylor_is_the_loss_of_removing_a_unit_to_first_order():
    model, step = two_maps().double(), 1e-6
    x, y = X.double(), Y.double()
    given = {"calibration": [[x, y]], "loss": F.mse_loss}
    learner = ngn.learn_sizes(copy.deepcopy(model), {"": ngn.Width()}, example=x, by_importance="taylor", **given)
    changes = []
    for k in range(64):
        less = copy.deepcopy(model)
        less[2].weight.data[:, k] *= 1 - step
        changes.append((F.mse_loss(model(x), y) - F.mse_loss(less(x), y)) / step)
    assert torch.equal(learner.axes[0].ranks, ranked(torch.stack(changes).detach().abs(), 64))


def test_taylor_needs_no_gradient_of_weights_and_leaves_none():
    model = two_maps()
    free = ngn.learn_sizes(copy.deepcopy(model), {"": ngn.Width(8)}, example=X, by_importance="taylor", **FROM)
    frozen = ngn.learn_sizes(model, {"": ngn.Width(8)}, example=X, by_importance="taylor", frozen=True, **FROM)
    assert torch.equal(free.axes[0].ranks, frozen.axes[0].ranks)
    assert all(p.grad is None for p in (*free.parameters(), *frozen.parameters()))
    assert model.training


@pytest.mark.parametrize("kind", [ResNet, ShuffleNet, Swin], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("score", SCORES)
def test_found_structures_are_sorted_and_cut(kind, score):
    model, x = network(kind), example_of(kind)
    given = {"calibration": [x], "loss": lambda model, x: model(x).square().mean()} if score != "magnitude" else {}
    learner = ngn.learn_sizes(model, example=x, by_importance=score, **given)
    assert any(not torch.equal(axis.ranks, torch.arange(axis.K)) for axis in learner.axes)
    for axis in learner.axes:
        axis.capacity.tau.data.fill_(1.0)
    learner.deploy(example=x, unsettled="allow")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"by_importance": "magnitud"}, "none of magnitude, taylor, wanda"),
        ({"by_importance": "taylor"}, "pass calibration="),
        ({"by_importance": "wanda"}, "give by_importance to ngn.fit"),
        ({"by_importance": "wanda", "calibration": PAIRS}, "pass loss="),
        ({"by_importance": "taylor", "calibration": [X]}, "pass loss="),
        ({"by_importance": "taylor", "calibration": [X], "loss": lambda model, x: model(x)}, "one number"),
    ],
)
def test_what_cannot_be_scored_is_refused_and_the_model_left_as_it_was(given, said):
    model = two_maps()
    names = [name for name, _ in model.named_modules()]
    with pytest.raises(ValueError, match=said):
        ngn.learn_sizes(model, {"": ngn.Width(8)}, example=X, **given)
    assert [name for name, _ in model.named_modules()] == names


def test_sizes_without_a_score_keep_their_order_and_are_named():
    model = network(Experts)
    x = example_of(Experts)
    with pytest.warns(UserWarning, match="not read by linear layers"):
        learner = ngn.learn_sizes(model, example=x, by_importance="wanda", calibration=[x])
    assert len(learner.axes) > 0
    broken = two_maps()
    broken[0].weight.data[3] = torch.nan
    with pytest.warns(UserWarning, match="finite values, have no magnitude"):
        learner = ngn.learn_sizes(broken, {"": ngn.Width(8)}, example=X, by_importance="magnitude")
    assert torch.equal(learner.axes[0].ranks, torch.arange(64) // 8)


def test_weights_without_values_keep_their_order_and_are_not_scored():
    with torch.device("meta"):
        model, again, x = two_maps(), two_maps(), torch.empty(2, 8)
    assert ngn.learn_sizes(model, {"": ngn.Width(8)}, example=x).axes[0].ranks is None
    with pytest.raises(ValueError, match="meta device"):
        ngn.learn_sizes(again, {"": ngn.Width(8)}, example=x, by_importance="taylor", **FROM)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_scored_in_single(dtype):
    model = two_maps().to(dtype)
    model[0].weight.data[5] = 300.0  # its square overflows in float16
    learner = ngn.learn_sizes(model, {"": ngn.Width()}, example=X.to(dtype), by_importance="magnitude")
    assert int(learner.axes[0].ranks[5]) == 0


def fitted(score, inputs, targets, **settings):
    torch.manual_seed(5)
    budget = ngn.Budget(parameters="50%")
    learner = ngn.learn_sizes(two_maps(), {"": ngn.Width(8)}, example=X, budget=budget, by_importance=None)
    ngn.fit(
        learner, inputs, targets, F.mse_loss, ngn.TrainPlan(steps=20), by_importance=score, progress="never", **settings
    )
    return learner


@pytest.mark.parametrize("score", SCORES)
def test_fit_sorts_by_its_own_batches_before_the_first_step(score):
    torch.manual_seed(5)
    sorted_before = ngn.learn_sizes(two_maps(), {"": ngn.Width(8)}, example=X)
    sorted_before.sort(score, [[X, Y]], F.mse_loss)
    for data in ((X, Y), ([[X, Y]], None)):
        assert torch.equal(fitted(score, *data).axes[0].order, sorted_before.axes[0].ranks)


def test_frozen_weights_are_restored_in_their_order():
    model = two_maps()
    first, second = (
        ngn.learn_sizes(copy.deepcopy(model), {"": ngn.Width(8)}, example=X, frozen=True, t0=2.0, commit=0.1)
        for _ in range(2)
    )
    first.sort("taylor", **FROM)
    first.set_progress(0.5)
    assert first.shrink()
    second.restore(first.state())
    assert torch.equal(second.model[0].weight, first.model[0].weight)
    torch.testing.assert_close(second(X), first(X))


def test_no_sorting_after_sizes_are_cut():
    learner = ngn.learn_sizes(two_maps(), {"": ngn.Width(8)}, example=X, t0=2.0, commit=0.1)
    ngn.fit(learner, X, Y, F.mse_loss, ngn.TrainPlan(steps=10), progress="never")
    with pytest.raises(ValueError, match="before the training"):
        learner.sort("magnitude")
