"""One contract: every capacity learner on every ordered component, and every capacity on every ordered axis."""

import pytest
import torch
from axes import MODELS, X, plain
from axes import model_of as axis_of
from learners import ALONE, BUDGETS, LEARNERS, K
from modes import hard_output
from structures import STRUCTURES, awake, model_of

import ngn
from experiments.models.parallel import ParallelModel
from ngn.components.base import OrderedSum
from ngn.cut.truncation import deploy
from ngn.learner import Learner
from ngn.methods.base import Capacity
from ngn.methods.ngn import CountGate


def learner_of(structure, method, replicas):
    """The learner of a single model without a head, or of a stack of two models with a head each."""
    seeds = 3 if replicas is None else [3, 8]
    bank = awake(structure.bank(K, seeds))
    capacity = LEARNERS["ngn" if method in BUDGETS else method](replicas)
    model = model_of(bank, capacity, head=replicas is not None, seeds=seeds)
    return BUDGETS.get(method, Learner)(model)


@pytest.mark.parametrize("method", [*LEARNERS, *BUDGETS])
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
def test_every_learner_on_every_component(structure, method):
    for replicas in (None, 2):
        has_shapes_and_gradients(learner_of(structure, method, replicas), structure.x(torch.float32), replicas)
        agrees_in_its_modes(learner_of(structure, method, replicas), structure.x(torch.float32))
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            learner = learner_of(structure, method, replicas)
            learner.model.to(dtype)
            is_deployed_as_the_hard_forward(learner, structure, replicas, structure.x(dtype), tolerance)


def has_shapes_and_gradients(learner, x, replicas):
    lead = () if replicas is None else (replicas,)
    y = learner(x)
    assert y.shape[: len(lead)] == lead
    penalty = learner.penalty()
    assert penalty.shape == lead
    assert learner.count().shape == (*lead, 1)
    assert learner.size().shape == (*lead, 1)
    assert learner.count().dtype == torch.int64
    (y.square().sum() + penalty.sum()).backward()
    for p in learner.body_parameters() + learner.controller_parameters():
        assert p.grad is not None
        assert bool(torch.isfinite(p.grad).all())
    assert not {id(p) for p in learner.body_parameters()} & {id(p) for p in learner.controller_parameters()}
    learner.after_step(0)


def is_deployed_as_the_hard_forward(learner, structure, replicas, x, tolerance):
    """And with no parameter more than those of what is kept."""
    learner.calibrate(x)
    with torch.no_grad():
        hard = hard_output(learner, x)
        counts = learner.count()
        bank = learner.axes[0].bank
        with_parameters = K - getattr(bank, "identity", False)  # an identity has none
        per = sum(p.numel() for p in bank.parameters()) // (replicas or 1) // with_parameters
        head = sum(p.numel() for n, p in learner.model.named_parameters() if n.startswith("head")) // (replicas or 1)
        for r in [None] if replicas is None else range(replicas):
            small = learner.deploy(r)
            want = hard if r is None else hard[r]
            assert float((small(x) - want).abs().max()) <= tolerance * max(1.0, float(want.abs().max()))
            assert not any(isinstance(m, Capacity) for m in small.modules())
            assert not any(m.training for m in small.modules())
            left = sum(p.numel() for p in small.parameters())
            kept = int(counts[0] if r is None else counts[r, 0])
            if structure.name == "chain":  # a link needs all links before it
                open_ = learner.axes[0].capacity.kept()
                kept = max((k + 1 for k, o in enumerate((open_ if r is None else open_[r]).tolist()) if o), default=0)
            # Parallel MLPs merge their last biases, so a deployed block can be smaller by them.
            assert left <= kept * per + head + structure.out
            assert (left < sum(p.numel() for p in learner.model.parameters())) or kept == K


def agrees_in_its_modes(learner, x):
    with torch.no_grad():
        soft, again = learner(x), learner(x)
        assert torch.equal(soft, again)
        hard = hard_output(learner, x)
        assert torch.equal(soft, learner(x)), "a hard forward must leave the learner soft"
        with learner.mode("kept"):
            kept = learner(x)
    assert kept.shape == hard.shape == soft.shape


def test_empty_prefix_deploys_to_zero():
    for structure in STRUCTURES:
        learner = Learner(ParallelModel(OrderedSum(awake(structure.bank(K, 0)), CountGate(K, delta=-0.5))))
        assert learner.count().tolist() == [0]
        assert torch.count_nonzero(learner.deploy()(structure.x(torch.float32))) == 0


BANKED = ("decay-normalised", "decay-free")  # normalisation needs a bank
PLAIN = {name: lambda made=made: made(None) for name, made in LEARNERS.items() if name not in BANKED} | ALONE
UNTRUNCATED = {"r": 1.0, "t0": K + 5.0, "beta": (400.0, 400.0)}


@pytest.mark.parametrize("name", MODELS)
def test_soft_passes_and_gradients_are_those_of_the_plain_sum(name):
    gate = ngn.CountGate(K, t0=1.7, r=0.7, beta=(3.0, 9.0))
    model, tau = axis_of(name, gate), gate.tau.detach().clone().requires_grad_()
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
        learner = ngn.Learner(axis_of(name, capacity()))
        before = {key: p.clone() for key, p in learner.state_dict().items()}
        small, built = learner.deploy(example=X), axis_of(name, None, int(learner.count()))
        with torch.no_grad():
            want = hard_output(learner, X)
            assert float((small(X) - want).abs().max()) <= 1e-12 * float(want.abs().max()), method
        assert not any(isinstance(module, ngn.Capacity) for module in small.modules())
        shapes = [[(n, p.shape) for n, p in model.named_parameters()] for model in (small, built)]
        assert shapes[0] == shapes[1]
        assert all(torch.equal(p, before[key]) for key, p in learner.state_dict().items())


@pytest.mark.parametrize("name", MODELS)
def test_without_components_the_rest_of_the_model_is_left(name):
    model = axis_of(name, ngn.CountGate(K, t0=0.3, delta=-0.5))
    if name == "channels":
        with pytest.raises(ValueError, match="cannot compute a convolution without channels"):
            deploy(model)
        return
    wanted = plain(name, model, X, torch.zeros(K, dtype=torch.float64))
    torch.testing.assert_close(deploy(model)(X), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_with_all_gates_open_and_weights_of_one_it_is_the_original(name):
    original, model = axis_of(name, None), axis_of(name, ngn.CountGate(K, **UNTRUNCATED))
    torch.testing.assert_close(model(X), original(X), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(deploy(model)(X), original(X), rtol=1e-12, atol=1e-12)
