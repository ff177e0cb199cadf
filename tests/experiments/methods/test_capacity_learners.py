"""Straight-through count, AWNN, learned decay and hard-concrete gates against their equations."""

import math

import numpy as np
import pytest
import torch
from learners import LEARNERS
from modes import hard_output
from stopping import resumed
from structures import STRUCTURES, awake

from experiments.methods.gates.awnn import AdaptiveWidth, PriorLearner
from experiments.methods.gates.decay import DecayGate
from experiments.methods.gates.l0 import LIMIT, HardConcrete
from experiments.methods.gates.ste import StraightThrough
from experiments.models.parallel import ParallelModel
from experiments.models.trainer import StudyTrainer
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised, mean_squared_error
from ngn.streams import generator
from ngn.train.batches import FullBatches, Split
from ngn.train.plan import TrainPlan

MLP = STRUCTURES[0]
K = 6


def learner_of(capacity, seeds=3, structure=MLP):
    return Learner(ParallelModel(OrderedSum(awake(structure.bank(K, seeds).double()), capacity)))


# straight-through


def test_ste_is_hard_forward_and_sigmoid_backward():
    t, beta = 2.3, 2.0
    learner = learner_of(StraightThrough(K, t0=t, beta=(beta, beta), lambda0=0.0, alpha_max=0.0))
    group, x = learner.axes[0], MLP.x(torch.float64)
    y = learner(x)
    assert torch.equal(y, hard_output(learner, x))
    assert learner.count().tolist() == [3]
    r = torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (y * r).sum().backward()
    f = group.bank.components(x).detach()
    expected = 0.0
    for k in range(K):  # also for closed blocks
        s = 1 / (1 + math.exp(-beta * (t - k + 0.5)))
        expected += 0.5**k * float((r * f[k]).sum()) * beta * s * (1 - s)
    dt_dtau = 1 - math.exp(-t)  # since t = softplus(tau)
    assert float(group.capacity.tau.grad) == pytest.approx(expected * dt_dtau, rel=1e-9)
    for p in group.bank.parameters():
        assert torch.count_nonzero(p.grad[3:]) == 0, "closed blocks must get no gradient"
        assert torch.count_nonzero(p.grad[:3]) > 0


@pytest.mark.parametrize(("t", "delta", "count"), [(2.49, 0.5, 3), (2.5, 0.5, 4), (0.2, 0.5, 1), (2.49, -0.5, 2)])
def test_ste_prefix_follows_the_rounded_boundary(t, delta, count):
    gate = StraightThrough(K, t0=t, delta=delta)
    w = 0.5 ** torch.arange(K, dtype=torch.float64)
    assert torch.equal(gate.coefficients("soft").detach(), w * (torch.arange(K) < count))


# AWNN


@pytest.mark.parametrize("width", [1.0, 3.0, 7.3, 16.0])
def test_awnn_width_is_the_smallest_prefix_that_holds_the_mass(width):
    gate = AdaptiveWidth(32, 512, width=width)
    r, D = math.exp(-float(gate.rate().detach())), int(gate.count())
    assert math.ceil(width) == D
    assert 1 - r**D >= 0.9 - 1e-9
    assert 1 - r ** (D - 1) < 0.9
    assert float(gate.rate().detach()) == pytest.approx(-math.log(0.1) / width)
    # -ln sigmoid(s) = softplus(-s): r = exp(-softplus(rho)) is sigmoid(-rho), the decay table's parameter
    assert r == pytest.approx(float(torch.sigmoid(-gate.rho.detach())))


def test_awnn_weights_are_the_importances_cut_hard_and_not_renormalised():
    learner = learner_of(AdaptiveWidth(K, 512, width=4.0))
    gate, x = learner.axes[0].capacity, MLP.x(torch.float64)
    r = 0.1**0.25
    p = torch.tensor([(1 - r) * r**k for k in range(4)], dtype=torch.float64)
    assert torch.allclose(gate.coefficients("soft").detach(), p)
    assert float(gate.coefficients("soft").detach().sum()) == pytest.approx(0.9)
    with torch.no_grad():
        f = learner.axes[0].bank.components(x)
        assert torch.allclose(learner(x), sum(p[k] * f[k] for k in range(4)))
        assert torch.equal(learner(x), hard_output(learner, x))


def test_the_awnn_prior_covers_live_blocks_only():
    capacity = AdaptiveWidth(K, 50, width=[2.0, 4.0], prior_sd=[10.0, 3.0], replicas=2)
    learner = PriorLearner(learner_of(capacity, seeds=[1, 2]).model)
    bank = learner.axes[0].bank
    penalty = learner.penalty()
    for r, (live, sd) in enumerate(((2, 10.0), (4, 3.0))):
        squares = sum(float(p.detach()[r, :live].square().sum()) for p in bank.parameters())
        assert float(penalty.detach()[r]) == pytest.approx(squares / (2 * sd**2 * 50))
    penalty.sum().backward()
    assert all(torch.count_nonzero(p.grad[0, 2:]) == 0 for p in bank.parameters())
    assert torch.allclose(bank.W1.grad[1, 0], bank.W1.detach()[1, 0] / (9 * 50))


# learned decay, normalisation


def test_the_decay_gate_learns_its_ratio():
    gate = DecayGate(K, t0=2.0, beta=(3.0, 3.0), r=0.7)
    k = torch.arange(K, dtype=torch.float64)
    assert torch.allclose(gate.coefficients("soft").detach(), 0.7**k * torch.sigmoid(3 * (2 - k + 0.5)))
    assert torch.allclose(gate.coefficients("hard").detach(), 0.7**k * (k < 3))
    gate.coefficients("soft").sum().backward()
    assert float(gate.rho.grad) != 0
    assert float(gate.decay().detach()) == pytest.approx(0.7)
    assert gate.controllers() == [gate.tau]
    assert DecayGate(K, learn_r=False, normalise=True).rho is None


def test_without_a_boundary_a_fraction_of_the_weight_is_kept():
    for r in (0.3, 0.81, 0.97):
        gate = DecayGate(K, boundary=False, r=r)
        mass = [(1 - r**n) / (1 - r**K) for n in range(K + 1)]
        assert int(gate.count()) == next(n for n in range(K + 1) if mass[n] >= 0.9)
        assert torch.allclose(gate.coefficients("soft").detach(), r ** torch.arange(K, dtype=torch.float64))
        assert float(gate.penalty()) == 0
        assert not gate.tau.requires_grad


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
@pytest.mark.parametrize("seeds", [3, [3, 4]], ids=["plain", "stack"])
def test_normalised_components_have_unit_rms(structure, seeds):
    replicas = None if isinstance(seeds, int) else 2
    capacity = DecayGate(K, boundary=False, normalise=True, r=0.6, eps=1e-30, replicas=replicas)
    learner = learner_of(capacity, seeds, structure)
    x = structure.x(torch.float64)
    f = learner.axes[0].bank.components(x)
    unit = f / f.square().mean((-2, -1), keepdim=True).sqrt()
    w = 0.6 ** torch.arange(K, dtype=torch.float64)
    wanted = (w[:, None, None] * unit).sum(-3)
    got = learner(x)
    assert torch.allclose(got, wanted)
    # The gradient passes through the rms, so it is orthogonal to each component's own scale.
    (got.square().sum()).backward()
    for name, p in learner.axes[0].bank.named_parameters():
        assert bool(torch.isfinite(p.grad).all()), name
    with pytest.raises(RuntimeError, match="calibrate"):
        learner.deploy(None if replicas is None else 0)
    learner.calibrate(x)
    with torch.no_grad():
        assert torch.allclose(learner(x), wanted)
    learner.before_step(0)
    assert learner.axes[0].rms is None


# hard concrete


def test_l0_gate_is_the_hard_concrete_and_its_probability_is_right():
    gate = HardConcrete(K, 7)
    with torch.no_grad():
        gate.log_alpha.copy_(torch.tensor([2.4, 2.0, 0.5, -0.5, -1.5, -2.4]))
    deterministic = gate.coefficients("soft").detach()
    assert deterministic[0] == 1
    assert deterministic[5] == 0
    assert float(deterministic[2]) == pytest.approx(1.2 / (1 + math.exp(-0.5)) - 0.1, rel=1e-6)
    open_, steps = torch.zeros(K), 4000
    for step in range(steps):
        gate.before_step(step)
        z = gate.coefficients("soft").detach()
        if step == 5:
            u = torch.rand(K, dtype=torch.float64, generator=generator(7, "noise", 5, 0))
            s = torch.sigmoid((torch.log(u) - torch.log(1 - u) + gate.log_alpha.detach()) / (2 / 3))
            assert torch.allclose(z, (1.2 * s - 0.1).clamp(0, 1), atol=1e-4)
        open_ += z > 0
    P = torch.sigmoid(gate.log_alpha.detach() + 2 / 3 * math.log(11)).float()
    assert torch.allclose(gate.open_probabilities().detach().float(), P)
    assert torch.allclose(open_ / steps, P, atol=4 * float((P * (1 - P) / steps).sqrt().max()))
    gate.before_step(None)
    assert torch.equal(gate.coefficients("soft"), deterministic)


def test_l0_noise_depends_on_seed_and_step_and_closed_gates_can_reopen():
    stack, alone = HardConcrete(K, [4, 9]), HardConcrete(K, 9)
    for gate in (stack, alone):
        gate.before_step(11)
    assert torch.equal(stack.coefficients("soft")[1], alone.coefficients("soft"))
    before = alone.coefficients("soft").detach()
    alone.before_step(12)
    assert not torch.equal(before, alone.coefficients("soft"))
    for gate, limit in ((alone, LIMIT), (HardConcrete(K, 9, limit=20.0), 20.0)):
        with torch.no_grad():
            gate.log_alpha.fill_(-50.0)
        gate.after_step()
        assert gate.log_alpha.detach().tolist() == [-limit] * K


# training


def trainer(method, seeds, lr, how, **settings):
    capacity = LEARNERS[method](None if isinstance(seeds, int) else len(seeds))
    made = PriorLearner if method == "awnn" else Learner
    learner = made(ParallelModel(OrderedSum(MLP.bank(capacity.K, seeds).double(), capacity)))
    batches = FullBatches(Split(MLP.x(torch.float64), torch.arange(33, dtype=torch.float64).sin().view(11, 3)))
    plan = TrainPlan(steps=30, lr=lr, lr_boundary=0.1, clip=0.5, **how)
    return StudyTrainer(learner, batches, Supervised(mean_squared_error), plan, progress="never", **settings)


PLANS = [
    {"optimizer": "adamw", "weight_decay": 0.1, "clip_scope": "separate"},
    {"optimizer": "adam", "weight_decay": 0.1, "clip_scope": "body"},
]


@pytest.mark.parametrize(("method", "how"), [*((name, {}) for name in LEARNERS), *(("ngn", how) for how in PLANS)])
def test_a_resumed_training_is_bit_equal_and_a_replica_trains_as_it_would_alone(method, how, tmp_path):
    """The replicas differ in seed, settings and learning rate."""
    rates = torch.tensor([1e-2, 1e-3], dtype=torch.float64)
    stack, history = resumed(lambda **settings: trainer(method, [3, 8], rates, how, **settings), tmp_path, 16)
    curves = (alone := trainer(method, 3, 1e-2, how)).fit().curves
    for (name, p), q in zip(stack.model.named_parameters(), alone.learner.model.parameters(), strict=True):
        assert torch.allclose(p[0], q, atol=1e-10), name
    assert torch.equal(stack.count()[0], alone.learner.count())
    for name in ("t", "task"):
        np.testing.assert_allclose(history.curves[name][:, 0], curves[name][:, 0], atol=1e-10)
