"""Models that hold, hide or share their parts in ways that a cut could silently miss."""

import functools
import types
import warnings
import weakref

import numpy as np
import pytest
import torch
from sizable import Forward, Layers, Plus, chain, cut_exactly
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import ngn
from ngn.components.low_rank import merge

X = torch.linspace(-1, 1, 48).reshape(6, 8).sin()


REACHED = {
    "weak reference": weakref.ref,
    "function": lambda mlp: lambda: mlp,
    "object": lambda mlp: type("Strategy", (), {"call": staticmethod(lambda: mlp)})().call,
    "closure": lambda mlp: mlp,
    "method": lambda mlp: mlp,
}


def holding(way: str) -> nn.Module:
    """A feed-forward layer that the forward pass reaches by another way than as a submodule."""
    model = Forward(lambda own, x: own.reached()(x), mlp=chain(8, 16, 8))
    model.reached = REACHED[way](model.mlp)
    if way == "closure":
        model.forward = functools.wraps(model.forward)(lambda x: model.mlp(x))
    elif way == "method":
        model.forward = types.MethodType(lambda own, x: own.mlp(x), model)
    return model


def tapped(way: str) -> nn.Module:
    """Hooks keep an activation that the forward pass, or another hook, reads later."""
    parts = {"first": nn.Linear(8, 8), "mlp": chain(8, 16, 8), "last": nn.Linear(16, 3)}
    taps, held = {}, {}

    def forward(own, x):
        y = own.mlp(own.first(x))
        return own.last(torch.cat([y, own.taps.get("h", y)], -1))

    model, keep = (
        Forward(forward, taps=taps, **parts),
        functools.partial(lambda held, *args: held.update(h=args[2]), taps),
    )
    hooks = {
        "closure": lambda module, args, output: taps.update(h=output),
        "default": lambda module, args, output, held=taps: held.update(h=output),
        "method": (lambda add: lambda module, args, output: add(h=output))(taps.update),
        "partial": keep,
        "nested": lambda *given: keep(*given),
        "list": (lambda held, of: lambda *given: of.partial(held[0].update, h=given[2])())([taps], functools),
        "between hooks": lambda module, args, output: held.update(h=output),
    }
    if way == "before":
        model.mlp.register_forward_pre_hook(lambda module, args: taps.update(h=args[0]))
    else:
        model.first.register_forward_hook(hooks[way])
    if way == "between hooks":
        model.last.register_forward_pre_hook(lambda module, args: torch.cat([args[0][:, :8], held["h"]], -1))
    return model


def around(output) -> nn.Module:
    """A feed-forward layer, and another output of it."""
    return Forward(lambda own, x: output(own.mlp(x)), mlp=chain(8, 16, 8))


def old_weight_norm() -> nn.Module:
    model = chain(8, 12, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # old, and still met
        nn.utils.weight_norm(model[0])
    return model


def pruned() -> nn.Module:
    model = chain(8, 12, 8)
    prune.l1_unstructured(model[2], "weight", 0.3)  # a hook computes the weight from another and a mask
    return model


MLP = {"mlp": "16 slices"}, {"mlp": ngn.Width(16)}
CUT = {
    "an old weight norm": (old_weight_norm, X, {"model": "6 slices"}, {"": ngn.Width(6)}),
    "a map with a mask": (pruned, X, {"model": "6 slices"}, {"": ngn.Width(6)}),
    "complex numbers": (lambda: around(lambda h: torch.view_as_complex(h.unflatten(-1, (4, 2)))), X, *MLP),
    "rows without numbers, as where every key is masked": (
        lambda: around(lambda h: torch.cat([h, torch.full_like(h, torch.nan)])),
        X,
        *MLP,
    ),
    **{f"held by a {way}": (functools.partial(holding, way), X, *MLP) for way in REACHED},
    **{
        f"kept by a hook, {way}": (functools.partial(tapped, way), X, *MLP)
        for way in ("closure", "default", "method", "partial", "nested", "list", "before", "between hooks")
    },
}


@pytest.mark.parametrize("model", CUT)
def test_a_model_is_cut_exactly(model, tmp_path):
    make, x, wanted, sizes = CUT[model]
    cut_exactly(make, x, tmp_path, wanted, sizes)


UNCOPIED = {
    "cache": (lambda mlp: functools.lru_cache(maxsize=1)(lambda: mlp), "the deployed model calls a Sequential of the"),
    "weak method": (lambda mlp: weakref.WeakMethod(mlp.get_submodule), "reached holds what cannot be copied"),
}


@pytest.mark.parametrize("way", UNCOPIED)
def test_what_a_copy_would_share_is_refused(way):
    model = Forward(lambda own, x: own.mlp(x) + own.out(x), mlp=chain(8, 16, 8), out=nn.Linear(8, 8))
    make, message = UNCOPIED[way]
    model.reached = make(model.mlp)
    if way == "cache":
        model.out = Forward(lambda own, x: model.reached()(x))
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(model, {"mlp": ngn.Width(16)}, example=X)


@pytest.mark.parametrize("budget", [None, ngn.Budget(parameters="60%")])
def test_parametrised_maps_are_cut_saved_and_loaded(budget, tmp_path):
    def model():
        torch.manual_seed(0)
        branches = [Plus(chain(8, 16, 8)) for _ in range(3)]
        for branch, norm in zip(branches, (weight_norm, spectral_norm, orthogonal), strict=True):
            norm(branch.mlp[0])
            norm(branch.mlp[-1])
        return Layers(*branches)

    sizes = {"**.mlp": ngn.Width(16, t0=5.0), "layers": ngn.Depth(t0=1.0)}
    learner = ngn.learn_sizes(model(), sizes, budget=budget, example=X)
    for progress in (0.0, 0.5, 1.0):
        learner.set_progress(progress)
    small = learner.deploy(example=X, unsettled="allow")
    assert not any(hasattr(part, "parametrizations") for part in small.modules())
    ngn.save(small, tmp_path / "small.safetensors")
    fresh = ngn.learn_sizes(model(), sizes, budget=budget, example=X)
    assert torch.equal(ngn.load(fresh, tmp_path / "small.safetensors")(X), small(X))


def test_an_example_is_left_as_it_is_and_may_be_written_into():
    def centred(own, x, held):
        x -= x.mean()
        held["seen"] = held.get("seen", 0) + 1
        return own.mlp(x) * held["seen"]

    x, held = X.clone() + 1.0, {}
    learner = ngn.learn_sizes(Forward(centred, mlp=chain(8, 16, 8)), {"mlp": ngn.Width(16, t0=5.0)}, example=(x, held))
    learner.deploy(example=(x, held), unsettled="allow")
    assert torch.equal(x, X + 1.0)
    assert held == {}


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
    small = learner.deploy(example=X, unsettled="allow")
    torch.testing.assert_close(small.linear1.weight, merge(small.linear1).weight)
