"""Ordered axes on every structure: gradients, truncation, training and files."""

import pytest
import torch
from axes import MODELS, K, X, model_of, plain
from learners import ALONE, LEARNERS
from modes import hard_output

import ngn
from ngn.cut.truncation import deploy

BANKED = ("decay-normalised", "decay-free")  # normalisation needs a bank
PLAIN = {name: lambda made=made: made(None) for name, made in LEARNERS.items() if name not in BANKED} | ALONE
UNTRUNCATED = {"r": 1.0, "t0": K + 5.0, "beta": (400.0, 400.0)}


@pytest.mark.parametrize("name", MODELS)
def test_soft_passes_and_gradients_are_those_of_the_plain_sum(name):
    gate = ngn.CountGate(K, t0=1.7, r=0.7, beta=(3.0, 9.0))
    model, tau = model_of(name, gate), gate.tau.detach().clone().requires_grad_()
    weights, k = torch.linspace(-1, 2, X.numel(), dtype=torch.float64).view_as(X), torch.arange(K, dtype=torch.float64)
    c = 0.7**k / (1 + torch.exp(-3.0 * (torch.log1p(torch.exp(tau)) - k + 0.5)))
    y, wanted = model(X), plain(name, model, X, c)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad and p is not gate.tau}
    got = torch.autograd.grad((weights * y).sum(), [gate.tau, *trained.values()])
    naive = torch.autograd.grad((weights * wanted).sum(), [tau, *trained.values()])
    for what, one, other in zip(["tau", *trained], got, naive, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11, msg=what)


@pytest.mark.parametrize("name", MODELS)
def test_deployed_is_the_hard_forward_and_smaller(name):
    for method, capacity in PLAIN.items():
        learner = ngn.Learner(model_of(name, capacity()))
        before = {key: p.clone() for key, p in learner.state_dict().items()}
        small, built = learner.deploy(example=X), model_of(name, None, int(learner.count()))
        with torch.no_grad():
            want = hard_output(learner, X)
            assert float((small(X) - want).abs().max()) <= 1e-12 * float(want.abs().max()), method
        assert not any(isinstance(module, ngn.Capacity) for module in small.modules())
        shapes = [[(n, p.shape) for n, p in model.named_parameters()] for model in (small, built)]
        assert shapes[0] == shapes[1]
        assert all(torch.equal(p, before[key]) for key, p in learner.state_dict().items())


@pytest.mark.parametrize("name", MODELS)
def test_without_components_the_rest_of_the_model_is_left(name):
    model = model_of(name, ngn.CountGate(K, t0=0.3, delta=-0.5))
    if name == "channels":
        with pytest.raises(ValueError, match="cannot compute a convolution without channels"):
            deploy(model)
        return
    wanted = plain(name, model, X, torch.zeros(K, dtype=torch.float64))
    torch.testing.assert_close(deploy(model)(X), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_with_all_gates_open_and_weights_of_one_it_is_the_original(name):
    original, model = model_of(name, None), model_of(name, ngn.CountGate(K, **UNTRUNCATED))
    torch.testing.assert_close(model(X), original(X), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(deploy(model)(X), original(X), rtol=1e-12, atol=1e-12)
