"""Models that hold, hide or share their parts in ways that a cut could silently miss."""

import functools
import types
import weakref

import numpy as np
import pytest
import torch
from sizable import Layers, chain
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import ngn
from experiments.methods.gates.l0 import HardConcrete
from experiments.methods.low_rank.sora import SoRA

X = torch.linspace(-1, 1, 48).reshape(6, 8).sin()


class Holding(nn.Module):
    """A feed-forward layer that the forward pass reaches by another way than as a submodule."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.mlp = chain(8, 16, 8)
        if way == "weak reference":
            self.reached = weakref.ref(self.mlp)
        elif way == "weak table":
            table = weakref.WeakKeyDictionary({self: weakref.WeakValueDictionary({"mlp": self.mlp})})
            self.reached = lambda: table[self]["mlp"]
        elif way == "cache":
            self.reached = functools.lru_cache(maxsize=1)(lambda: self.mlp)
        elif way == "closure":
            self.forward = functools.wraps(self.forward)(lambda x: self.mlp(x))
        elif way == "method":
            self.forward = types.MethodType(lambda own, x: self.mlp(x), self)
        elif way == "compiled":
            self.reached = torch.compile(lambda: self.mlp, backend="eager")
        elif way == "object":
            self.reached = type("Strategy", (), {"call": staticmethod(lambda: self.mlp)})().call
        elif way == "global":
            HELD["mlp"] = self.mlp
            self.reached = lambda: HELD["mlp"]

    def forward(self, x):
        return self.reached()(x)


HELD: dict[str, nn.Module] = {}


@pytest.mark.parametrize("way", ["weak reference", "weak table", "cache", "closure", "method", "compiled", "object"])
def test_a_copy_calls_its_own_modules_only(way):
    model = Holding(way)
    small = ngn.learn_sizes(model, {"mlp": ngn.Width(16, t0=2.0)}, example=X).deploy(example=X, unsettled="allow")
    with torch.no_grad():
        wanted = small(X)
        for p in model.parameters():
            p.zero_()
        assert torch.equal(small(X), wanted)
        assert small.mlp[0].out_features == 3


def test_a_copy_that_would_call_the_original_is_refused():
    model = Holding("global")
    with pytest.raises(ValueError, match="calls a Sequential of the trained model"):
        ngn.learn_sizes(model, {"mlp": ngn.Width(16)}, example=X)
    with torch.no_grad():
        assert model(X).shape == (6, 8), "it may still be called itself"


class Tapped(nn.Module):
    """Hooks keep an activation that the forward pass, or another hook, reads later."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.mlp, self.last = nn.Linear(8, 8), chain(8, 16, 8), nn.Linear(16, 3)
        self.taps = taps = {}
        held, keep, add = {}, functools.partial(lambda held, m, args, out: held.update(h=out), taps), taps.update
        if way == "before":
            self.mlp.register_forward_pre_hook(lambda module, args: taps.update(h=args[0]))
        elif way == "between hooks":
            self.first.register_forward_hook(lambda module, args, output: held.update(h=output))
            self.last.register_forward_pre_hook(lambda module, args: torch.cat([args[0][:, :8], held["h"]], -1))
        else:
            hooks = {
                "closure": lambda module, args, output: taps.update(h=output),
                "default": lambda module, args, output, held=taps: held.update(h=output),
                "method": lambda module, args, output: add(h=output),
                "partial": keep,
            }
            self.first.register_forward_hook(hooks[way])

    def forward(self, x):
        y = self.mlp(self.first(x))
        return self.last(torch.cat([y, self.taps.get("h", y)], -1))


@pytest.mark.parametrize("way", ["closure", "default", "method", "partial", "before", "between hooks"])
def test_what_hooks_keep_is_that_of_the_copy(way):
    model, x = Tapped(way), torch.randn(6, 8)
    learner = ngn.learn_sizes(model, {"mlp": ngn.Width(16, t0=2.0)}, example=x)
    model(x).sum().backward()  # the tensors that are kept have a graph
    small = learner.deploy(example=x, unsettled="allow")
    other = torch.randn(5, 8)
    with torch.no_grad(), learner.mode("hard"):
        torch.testing.assert_close(small(other), model.eval()(other))


def test_a_hook_with_what_cannot_be_copied_is_refused():
    model, held = chain(8, 16, 8), (n for n in range(3))
    handle = model[0].register_forward_hook(lambda module, args, output: None if held else output)
    with pytest.raises(ValueError, match=r"0: a hook holds what cannot be copied \(.*generator.*\).* Remove it before"):
        ngn.learn_sizes(model, example=X)
    handle.remove()
    assert ngn.learn_sizes(model, example=X).names == ["0"]


def test_state_that_a_copy_cannot_have_shows_on_another_input():
    class Stale(nn.Module):
        """Its hook keeps what it sees in a place that no copy reaches, and reads its own."""

        def __init__(self):
            super().__init__()
            self.mlp, self.kept = chain(8, 16, 8), {}
            held = type("Held", (), {"kept": self.kept, "__deepcopy__": lambda self, memo: self})()
            self.mlp[0].register_forward_hook(lambda module, args, output: held.kept.update(h=args[0]))

        def forward(self, x):
            return self.mlp(x) + self.kept["h"]

    with pytest.raises(ValueError, match="on an input of other values"):
        ngn.learn_sizes(Stale(), {"mlp": ngn.Width(16)}, example=X)


@pytest.mark.parametrize("way", [nn.DataParallel, lambda model: nn.Sequential(nn.DataParallel(model))])
def test_what_is_wrapped_for_several_processes_already_is_refused(way):
    with pytest.raises(ValueError, match="DataParallel, which would not see the boundaries"):
        ngn.learn_sizes(way(chain(8, 16, 8)), {"**": ngn.Width(16)})


class Scaled(nn.Module):
    """A branch that hardly reaches the output, or not at all."""

    def __init__(self, between: nn.Module, gain: float) -> None:
        super().__init__()
        self.mlp, self.gain = chain(8, 16, between, 8), nn.Parameter(torch.full((8,), gain))

    def forward(self, x):
        return x + self.gain * self.mlp(x)


class Mixing(nn.Module):
    def forward(self, x):
        return x.softmax(-1)


class Hidden(nn.Module):
    """A mean that no trace sees."""

    def forward(self, x):
        return x * float(x.detach().numpy().mean())


@pytest.mark.parametrize("gain", [0.0, 1e-6, 1.0])
def test_the_trial_looks_at_the_axis_itself(gain):
    with pytest.raises(ValueError, match=r"mlp: no slices to cut inside it. 16 entries .*: softmax over it in mlp\.2"):
        ngn.learn_sizes(Scaled(Mixing(), gain), {"mlp": ngn.Width(16)}, example=X)
    with pytest.raises(ValueError, match=r"mlp: cut to half, .*differs"):
        ngn.learn_sizes(Scaled(Hidden(), gain), {"mlp": ngn.Width(16)}, example=X)
    ngn.learn_sizes(Scaled(nn.Tanh(), gain), {"mlp": ngn.Width(16)}, example=X)


def test_the_trial_looks_within_layers_of_a_learned_depth():
    def stack(between):
        return Layers(*(Scaled(between, 0.0) for _ in range(3)))

    sizes = {"layers": ngn.Depth(t0=0.6), "layers.*.mlp": ngn.Width(16)}
    with pytest.raises(ValueError, match=r"layers\.\d\.mlp: cut to half, .*differs"):
        ngn.learn_sizes(stack(Hidden()), sizes, example=X)
    ngn.learn_sizes(stack(nn.Tanh()), sizes, example=X)


class Parting(nn.Module):
    """Layers that take something from the first one, which a stack of one is without."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Biased(number == 0) for number in range(6))

    def forward(self, x):
        bias = None
        for layer in self.layers:
            x, bias = layer(x, bias)
        return x


class Biased(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.map, self.bias = nn.Linear(8, 8), nn.Linear(8, 8) if first else None

    def forward(self, x, bias):
        if bias is None:
            bias = self.bias(x) if self.bias is not None else torch.zeros_like(x)
        return x + self.map(x + bias).tanh(), bias


def test_the_trial_goes_down_to_one():
    with pytest.raises(ValueError, match="layers: cut to one, the model computes something else"):
        ngn.learn_sizes(Parting(), {"layers": ngn.Depth()}, example=X)


class Overwriting(nn.Linear):
    def forward(self, x):
        x += super().forward(x).tanh()
        return x + 1.0


class Staying(nn.Linear):
    """A layer that returns its input, which others have overwritten before."""

    def forward(self, x):
        return x


@pytest.mark.parametrize(("layer", "fails"), [(Overwriting, True), (Staying, False)])
def test_a_layer_that_loses_its_input_is_refused(layer, fails):
    class Stack(Layers):
        def forward(self, x):
            return super().forward(x.clone().add_(1.0))

    def stack():
        return Stack(*(layer(8, 8) for _ in range(3)))

    if fails:
        with pytest.raises(ValueError, match="a layer overwrites its input in place"):
            ngn.learn_sizes(stack(), {"layers": ngn.Depth(t0=1.0)}, example=X)
        return
    learner = ngn.learn_sizes(stack(), {"layers": ngn.Depth(t0=1.0)}, example=X)
    with torch.inference_mode():
        assert torch.equal(learner(X), X + 1.0)


def layers(count: int = 3) -> nn.ModuleDict:
    return nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(8, 8) for _ in range(count))})


@pytest.mark.parametrize(
    ("capacity", "message"),
    [
        (lambda name, K: HardConcrete(K, 0), "a HardConcrete scales layers"),
        (lambda name, K: SoRA(K, 0), "a SoRA scales layers"),
        (lambda name, K: ngn.CountGate(K, r=0.5), "layers need ordering weights of one: set r=1"),
    ],
)
def test_layers_are_kept_or_not(capacity, message):
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(layers(), {"layers": ngn.Depth()}, capacity=capacity)


def test_layers_that_something_else_calls_are_refused():
    model = layers()
    model["again"] = nn.Sequential(*model["layers"])
    with pytest.raises(ValueError, match="layers: a Sequential also holds these layers"):
        ngn.learn_sizes(model, {"layers": ngn.Depth()})
    with pytest.raises(ValueError, match="layers is a ModuleList, not"):
        ngn.learn_sizes(layers(0), {"layers": ngn.Depth()})


class Equalised(nn.Linear):
    """A linear layer that divides by its own size."""

    def forward(self, x):
        return super().forward(x) / self.in_features


def test_maps_with_a_forward_pass_of_their_own_take_an_example():
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), Equalised(16, 8))
    with pytest.raises(ValueError, match="cut to half, the model computes something else"):
        ngn.learn_sizes(model, {"": ngn.Width(16)}, example=X)


def test_a_lazy_map_is_said():
    with pytest.raises(ValueError, match="0 has no shapes yet: call the model once"):
        ngn.learn_sizes(nn.Sequential(nn.LazyLinear(16), nn.Tanh(), nn.Linear(16, 8)), {"": ngn.Width(16)})


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm, orthogonal])
@pytest.mark.parametrize("way", ["budget", "price", "layers"])
def test_parametrised_maps_are_cut_saved_and_loaded(norm, way, tmp_path):
    def model():
        torch.manual_seed(0)
        branches = [Scaled(nn.Tanh(), 1.0) for _ in range(3)]
        for branch in branches:
            norm(branch.mlp[0])
            norm(branch.mlp[-1])
        return (Layers if way == "layers" else nn.Sequential)(*branches)

    sizes = {"**.mlp" if way == "layers" else "*.mlp": ngn.Width(16, t0=5.0)}
    sizes |= {"layers": ngn.Depth(t0=1.0)} if way == "layers" else {}
    budget = ngn.Budget(parameters="60%") if way == "budget" else None
    learner = ngn.learn_sizes(model(), sizes, budget=budget, example=X)
    for progress in (0.0, 0.5, 1.0):
        learner.set_progress(progress)
    small = learner.deploy(example=X, unsettled="allow")
    assert not any(hasattr(part, "parametrizations") for part in small.modules())
    if budget is not None:
        assert sum(p.numel() for p in small.parameters()) <= float(learner.limit)
    ngn.save(small, tmp_path / "small.safetensors")
    fresh = ngn.learn_sizes(model(), sizes, budget=budget, example=X)
    assert torch.equal(ngn.load(fresh, tmp_path / "small.safetensors")(X), small(X))


def test_an_example_is_left_as_it_is_and_may_be_written_into():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = chain(8, 16, 8)

        def forward(self, x, held):
            x -= x.mean()
            held["seen"] = held.get("seen", 0) + 1
            return self.mlp(x) * held["seen"]

    x, held = X.clone() + 1.0, {}
    learner = ngn.learn_sizes(Centred(), {"mlp": ngn.Width(16, t0=5.0)}, example=(x, held))
    learner.deploy(example=(x, held), unsettled="allow")
    assert torch.equal(x, X + 1.0)
    assert held == {}


def test_rows_without_numbers_are_equal():
    """As attention gives them where every key is masked."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = chain(8, 16, 8)

        def forward(self, x):
            return torch.cat([self.mlp(x), torch.full((1, 8), torch.nan)])

    ngn.learn_sizes(Masked(), {"mlp": ngn.Width(16)}, example=X)


def test_complex_outputs_are_compared():
    class Turned(nn.Module):
        def __init__(self, between):
            super().__init__()
            self.mlp = chain(8, 16, between, 8)

        def forward(self, x):
            return torch.view_as_complex(self.mlp(x).unflatten(-1, (4, 2))), x

    ngn.learn_sizes(Turned(nn.Tanh()), {"mlp": ngn.Width(16)}, example=X)
    with pytest.raises(ValueError, match="differs"):
        ngn.learn_sizes(Turned(Hidden()), {"mlp": ngn.Width(16)}, example=X)


@pytest.mark.parametrize("of", [np.array, torch.tensor, list, tuple])
def test_the_order_of_importance_may_be_an_array(of):
    model = chain(8, 4, 8)
    learner = ngn.learn_sizes(model, {"": ngn.Width(by_importance=of([3, 1, 0, 2]), t0=1.0)}, example=X)
    assert torch.equal(learner.deploy(unsettled="allow")[0].weight, model[0].weight[[1, 3]])


@pytest.mark.parametrize("grad", [True, False])
def test_a_map_with_terms_has_the_weight_of_both(grad):
    """``nn.TransformerEncoderLayer`` reads it past the map's forward pass, without gradients."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    learner = ngn.learn_sizes(layer, {"linear1": ngn.Rank(4, t0=2.0)}, frozen=True, example=X[None])
    with torch.no_grad():
        layer.linear1.up.normal_()
    map_ = layer.linear1
    torch.testing.assert_close(nn.functional.linear(X, map_.weight, map_.bias), map_(X))
    with torch.set_grad_enabled(grad):
        called = layer(X[None])
    layer.activation_relu_or_gelu = 0  # the way through the maps' forward passes
    torch.testing.assert_close(called, layer(X[None]))
    layer.activation_relu_or_gelu = 1
    small = learner.deploy(example=X[None], unsettled="allow")
    torch.testing.assert_close(small.linear1.weight, ngn.merge(small.linear1).weight)
