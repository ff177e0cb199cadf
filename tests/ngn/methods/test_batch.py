"""All gates of a model in one batch: the numbers of single gates, whenever they are asked for."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ngn
from ngn.methods.batch import boundaries, boundary_slopes, penalty, place, values_and_slopes

X = torch.randn(64, 5, 8, dtype=torch.float64)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Sequential(nn.Linear(8, n), nn.Tanh(), nn.Linear(n, 8)) for n in (24, 12))
        self.c = nn.Linear(8, 8)

    def forward(self, x):
        return self.c(self.b(self.a(x)))


def learner(**settings):
    torch.manual_seed(0)
    sizes = {
        "a": ngn.Width(6, t0=2.3, by_importance=[5, 0, 4, 2, 1, 3]),
        "b": ngn.Width(12, t0=5.4),
        "c": ngn.Rank(4, t0=1.7),
    }
    made = ngn.learn_sizes(
        Two().double(), sizes, example=torch.randn(2, 8).double(), **({"lambda0": 0.1, "commit": 0.5} | settings)
    )
    nn.init.normal_(made.model.c.up)
    return made


def alone(each):
    """Return a copy whose gates compute their own coefficients, which go on the activations."""
    twin = copy.deepcopy(each)
    for axis in twin.axes:
        axis.capacity.batch, axis.in_weights = None, False
    return twin


def same_gradients(one, other):
    for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-6, atol=1e-10, msg=name)


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("mode", ["soft", "kept", "hard"])
def test_outputs_gradients_sizes_and_penalty_are_those_of_single_gates(progress, mode):
    one = learner()
    one.set_progress(progress)
    other = alone(one)
    for each in (one, other):
        with each.mode(mode):
            each(X).square().mean().backward()
        if (value := each.penalty()).requires_grad:
            value.backward()
    same_gradients(one, other)
    torch.testing.assert_close(one(X), other(X), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(one.size(), other.size())
    torch.testing.assert_close(one.penalty(), other.penalty())


def test_closed_gates_are_exactly_zero_and_slopes_those_of_autograd():
    gates = [ngn.CountGate(K, t0=t, r=1.0, beta=(15.0, 15.0)) for K, t in ((64, 0.5), (32, 20.0), (64, 63.0))]
    for gate, (values, slopes) in zip(gates, values_and_slopes(gates), strict=True):
        wanted = gate.coefficients("soft")
        assert len(values) == gate.K
        assert int((values > 0).sum()) == len(wanted)
        torch.testing.assert_close(values[: len(wanted)], wanted.detach())
        wanted.sum().backward()
        torch.testing.assert_close(slopes.sum(), gate.tau.grad)


def test_what_moves_between_passes_counts_however_it_moved():
    one = learner()
    other = alone(one)
    one(X)
    state = copy.deepcopy(one.state_dict())
    for each in (one, other):
        each.axes[0].capacity.tau.data.add_(0.5)  # no version counter sees this
    torch.testing.assert_close(one(X), other(X))
    one.load_state_dict(state)
    assert not torch.allclose(one(X), other(X))
    with torch.inference_mode():
        one(X)
    one(X).sum().backward()
    with torch.no_grad():
        one.axes[1].capacity.w[3:] = 0.5
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(one(X), other(X))


def parts(each):
    """Parts of the model are called by themselves, after a pass of the whole."""
    each(X)
    each.axes[0].capacity.tau.data.add_(0.5)
    return each.model.b(each.model.a(X)).square().mean()


def twice(each):
    """Two backward passes go through one forward pass."""
    kept = []
    handle = each.model.a.register_forward_hook(lambda module, args, h: kept.append(h))
    y = each(X)
    handle.remove()
    kept[0].square().sum().backward(retain_graph=True)
    return y.square().sum()


class Recomputed(Two):
    def forward(self, x):
        for part in (self.a, self.b, self.c):
            x = checkpoint(part, x, use_reentrant=self.reentrant)
        return x


def recomputed(each, reentrant=False):
    each.model.__class__, each.model.reentrant = Recomputed, reentrant
    return each(X.clone().requires_grad_()).square().mean()


def after_an_error(each):
    with pytest.raises(RuntimeError):
        each(X[..., :3])
    each.axes[0].capacity.tau.data.add_(0.5)
    return each.model.a(X).square().mean()


@pytest.mark.parametrize("way", [parts, twice, recomputed, partial(recomputed, reentrant=True), after_an_error])
def test_gradients_are_those_of_single_gates_however_the_model_is_called(way):
    one = learner()
    other = alone(one)
    for each in (one, other):
        way(each).backward()
    same_gradients(one, other)


def test_functions_of_torch_func_take_such_gates():
    one = learner()
    torch.testing.assert_close(torch.func.vmap(one)(X), one(X))


@pytest.mark.parametrize("replicas", [None, 2])
def test_boundaries_are_placed_together(replicas):
    gates = [ngn.CountGate(8, t0=t, stride=s, replicas=replicas) for t, s in ((1.0, 1.0), (5.0, 2.0))]
    shape = (2,) if replicas is None else (2, 2)
    t, beta = torch.rand(shape, dtype=torch.float64) + 1.0, torch.rand(shape, dtype=torch.float64)
    place(gates, t, beta)
    torch.testing.assert_close(torch.stack([gate.size() for gate in gates], -1), t)
    torch.testing.assert_close(torch.stack([gate.beta for gate in gates], -1), beta)
    torch.testing.assert_close(boundaries(gates), t)
    taus = [gate.tau for gate in gates]
    slopes = torch.autograd.grad(torch.stack([gate.t().sum() for gate in gates]).sum(), taus)
    torch.testing.assert_close(boundary_slopes(gates), torch.stack(slopes, -1))
    wanted = penalty(gates)  # one by one
    for gate in gates:
        gate.batch = gates
    torch.testing.assert_close(penalty(gates), wanted)
