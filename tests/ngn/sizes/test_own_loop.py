"""A training loop of one's own: three calls, and what is said where one of them is missing."""

import copy
import warnings

import pytest
import torch
from sizable import Forward
from torch import nn

import ngn
from experiments.models.mlp import MLPBank
from ngn.cut.truncation import axes_of
from ngn.gate import softplus_inverse

X = torch.linspace(-2, 2, 64).unsqueeze(-1)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))


def trained(model, steps=60, penalty=True, step=True, boundary=True, frozen=False, where="", **settings):
    settings = {"lambda0": 1.0, "by_importance": None} | settings
    learner = ngn.learn_sizes(model, {where: ngn.Width(12)}, example=X, frozen=frozen, **settings)
    groups = [] if frozen else [{"params": learner.body_parameters(), "lr": 1e-2}]
    if boundary:
        groups.append({"params": learner.controller_parameters(), "lr": 0.3})
    optimizer = torch.optim.Adam(groups)
    for n in range(steps):
        loss = (learner(X) - X.sin()).square().mean() + (learner.penalty() if penalty else 0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step:
            learner.step((n + 1) / steps)
    return learner


def test_three_calls_learn_a_size():
    model = network()
    weights = [*model.parameters()]
    learner = trained(model)
    again, other = (ngn.learn_sizes(network(seed), {"": ngn.Width(12)}, example=X) for seed in (1, 2))
    again.load_state_dict(learner.state_dict())  # trained elsewhere
    other.restore(learner.state())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = learner.deploy(example=X)
        assert all(torch.equal(each.deploy()(X), small(X)) for each in (again, other))
    assert 1 <= small[0].out_features < 12
    assert all(any(p is weight for p in learner.body_parameters()) for weight in weights)
    with torch.no_grad():
        assert torch.allclose(learner(X), small(X), atol=1e-6)  # the boundary was committed


@pytest.mark.parametrize(
    ("missing", "message"), [("penalty", r"penalty\(\) was never part"), ("step", "no schedule moved")]
)
@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_missing_is_said(missing, message, frozen):
    learner = trained(network(), steps=4, frozen=frozen, **{missing: False})
    with pytest.warns(UserWarning, match=f"not learned: [^;]*{message}[^;]*$"):
        learner.deploy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.deploy(unsettled="allow")


def looped(learner, optimizer, steps, known=True):
    for n in steps:
        (learner(X).square().mean() + learner.penalty()).backward()
        optimizer.step()
        learner.step((n + 1) / 40, optimizer if known else None, lr=0.3)
        optimizer.zero_grad()


def test_the_optimiser_of_the_weights_may_hold_the_boundaries():
    """With weight decay or without them: the learner moves them, and a state of it has all that this needs."""
    learners = [ngn.learn_sizes(network(), {"": ngn.Width(12)}, example=X, lambda0=1.0) for _ in range(5)]
    holding = ("parameters", "body_parameters", "body_parameters", "parameters")
    for number, (each, params) in enumerate(zip(learners, holding, strict=False)):
        optimizer = torch.optim.AdamW(getattr(each, params)(), lr=1e-2, weight_decay=0.1)
        looped(each, optimizer, range(20), known=number < 2)
        if each is learners[0]:
            learners[4].load_state_dict(each.state_dict())
        looped(each, torch.optim.SGD(each.parameters(), 0.0, weight_decay=0.1), range(20, 30))
    learners[4].resume(20, 0.5)
    looped(learners[4], torch.optim.SGD(learners[4].parameters(), 0.0), range(20, 30))
    assert 2 < float(learners[0].size()) < 12
    assert all(torch.equal(each.size(), learners[0].size()) for each in learners[1:])


def test_a_loop_goes_on_where_fit_or_a_loaded_state_left_the_boundaries():
    learner = ngn.learn_sizes(network(), {"": ngn.Width(12)}, example=X, lambda0=1.0, commit=None)
    plan = ngn.TrainPlan(steps=20, lr_boundary=0.2)
    ngn.fit(learner, X, X.sin(), nn.functional.mse_loss, plan, commit=None, progress="never")
    optimizer, before = torch.optim.SGD(learner.parameters(), 0.0), learner.size()
    looped(learner, optimizer, range(1))
    assert 0 < abs(float(before - learner.size())) < 0.5
    learner.penalty()
    other = ngn.learn_sizes(network(), {"": ngn.Width(12, t0=3.0)}, example=X, lambda0=1.0, commit=None)
    learner.load_state_dict(other.state_dict())
    looped(learner, optimizer, range(1))
    assert 0 < abs(float(learner.size()) - 3.0) < 0.5


def test_weight_decay_of_a_group_of_boundaries_is_said():
    learner = ngn.learn_sizes(network(), {"": ngn.Width(12)}, example=X, lambda0=0.0)
    groups = [{"params": learner.body_parameters()}, {"params": learner.controller_parameters(), "lr": 0.5}]
    with pytest.warns(UserWarning, match=r"weight_decay=0\.1 pulls the boundaries .* learner\.parameters"):
        looped(learner, torch.optim.AdamW(groups, weight_decay=0.1), range(20))
    assert float(learner.size()) < 11


def test_a_size_that_no_forward_pass_meets_is_said():
    around = Forward(lambda own, x: x if own.training else own.mlp(x), mlp=network())
    learner = trained(around, steps=4, where="mlp")
    with pytest.warns(UserWarning, match="not learned: mlp was never part of a forward pass"):
        learner.deploy()


def test_a_weight_that_is_read_past_its_module_is_met():
    around = Forward(lambda own, x: nn.functional.linear(own.mlp[:2](x), *own.mlp[2].parameters()), mlp=network())
    assert trained(around, where="mlp").deploy(example=X).mlp[2].in_features < 12


@pytest.mark.parametrize("change", ["old", "half", "averaged"])
def test_a_state_without_an_order_loads_and_a_damaged_order_is_refused(change):
    def made(seed, width=600):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))
        return ngn.learn_sizes(model, {"": ngn.Width(width, t0=3.0)}, example=X)

    first, again = made(0), made(1)
    state = {name: value.clone() for name, value in first.state_dict().items()}
    (order,) = (name for name in state if name.endswith(".order"))
    before = again.axes[0].order
    if change == "old":
        del state[order]
        again.load_state_dict(state)
        assert torch.equal(again.axes[0].order, before)
    elif change == "half":
        state[order] = state[order].half().bfloat16()
        with pytest.raises(ValueError, match="the order of its components in this state is damaged"):
            again.load_state_dict(state)
    else:  # as a hand-made average of equal orders leaves it
        state[order] = 0.9 * state[order] + 0.1 * first.state_dict()[order]
        again.load_state_dict(state)
        assert torch.equal(again.axes[0].order, first.axes[0].order)


def test_a_commit_that_is_not_heard_is_said():
    plan, mse = ngn.TrainPlan(steps=2), nn.functional.mse_loss
    for commit in (0.5, None):
        learner = ngn.learn_sizes(network(), {"": ngn.Width(12)}, example=X)
        with pytest.warns(UserWarning, match=r"a commit of their own \(0\.9\)"):
            ngn.fit(learner, X, X.sin(), mse, plan, commit=commit, progress="never")


def test_growth_needs_fit():
    gate = ngn.CountGate(None, t0=1.0)
    learner = ngn.Learner(ngn.OrderedSum(MLPBank([1, 3, 1], gate.K, 0), gate))
    with torch.no_grad():
        gate.tau.fill_(20.0)
    with pytest.raises(ValueError, match=r"ngn\.fit"):
        learner.step(0.5)


def test_the_report_says_what_changes(capsys, monkeypatch):
    model = Forward(lambda own, x: own.last(own.mlp(x)), mlp=network(), last=nn.Linear(1, 1))
    original = copy.deepcopy(model)
    learner = ngn.learn_sizes(model, {"mlp": ngn.Width(6, t0=1.03), "last": ngn.Rank(4, t0=2.0)}, example=X)
    report = learner.report(latency=X)
    parts = [(g.name, g.unit, g.before, g.after, g.entries, g.removed) for g in report.groups]
    assert parts == [("mlp", "slices", 6, 2, 2, 4 * 2 * 3), ("last", "terms", 4, 2, 1, 4)]
    assert report.milliseconds[0] > 0 < report.milliseconds[1]
    before = sum(p.numel() for p in learner.body_parameters())
    learner.deploy(verbose=True)
    assert capsys.readouterr().out.splitlines() == [
        "size  before -> after  entries  change  parameters     t",
        "mlp   6 -> 2 slices    12 -> 4    -67%         -24  1.03",
        "last  4 -> 2 terms                -50%          -4  2.00",
        f"parameters: {before} -> {before - 28} ({-28 / before:+.0%})",
        "t: the boundary between kept and cut components",
    ]
    timed = []
    monkeypatch.setattr(ngn.learner.sized, "latencies_of", lambda *given: timed.extend(given[:2]) or (1.0, 1.0))
    small = learner.deploy()
    assert "medians, this machine" in str(learner.report(latency=X, deployed=small))
    whole, after = timed
    assert after is small
    torch.testing.assert_close(whole(X), original(X))
    assert not axes_of(whole)
    assert not capsys.readouterr().out


def test_a_boundary_that_only_went_back_and_forth_has_moved():
    learner = ngn.learn_sizes(network(), {"": ngn.Width(12, t0=8.0)}, example=X, lambda0=1.0, commit=None)
    (tau,) = learner.controller_parameters()
    learner(X).sum().backward()
    learner.penalty().sum().backward()
    for t in (7.5, 8.0):
        tau.data.copy_(softplus_inverse(t))
        learner.step(0.5)
    assert learner.watch.missing() == []


def test_sizes_that_were_on_their_way_when_they_were_fixed_are_said():
    with pytest.warns(
        UserWarning, match=r"1 of 1 were still moving when fixed, model from t = [\d.]+ to [\d.]+ in the last fifth"
    ):
        trained(network(), steps=40).deploy()
    late = trained(network(), steps=40, commit=None)
    assert "still moving" in late.watch.missing()[-1]


def test_a_boundary_over_hundreds_of_components_gets_where_the_budget_asks():
    x = torch.randn(64, 4)
    model = nn.Sequential(nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    sizes = {"0": ngn.Width()}
    learner = ngn.learn_sizes(model, sizes, budget=ngn.Budget(parameters="50%"), example=x)
    how = ngn.TrainPlan(steps=400, lr_boundary=0.2)
    ngn.fit(learner, x, x.prod(-1, keepdim=True), nn.functional.mse_loss, how, progress="never")
    assert learner.axes[0].capacity.stride == 8
    assert learner.watch.missing() == []
    assert float(learner.cost.measured((int(learner.count()),))) > 0.97 * float(learner.limit)


def test_frozen_boundaries_and_early_states_are_said():
    learner = trained(network(), steps=60)
    early = {
        name: value.clone()
        for name, value in ngn.learn_sizes(network(), {"": ngn.Width(12)}, example=X).state().items()
    }
    learner.restore(early)
    assert "this state was saved before the sizes were fixed" in learner.watch.missing()
    for p in learner.model.parameters():
        p.requires_grad_(False)
    with pytest.warns(UserWarning, match="all boundaries are frozen"):
        learner.deploy()


def test_a_cast_leaves_price_and_progress_of_a_budget():
    learner = ngn.learn_sizes(network(), {"": ngn.Width(12)}, example=X, budget=ngn.Budget(parameters="60%"))
    learner.set_progress(0.1)
    before = {name: value.clone() for name, value in learner.named_buffers(recurse=False)}
    learner.to(torch.bfloat16)
    assert all(torch.equal(value, before[name]) for name, value in learner.named_buffers(recurse=False))
