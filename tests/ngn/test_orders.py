"""Orders: weights, trained models and deployed models, against formulas and by enumeration."""

import math

import pytest
import torch
from kernel_cases import BANK, plan
from modes import hard_output
from structures import STRUCTURES, awake

import ngn
from experiments.methods.gates.decay import DecayGate
from experiments.models.kernels.supported import unsupported
from ngn.losses import Supervised, mean_squared_error
from ngn.methods.orders import Order
from ngn.train.trainer import Trainer

K, R = 6, 0.7
RANKS = (1, 2, 4, 6)
FORMULAS = {
    "geometric": lambda k, p: R**k,
    "power": lambda k, p: (k + 1) ** -1.5,
    "annealed": lambda k, p: R ** (k * (1 - p)),
    "matryoshka": lambda k, p: sum(m > k for m in RANKS) / len(RANKS),
    "nested_dropout": lambda k, p: R**k,
}


def order(kind, **own):
    return Order(kind, exponent=1.5, **own)


def learner_of(of, **gate):
    """A learner of six components with random values, in double precision; t = 4.3 unless ``gate`` sets t0."""
    bank = awake(STRUCTURES[0].bank(K, 0).double())
    return ngn.Learner(ngn.OrderedSum(bank, ngn.CountGate(K, r=R, order=of, **({"t0": 4.3} | gate))))


def prefix_losses(learner, x):
    """Mean square of the output of the first 1, 2, ..., K components, without weights, in float64."""
    f = learner.model.bank.components(x).detach()
    return [float(f[:m].sum(0).square().mean()) for m in range(1, K + 1)]


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("progress", [0.0, 0.25, 1.0])
def test_weights_are_the_formulas_in_float64(kind, progress):
    r = torch.full((2,), R, dtype=torch.float64)
    expected = [FORMULAS[kind](k, progress) for k in range(K)]
    for row in order(kind).weights(r, K, progress).tolist():
        assert row == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("kind", FORMULAS)
def test_what_is_trained_and_what_is_deployed(kind):
    """Soft coefficients have the weights of the order; hard ones only those that truncation keeps."""
    learner = learner_of(order(kind))
    gate = learner.axes[0].capacity
    for p in (0.0, 0.5, 1.0):
        learner.set_progress(p)
        learner.before_step(None)
        law = torch.tensor([FORMULAS[kind](k, p) for k in range(K)], dtype=torch.float64)
        kept = law if order(kind).kept else torch.ones_like(law)
        soft = law if kind == "matryoshka" else kept
        torch.testing.assert_close(gate.coefficients("soft"), soft * gate.gates("soft"), rtol=1e-14, atol=0)
        for mode in ("hard", "kept"):
            torch.testing.assert_close(gate.coefficients(mode), kept * gate.gates(mode), rtol=1e-14, atol=0)
        x = STRUCTURES[0].x(torch.float64)
        with torch.no_grad():
            deployed = learner.deploy(unsettled="allow")(x)
            torch.testing.assert_close(deployed, hard_output(learner, x), rtol=1e-12, atol=1e-12)
            assert (deployed - learner(x)).abs().max() > 1e-3, "the gates are open by parts"
    committed = learner_of(order(kind), commit=0.5)
    committed.set_progress(0.5)
    committed.before_step(None)
    with torch.no_grad():
        assert torch.equal(committed(x), hard_output(committed, x))
        torch.testing.assert_close(committed.deploy()(x), committed(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ranks", [None, (2, 3, 6)])
def test_the_expected_loss_of_nested_dropout_is_that_of_all_prefixes(ranks):
    """Each drawn loss is that of a prefix; their mean is the expectation over the cut, by enumeration."""
    of = Order("nested_dropout", ranks=ranks, seeds=5)
    learner = learner_of(of, t0=40.0)
    x = STRUCTURES[0].x(torch.float64)
    losses = prefix_losses(learner, x)
    survive = [*of.weights(torch.tensor(R, dtype=torch.float64), K).tolist(), 0.0]
    chance = [survive[m - 1] - survive[m] for m in range(1, K + 1)]  # P(C > m - 1) - P(C > m)
    if ranks is not None:
        assert chance == pytest.approx([float(m in ranks) / len(ranks) for m in range(1, K + 1)])
    expected = sum(p * loss for p, loss in zip(chance, losses, strict=True))
    spread = math.sqrt(sum(p * (loss - expected) ** 2 for p, loss in zip(chance, losses, strict=True)))
    drawn, draws = [], 3000
    for step in range(draws):
        learner.before_step(step)
        with torch.no_grad():
            drawn.append(float(learner(x).square().mean()))
    assert all(min(abs(loss / of_prefix - 1) for of_prefix in losses) < 1e-12 for loss in drawn)
    assert sum(drawn) / draws == pytest.approx(expected, abs=4 * spread / math.sqrt(draws))
    learner.before_step(None)
    with torch.no_grad():
        assert float(learner(x).square().mean()) == pytest.approx(losses[-1], rel=1e-12)


def test_a_replica_is_cut_alone_as_in_a_stack():
    def trained(seeds):
        of = Order("nested_dropout", seeds=seeds)
        learner = BANK.learner(seeds, order=of)
        BANK.train(Trainer, learner, plan(12))
        return learner

    stack, alone = trained([3, 8]), trained(8)
    one, other = (dict(one.named_parameters()) for one in (stack, alone))
    for name, p in one.items():
        torch.testing.assert_close(p[1], other[name], rtol=1e-4, atol=1e-6)
    both = Order("nested_dropout", seeds=[3, 8]).uniform(7)
    assert both[0] != both[1] == Order("nested_dropout", seeds=8).uniform(7)


@pytest.mark.parametrize("kind", FORMULAS)
def test_kernels_keep_weights_and_refuse_those_that_change(kind):
    learner = BANK.learner(0, order=order(kind))
    why = unsupported(learner, BANK.batches(), Supervised(mean_squared_error), plan(3))
    assert ("ordering weights that change in training" in str(why)) == (kind not in ("geometric", "power"))


def test_growing_components_get_their_weights_and_cuts():
    gate = ngn.CountGate(None, t0=2.0, order=Order("nested_dropout"), r=R)
    gate.before_step(0)
    gate.grow(gate.K + 3)
    assert gate.coefficients("soft").shape == gate.gates("soft").shape
    power = ngn.CountGate(None, t0=2.0, order=Order("power"))
    power.grow(30)
    assert float(power.weights()[29]) == pytest.approx(1 / 30)


def test_wrong_orders_are_refused():
    for wrong in ({"kind": "random"}, {"kind": "power", "exponent": 0.0}, {"kind": "matryoshka", "ranks": (0, 2)}):
        with pytest.raises(ValueError, match=r"order|ranks"):
            Order(**wrong)
    with pytest.raises(ValueError, match="no order"):
        ngn.CountGate(2, weights=torch.ones(2), order=Order("power"))
    with pytest.raises(ValueError, match="ranks"):
        ngn.CountGate(None, order=Order("matryoshka"))
    with pytest.raises(ValueError, match=r"needs the geometric order r\^k"):
        DecayGate(3, order=Order("power"))


def test_a_state_of_another_order_is_refused():
    power = ngn.CountGate(4, order=Order("power"))
    state = ngn.CountGate(4).state_dict()
    with pytest.raises(RuntimeError, match="the state is of the order geometric, but the capacity has the order power"):
        power.load_state_dict(dict(state))
    del state["kind"]  # as in version 0.1
    power.load_state_dict(state)
