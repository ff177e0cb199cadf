"""Bounds of sizes, one size for several layers, and cutting once without training."""

from __future__ import annotations

import copy

import pytest
import safetensors.torch
import torch
from sizable import Forward, Layers, chain
from torch import Tensor, nn

import ngn
from ngn.cuts import Cut, outputs
from ngn.methods.fixed import FixedCount


class Block(nn.Module):
    """h + attention + feed-forward."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(8), nn.MultiheadAttention(8, 4, batch_first=True)
        self.norm2, self.mlp = nn.LayerNorm(8), nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, 8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


X, OTHER = torch.randn(2, 12, 3, 8, generator=torch.Generator().manual_seed(0)).unbind()
EACH = {"layers.*.mlp": ngn.Width(16), "layers.*.attn": ngn.Heads()}
ONE = {"layers.*.mlp": ngn.Width(16, shared=True), "layers.*.attn": ngn.Heads(shared=True)}
STEPS = 30


def made(**settings) -> ngn.Learner:
    torch.manual_seed(0)
    return ngn.learn_sizes(Layers(Block(), Block()), **{"example": X} | settings)


def run(learner: ngn.Learner, steps: range, cut: bool = True, state: dict | None = None) -> dict:
    """Train in a loop of one's own; returns a state to go on from."""
    if state is not None:
        learner.load_state_dict(state["learner"])
        learner.resume(steps[0], steps[0] / STEPS)
    optimizer = torch.optim.AdamW(learner.body_parameters(), lr=1e-2)
    if state is not None:
        optimizer.load_state_dict(state["optimizer"])
    for n in steps:
        loss = (learner(X) - X.roll(1, -1)).square().mean() + learner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        learner.step((n + 1) / STEPS, optimizer if cut else None, lr=0.5)
    return copy.deepcopy({"learner": learner.state_dict(), "optimizer": optimizer.state_dict()})


def counts(learner: ngn.Learner) -> dict[str, int]:
    return dict(zip(learner.names, learner.count().tolist(), strict=True))


def check_small(learner: ngn.Learner) -> nn.Module:
    """The deployed model, equal to the masked one on another batch, too, and of the learned sizes."""
    small = learner.deploy(example=X, unsettled="allow")
    with torch.no_grad(), learner.mode("hard"):
        torch.testing.assert_close(small(OTHER[:5]), learner.eval()(OTHER[:5]))
    for name, n in counts(learner).items():
        part = small.get_submodule(name)
        assert n == (part.num_heads if name.endswith("attn") else part[0].out_features)
    return small


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "masked"])
@pytest.mark.parametrize("limit", [{"lambda0": 9.0}, {"budget": ngn.Budget(parameters="72%")}], ids=["price", "budget"])
def test_no_size_falls_below_its_bound(limit: dict, cut: bool) -> None:
    learner = made(sizes=EACH, **limit, at_least={"**.attn": 3, "layers.0.mlp": "75%"})
    run(learner, range(STEPS), cut)
    assert [counts(learner)[f"layers.{n}.attn"] for n in range(2)] == [3, 3]
    assert counts(learner)["layers.0.mlp"] == 12 > counts(learner)["layers.1.mlp"]
    check_small(learner)


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "masked"])
@pytest.mark.parametrize("limit", [{"lambda0": 1e-6}, {"budget": ngn.Budget(macs="90%")}], ids=["price", "budget"])
def test_no_size_stays_above_its_bound(limit: dict, cut: bool) -> None:
    learner = made(sizes=EACH, **limit, at_most={"**.mlp": "50%", "layers.0.attn": 1})
    whole = learner(X)
    run(learner, range(1), cut)
    assert torch.allclose(whole, made(sizes=EACH, **limit)(X), atol=1e-6)  # training starts from the model unchanged
    run(learner, range(1, STEPS), cut)
    assert [counts(learner)[f"layers.{n}.mlp"] for n in range(2)] == [8, 8]
    assert [counts(learner)[f"layers.{n}.attn"] for n in range(2)] == [1, 4]
    check_small(learner)


def test_rounding_of_a_budget_keeps_to_bounds() -> None:
    learner = made(sizes=EACH, budget=ngn.Budget(parameters="75%", round_to=2), at_least=3, at_most={"**.mlp": 9})
    run(learner, range(STEPS))
    assert {*counts(learner).values()} <= {4, 6, 8}
    with pytest.raises(ValueError, match=r"layers.0.mlp: round_to=8 of the budget leaves no count from 3 to 7"):
        made(sizes=EACH, budget=ngn.Budget(parameters="60%", round_to=8), at_least=3, at_most={"**.mlp": 7})


def test_impossible_bounds_are_refused_with_numbers_before_training() -> None:
    with pytest.raises(
        ValueError, match=r"the smallest model has 924, .* \(at_least=\). Give a budget of at least 924"
    ):
        made(sizes=EACH, budget=ngn.Budget(parameters="40%"), at_least="75%")
    with pytest.raises(ValueError, match=r"layers.0.attn, of 4 components, has at most 2, but at least 3"):
        made(sizes=EACH, at_least="75%", at_most="50%")
    with pytest.raises(ValueError, match=r"at_most=: 'mpl' is the name of no size; there are layers.0.attn"):
        made(sizes=EACH, at_most={"mpl": 3})
    with pytest.raises(ValueError, match=r"at_least=: 0.5 is no number of components: give one such as 4, or a share"):
        made(sizes=EACH, at_least=0.5)
    with pytest.raises(ValueError, match="a FixedCount keeps to no bounds"):
        made(sizes=EACH, at_least=2, capacity=lambda name, K: FixedCount(K, r=1.0))


SETTINGS = {
    "bounds": {"sizes": EACH, "lambda0": 1.0, "at_least": 2, "at_most": "75%"},
    "one size": {"sizes": ONE, "lambda0": 1.0},
    "one size, budget": {"sizes": ONE, "budget": ngn.Budget(parameters="60%")},
}


@pytest.mark.parametrize("at", [9, 28], ids=["before the commit", "after it"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_resumed_training_is_the_same(settings: dict, at: int) -> None:
    through, before, after = made(**settings), made(**settings), made(**settings)
    run(through, range(STEPS))
    run(after, range(at, STEPS), state=run(before, range(at)))
    state = after.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in through.state_dict().items())


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "masked"])
@pytest.mark.parametrize("limit", [{"lambda0": 9.0}, {"budget": ngn.Budget(macs="60%")}], ids=["price", "budget"])
def test_one_size_for_all_layers(limit: dict, cut: bool) -> None:
    learner = made(sizes=ONE, **limit)
    assert len(learner.controller_parameters()) == 2
    run(learner, range(STEPS), cut)
    assert {*learner.count().tolist()} == {n := counts(learner)["layers.0.mlp"], counts(learner)["layers.0.attn"]}
    assert n < 16
    assert learner.masked == ([] if cut else learner.masked)
    safetensors.torch.save(learner.state_dict())  # which takes no tensor twice
    orders = [axis.order.tolist() for axis in learner.axes if axis.name.endswith("mlp")]
    assert orders[0] != orders[1]  # each layer keeps its own best units
    check_small(learner)
    rows = [group.after for group in learner.report().groups if group.unit == "slices"]
    assert rows == [n, n]


def test_layers_of_one_size_can_be_removed() -> None:
    settings = {"sizes": ONE | {"layers": ngn.Depth(t0=0.3, lambda0=99.0)}, "lambda0": 9.0, "commit": 0.5}
    learner, again = made(**settings), made(**settings)
    state = run(learner, range(20))
    for each, held in ((learner, None), (again, state)):
        run(each, range(20, STEPS), state=held)
        small = each.deploy(example=X, unsettled="allow")
        assert len(small.layers) == 1
        assert len(each.controller_parameters()) == 3
        assert {layer.mlp[0].out_features for layer in small.layers} == {counts(each)["layers.0.mlp"]}


def test_one_size_needs_equal_numbers() -> None:
    with pytest.raises(ValueError, match=r"has 16 slices, but shares its size with a layer of 8"):
        ngn.learn_sizes(Layers(Block(16), Block(8)), {"layers.*.mlp": ngn.Width(shared=True)}, example=X)


def mixture() -> nn.Module:
    """Each row has the weighted sum of its two best experts."""

    def top(own, scores, outputs):
        best = scores.topk(2, -1)
        index = best.indices[..., None].expand(-1, -1, outputs[0].shape[-1])
        return (best.values[..., None] * torch.stack(outputs, -2).gather(-2, index)).sum(-2)

    def forward(own, x):
        return x + own.mix(torch.sigmoid(own.router(x)), [expert(x) for expert in own.experts])

    experts = nn.ModuleList(chain(8, 4, 8) for _ in range(6))
    return Forward(forward, router=nn.Linear(8, 6), mix=Forward(top), experts=experts)


class Experts(ngn.Size):
    unit = "experts"

    def attach(self, model, name, make):
        cuts = [Cut(model, "experts", 0), *outputs(model.router)]
        self.axis(name, self.divided(name, 6), make, cuts, consumers=[model.mix])


@pytest.mark.parametrize("limit", [{"lambda0": 30.0}, {"budget": ngn.Budget(parameters=170)}], ids=["price", "budget"])
@pytest.mark.parametrize("score", ["magnitude", "taylor"])
def test_a_mixture_keeps_its_best_experts_that_a_sample_needs(limit: dict, score: str) -> None:
    torch.manual_seed(0)
    x, y = X[:, 0], OTHER[:, 1]
    model, how = mixture(), {"calibration": [x], "loss": lambda model, x: model(x).square().sum()}
    with torch.no_grad():
        for p in (p for number in (0, 2, 3) for p in model.experts[number].parameters()):
            p.mul_(1e-3)
    how = how if score == "taylor" else {}
    learner = ngn.learn_sizes(model, {"": Experts()}, example=x, by_importance=score, **limit, **how)
    assert sorted(learner.axes[0].ranks[[1, 4, 5]].tolist()) == [0, 1, 2]
    plan = ngn.TrainPlan(steps=40, lr_boundary=0.5)
    ngn.fit(learner, x, x.sin(), nn.functional.mse_loss, plan, progress="never")
    small = learner.deploy(example=x, unsettled="allow")
    assert len(small.experts) == 2 == small.router.out_features
    with torch.no_grad(), learner.mode("hard"):
        torch.testing.assert_close(small(y), learner.eval()(y))
    with pytest.raises(ValueError, match=r"a budget of 100 parameters is too small: the smallest model has 170"):
        ngn.learn_sizes(mixture(), {"": Experts()}, example=x, budget=ngn.Budget(parameters=100))


def convs() -> nn.Module:
    block = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 8, 3, padding=1)
    return nn.Sequential(*block, nn.ReLU(), nn.Conv2d(8, 5, 1))


def test_a_found_size_is_cut_once_and_the_model_stays() -> None:
    torch.manual_seed(0)
    model, images = convs(), torch.randn(2, 3, 8, 8)
    found = ngn.find_sizes(model, images)
    before, attributes = copy.deepcopy(model.state_dict()), [{**vars(part)} for part in model.modules()]
    magnitude = sum(w.square().flatten(1).sum(1) for w in (model[0].weight, model[3].weight.transpose(0, 1)))
    best = sorted((magnitude + model[1].weight.square()).topk(5).indices.tolist())
    small = found.cut({"0": 5})
    assert type(small) is type(model)
    assert torch.equal(small[0].weight, model[0].weight[best])
    assert not any(isinstance(part, ngn.OrderedAxis) for part in small.modules())
    scored = found.cut({"0": "25%", "3": 3}, {"0": torch.arange(12.0)})
    assert torch.equal(scored[1].weight, model[1].weight[9:])
    assert scored[3].out_channels == 3
    other = torch.randn(3, 3, 9, 9)
    with torch.no_grad():
        gone = [unit for unit in range(12) if unit not in best]
        masked = copy.deepcopy(model).eval()
        masked[3].weight[:, gone] = 0.0
        torch.testing.assert_close(small.eval()(other), masked(other))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert attributes == [{**vars(part)} for part in model.modules()]
    batches = [(images, torch.randn(2, 5, 8, 8))]
    assert found.cut({"0": 6}, "taylor", batches, nn.functional.mse_loss)[0].out_channels == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (({"9": 3},), "'9' is the name of no size; there are 0, 3"),
        (({"0": 13},), "0: 13 of 12 channels cannot stay: give 1 to 12"),
        (({"0": 3}, {"0": [1.0]}), "0: 1 scores for 12 channels"),
        (({"0": 3}, {"3": [1.0] * 8}), "scores of 3, which is not cut; scores are for 0"),
    ],
)
def test_a_wrong_cut_is_refused(given: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ngn.find_sizes(convs(), torch.randn(2, 3, 8, 8)).cut(*given)
