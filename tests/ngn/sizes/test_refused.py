"""Sizes that cannot be learned are refused before the training, and the model is left as it was."""

import copy

import pytest
import torch
from sizable import Forward, Gated, Layers, chain, convs
from torch import Tensor, nn

import ngn
from experiments.methods.gates.l0 import HardConcrete
from ngn.methods.fixed import FixedCount, Retained
from ngn.methods.orders import Order
from ngn.sizes.trial import _culprits


def tied() -> nn.Module:
    model = nn.Sequential(chain(8, 12, 8), chain(8, 12, 8))
    model[1][0].weight = model[0][0].weight
    return model


class Hidden(nn.Module):
    """A mean that no trace sees."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(x.detach().numpy().mean())


def outside() -> nn.Module:
    """Layers whose residual sum is outside them."""

    def add(own: nn.Module, x: Tensor) -> Tensor:
        for layer in own.layers:
            x = x + layer(x).tanh()
        return x

    return Forward(add, layers=nn.ModuleList(nn.Linear(8, 8) for _ in range(4)))


def small(between: nn.Module, gain: float) -> nn.Module:
    """A branch that hardly reaches the output, or not at all."""
    parts = {"mlp": chain(8, 16, between, 8), "gain": nn.Parameter(torch.full((8,), gain))}
    return Forward(lambda own, x: x + own.gain * own.mlp(x), **parts)


HELD: dict[str, nn.Module] = {}


def global_part() -> nn.Module:
    """The forward pass reaches a part in a place that no copy has."""
    HELD["mlp"] = chain(8, 16, 8)
    return Forward(lambda own, x: HELD["mlp"](x), mlp=HELD["mlp"])


def stale() -> nn.Module:
    """A hook keeps what it sees in a place that no copy reaches, and the forward pass reads its own."""
    model = Forward(lambda own, x: own.mlp(x) + own.kept["h"], mlp=chain(8, 16, 8), kept={})
    held = type("Held", (), {"kept": model.kept, "__deepcopy__": lambda self, memo: self})()
    model.mlp[0].register_forward_hook(lambda module, args, output: held.kept.update(h=args[0]))
    model(X)
    return model


def parting() -> nn.Module:
    """Layers that take something from the first one, which a stack of one is without."""

    def layer(own: nn.Module, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        if bias is None:
            bias = torch.zeros_like(x) if own.bias is None else own.bias(x)
        return x + own.map(x + bias).tanh(), bias

    def all_layers(own: nn.Module, x: Tensor) -> Tensor:
        bias = None
        for each in own.layers:
            x, bias = each(x, bias)
        return x

    layers = (Forward(layer, map=nn.Linear(8, 8), bias=None if number else nn.Linear(8, 8)) for number in range(6))
    return Forward(all_layers, layers=nn.ModuleList(layers))


class Overwriting(nn.Linear):
    def forward(self, x):
        x += super().forward(x).tanh()
        return x + 1.0


class Staying(nn.Linear):
    """A layer that returns its input, which others have overwritten before."""

    def forward(self, x):
        return x


def layers(count: int = 3) -> nn.ModuleDict:
    return nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(8, 8) for _ in range(count))})


def called_twice() -> nn.ModuleDict:
    model = layers()
    model["again"] = nn.Sequential(*model["layers"])
    return model


X, IMAGES = torch.randn(2, 5, 8), torch.randn(2, 3, 4, 4)


MLP, DEPTH = {"mlp": ngn.Width(16)}, {"layers": ngn.Depth()}
REFUSED = [
    (Gated, {"w4": ngn.Width(2)}, "no module matches 'w4'; did you mean w"),
    (Gated, {"": ngn.Width(4, round_to=4)}, "do not divide 24 into multiples of 4; choose K from 1, 2, 3, 6"),
    (Gated, {"w2": ngn.Width(4)}, "w2: no slices to cut inside it. 24 units of w1, w3, w2: they can only"),
    (Gated, {"": ngn.Heads()}, "the model: no heads to cut .*The model has no other heads"),
    (Gated, {"": ngn.Channels(2)}, "the model is a Gated; ngn.Channels takes a convolution"),
    (Gated, {"": ngn.Width(4, order=Order("annealed"))}, "r < 1|r below 1"),
    (Gated, {"*": ngn.Depth()}, "not an nn.ModuleList"),
    (
        lambda: Forward(lambda own, x: own.works(x), works=chain(8, 12, 8), idle=chain(8, 20, 8)),
        {"idle": ngn.Width(4)},
        "idle: no slices to cut .* no pass reaches idle.0.weight.* The model has slices in works",
    ),
    (lambda: Layers(Gated()), {"layers.*": ngn.Width(4), "layers.0": ngn.Width(4)}, "already has a learned size: if"),
    (lambda: Layers(Gated()), {"layers.*": ngn.Width(4), "layers.0": None}, "matches only modules that another"),
    (lambda: convs(nn.ReLU()), {"0": ngn.Channels(2)}, "no channels to cut inside it. 6 .* is that of an output"),
    (lambda: chain(8, 12, nn.LayerNorm(12), 8), {"": ngn.Width(4)}, "12 entries of 0, 3: a norm over it in 2"),
    (lambda: convs(nn.LocalResponseNorm(2), nn.Conv2d(6, 3, 1)), {"0": ngn.Channels(2)}, "6 entries of 0, 2: "),
    (tied, {"0": ngn.Width(4)}, "0: no slices .* 12 units of 0.0, 1.0, .*: they"),
    (lambda: nn.Sequential(chain(8, 12, 8)), {"0.2": ngn.Rank(2), "0": ngn.Width(4)}, "has a learned rank next to it"),
    (lambda: chain(8, 8), {"": ngn.Rank(2)}, "wrap it, as in nn.Sequential"),
    (lambda: nn.ModuleDict({"layers": nn.ModuleList([Gated()] * 3)}), DEPTH, "the same layer several times"),
    (called_twice, DEPTH, "layers: a Sequential also holds these layers"),
    (lambda: layers(0), DEPTH, "layers is a ModuleList, not"),
    (outside, DEPTH, "layers: cut to half,"),
    (parting, DEPTH, "layers: cut to one, the model computes something else"),
    (lambda: Layers(Overwriting(8, 8), Overwriting(8, 8)), DEPTH, "a layer overwrites its input in place"),
    (global_part, MLP, "calls a Sequential of the trained model"),
    (stale, MLP, "on an input of other values"),
    (lambda: nn.Sequential(nn.DataParallel(chain(8, 8))), {"**": ngn.Width(16)}, "DataParallel, which would not see"),
    (lambda: small(Hidden(), 0.0), MLP, "mlp: cut to half, .*differs"),
    (
        lambda: Layers(small(Hidden(), 0.0), small(Hidden(), 0.0)),
        {"layers": ngn.Depth(t0=0.6), "layers.*.mlp": ngn.Width(16)},
        r"layers.\d.mlp: cut to half, .*differs",
    ),
]


@pytest.mark.parametrize(("model", "sizes", "message"), REFUSED)
@pytest.mark.filterwarnings("ignore:no pass reaches")
def test_what_cannot_be_sized_is_said_and_the_model_left_as_it_was(model, sizes, message):
    model = model()

    def state():
        parts = [
            (name, type(m), dict(m._forward_pre_hooks), dict(m._forward_hooks)) for name, m in model.named_modules()
        ]
        return repr(model), parts, [(p, p.requires_grad, float(p.detach().sum())) for p in model.parameters()]

    before = state()
    example = IMAGES if any(isinstance(m, nn.Conv2d) for m in model.modules()) else X
    example = None if isinstance(model, nn.ModuleDict) else example
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(model, sizes, example=example, frozen=True)
    assert state() == before


@pytest.mark.parametrize("gain", [0.0, 1e-6])
def test_a_branch_that_hardly_reaches_the_output_is_cut(gain):
    assert ngn.learn_sizes(small(nn.Tanh(), gain), MLP, example=X).names == ["mlp"]
    stack = Layers(*(small(nn.Tanh(), gain) for _ in range(3)))
    assert len(ngn.learn_sizes(stack, DEPTH | {"layers.*.mlp": ngn.Width(16)}, example=X).names) == 4


def test_what_a_wildcard_matches_and_cannot_be_cut_is_listed_and_left():
    mixed = chain(8, 12, nn.LayerNorm(12), 8)
    model = nn.Sequential(chain(8, 12, 8), mixed, chain(8, 12, Hidden(), 8))
    learner = ngn.learn_sizes(model, {"*": ngn.Width(4)}, example=torch.randn(5, 8))
    assert learner.names == ["0"]
    reasons = {fixed.members: fixed.reason for fixed in learner.found.fixed}
    assert reasons["1.0", "1.3"] == "a norm over it in 1.2"
    assert "cut to half" in reasons["2.0", "2.3"]
    assert [type(hook) for hook in model[2][3]._forward_pre_hooks.values()] == []


@pytest.mark.parametrize("size", [ngn.Width(8), ngn.Width(round_to=8)])
def test_what_a_wildcard_matches_and_K_does_not_divide_is_listed_and_left(size):
    model, x = nn.Sequential(chain(8, 16, 8), chain(8, 12, 8)), torch.randn(5, 8)
    with pytest.raises(ValueError, match="do not divide 12"):
        ngn.learn_sizes(model, {"*": size, "0": None}, example=x)  # nothing would be left
    learner = ngn.learn_sizes(copy.deepcopy(model), {"*": size}, example=x)
    assert learner.names == ["0"]
    reasons = {fixed.members: fixed.reason for fixed in learner.found.fixed}
    assert "do not divide 12" in reasons["1.0", "1.2"]
    learner = ngn.learn_sizes(model, {"*": size, "1": ngn.Width(4)}, example=x)
    assert learner.names == ["0", "1"]


@pytest.mark.parametrize(
    ("example", "said"), [(torch.randn(1, 1, 9, 9), "to have 3 channels, but got 1"), ("nothing", "conv2d")]
)
def test_a_wrong_example_is_not_blamed_on_a_size(example, said):
    model = convs(nn.ReLU(), nn.Conv2d(6, 2, 1))
    with pytest.raises(ValueError, match=f"^the model fails on the example: .*{said}"):
        ngn.learn_sizes(model, {"0": ngn.Channels()}, example=example)
    assert [*model[2].children()] == []
    learner = ngn.learn_sizes(model, {"0": ngn.Channels()}, example=IMAGES)
    with pytest.raises(ValueError, match=f"^the model fails on the example: .*{said}"):
        learner.deploy(example=example)


@pytest.mark.parametrize("made", [ngn.CountGate, FixedCount, Retained, lambda K: HardConcrete(K, 0)])
def test_every_capacity_is_tried_on_the_example(made):
    how = {"sizes": {"": ngn.Width(6)}, "example": torch.randn(5, 8), "capacity": lambda name, K: made(K)}
    with pytest.raises(ValueError, match="cut to half, the model computes something else"):
        ngn.learn_sizes(chain(8, 12, Hidden(), 8), **how)
    learner = ngn.learn_sizes(chain(8, 12, 8), **how)
    assert [type(axis.capacity) for axis in learner.axes] == [type(made(6))]  # the trial's capacity is gone
    assert [axis.mode for axis in learner.axes] == ["soft"]


@pytest.mark.parametrize("budget", [None, ngn.Budget(parameters="60%")])
def test_one_gate_for_several_sizes_is_refused_before_the_training(budget):
    model, x, gate = nn.Sequential(chain(8, 12, 8), chain(8, 12, 8)), torch.randn(5, 8), ngn.CountGate(6, t0=9.0)
    sizes = {"*": ngn.Width(6)}
    with pytest.raises(
        ValueError,
        match=r"0, 1 share one CountGate.*return a new one at each call of capacity=.* or give a size shared=True",
    ):
        ngn.learn_sizes(model, sizes, example=x, capacity=lambda name, K: gate, budget=budget)
    learner = ngn.learn_sizes(model, sizes, example=x, capacity=lambda name, K: ngn.CountGate(K, t0=9.0), budget=budget)
    assert learner.names == ["0", "1"]


@pytest.mark.parametrize(("bad", "most"), [((), 1), ((5,), 11), ((0, 9, 10, 23, 24, 31), 41), ((*range(32),), 66)])
def test_sizes_that_fail_their_trial_are_found_in_few_trials(bad, most):
    asked = []

    def differs(some):
        asked.append(some)
        return str([each for each in some if each in bad]) if {*some} & {*bad} else None

    assert _culprits(range(32), differs) == {each: f"[{each}]" for each in bad}
    assert len(asked) <= most


def test_of_sizes_that_are_wrong_only_together_the_later_one_fails():
    def differs(some):
        return "both" if {3, 12} <= {*some} else "one" if 7 in some else None

    assert _culprits(range(16), differs) == {7: "one", 12: "both"}


def test_a_hook_with_what_cannot_be_copied_is_refused():
    model, held = chain(8, 16, 8), (n for n in range(3))
    handle = model[0].register_forward_hook(lambda module, args, output: None if held else output)
    with pytest.raises(ValueError, match=r"0: a hook holds what cannot be copied \(.*generator.*\).* Remove it before"):
        ngn.learn_sizes(model, example=X)
    handle.remove()
    assert ngn.learn_sizes(model, example=X).names == ["0"]


def test_a_layer_may_return_its_input_which_others_have_overwritten():
    class Stack(Layers):
        def forward(self, x):
            return super().forward(x.clone().add_(1.0))

    learner = ngn.learn_sizes(Stack(*(Staying(8, 8) for _ in range(3))), {"layers": ngn.Depth(t0=1.0)}, example=X)
    with torch.inference_mode():
        assert torch.equal(learner(X), X + 1.0)


@pytest.mark.parametrize(
    ("capacity", "message"),
    [
        (lambda name, K: HardConcrete(K, 0), "a HardConcrete scales layers"),
        (lambda name, K: ngn.CountGate(K, r=0.5), "layers need ordering weights of one: set r=1"),
    ],
)
def test_layers_are_kept_or_not(capacity, message):
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(layers(), {"layers": ngn.Depth()}, capacity=capacity)
