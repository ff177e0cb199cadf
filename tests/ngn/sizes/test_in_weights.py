"""Coefficients in the weight of the map that consumes an axis, or on the activation: the same model."""

import copy

import pytest
import torch
from sizable import Forward, Fused, Gated, chain, convs
from torch import nn
from torch.nn.utils import parametrizations

import ngn
from ngn.cuts import inputs, outputs
from ngn.learner.hooked import HookedAxis

X, IMAGES = torch.randn(64, 5, 8, dtype=torch.float64), torch.randn(4, 3, 4, 4, dtype=torch.float64)
CASES = {
    "slices": (Gated, {"": ngn.Width(6, t0=2.3)}, X, "w2"),
    "units": (
        lambda: nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 8)),
        {"": ngn.Width(6, t0=2.3, by_importance=[5, 0, 4, 2, 1, 3])},
        X,
        "2",
    ),
    "heads": (Fused, {"": ngn.Heads(t0=1.3)}, X, "proj"),
    "channels": (lambda: convs(nn.BatchNorm2d(6), nn.Conv2d(6, 4, 3)), {"0": ngn.Channels(6, t0=2.3)}, IMAGES, "2"),
    "transposed": (lambda: convs(nn.ConvTranspose2d(6, 2, 2)), {"0": ngn.Channels(6, t0=2.3)}, IMAGES, "1"),
    "flattened": (
        lambda: convs(nn.Flatten(), nn.Linear(24, 2)),
        {"0": ngn.Channels(6, t0=2.3)},
        torch.randn(64, 3, 2, 2, dtype=torch.float64),
        "2",
    ),
}


def both(case, **settings):
    """Return the same learner twice: coefficients in the weight, and on the activation."""
    make, sizes, x, name = CASES[case]
    torch.manual_seed(0)
    learner = ngn.learn_sizes(make().double(), sizes, example=x, **settings)
    twin = copy.deepcopy(learner)
    twin.axes[0].in_weights = False
    return learner, twin, x, name


def weights_used(learner, name, x):
    """Return whether the consumer ``name`` is called with a weight other than its own."""
    seen, consumer = [], learner.model.get_submodule(name)
    handle = consumer.register_forward_pre_hook(lambda module, args: seen.append(module.weight))
    learner(x)
    handle.remove()
    return seen[0] is not consumer.weight


def same_gradients(one, twin, x):
    """Refuse gradients of ``one`` that are not those of its twin in a plain pass."""
    twin(x).square().mean().backward()
    for (path, p), q in zip(one.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-9, atol=1e-12, msg=path)


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_the_same(case):
    learner, twin, x, name = both(case)
    consumer = learner.model.get_submodule(name)
    own = consumer.weight
    assert weights_used(learner, name, x)
    assert not weights_used(twin, name, x)
    torch.testing.assert_close(learner(x), twin(x), rtol=1e-10, atol=1e-12)
    learner(x).square().mean().backward()
    same_gradients(learner, twin, x)
    assert consumer.weight is own
    small = learner.deploy(unsettled="allow")
    assert not any(m._forward_hooks or m._forward_hooks_always_called for m in small.modules())


def test_large_frozen_quantised_and_parametrised_weights_keep_the_activation():
    learner, _, x, name = both("units")
    consumer = learner.model.get_submodule(name)
    assert weights_used(learner, name, x)
    assert not weights_used(learner, name, x[0, :1])
    with torch.no_grad():
        assert not weights_used(learner, name, x)
    consumer.weight.requires_grad_(False)
    assert not weights_used(learner, name, x)
    parametrizations.weight_norm(consumer)
    wanted = copy.deepcopy(learner)
    torch.testing.assert_close(learner(x), wanted(x))


def test_a_weight_comes_back_after_an_error():
    learner, _, _, name = both("units")
    consumer = learner.model.get_submodule(name)
    own = consumer.weight
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        consumer(torch.randn(64, 12, dtype=torch.float64))
    assert consumer.weight is own


def test_a_tied_weight_is_whole_in_its_other_place():
    parts = {"mlp": chain(8, 6, 8), "other": nn.Linear(6, 8)}
    model = Forward(lambda own, x: own.mlp(x) + own.other(x[..., :6]), **parts).double()
    model.other.weight = model.mlp[2].weight
    up, down = model.mlp[0], model.mlp[2]
    gate = ngn.CountGate(6, t0=2.3, r=1.0)
    axis = HookedAxis(gate, [*outputs(up), *inputs(down)])
    axis.attach(down)
    twin = copy.deepcopy(model)
    axis.in_weights = True
    model(X).square().mean().backward()
    same_gradients(model, twin, X)
