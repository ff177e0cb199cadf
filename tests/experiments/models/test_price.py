"""``method=budget``: the controller of the price against another implementation, and no model above its budget."""

import math

import pytest
import torch
from cooper.optim import nuPI, nuPIInitType
from kernel_cases import BANK, plan, resumed_exactly
from torch import nn

import ngn
from experiments.models.nearest import largest
from experiments.models.price import PricedLearner, pi_step
from ngn.gate import softplus_inverse
from ngn.train.trainer import Trainer

EACH = 16 + 16 + 256 + 16 + 16
"""Parameters of one 1D block, without the output bias that all blocks share."""


def of(components):
    return int(components * EACH + 1)


def bank(budget, seeds=0, K=12, **gate):
    return PricedLearner(BANK.learner(seeds, K=K, stirred=True, **gate).model, budget)


def deployed(learner):
    each = [None] if learner.replicas is None else range(learner.replicas)
    return [sum(p.numel() for p in learner.deploy(r).parameters()) for r in each]


def test_the_controller_is_cooper_s_nupi_on_a_quadratic():
    """min x^2 / 2 - 3 x subject to x <= 1: gradient descent on x, multiplicative steps of the multiplier.

    The logarithm of ours moves as the multiplier of nuPI does (nu = 0, initial error 0).
    """
    K_I, K_P = torch.tensor([0.05, 0.7], dtype=torch.float64)
    theirs = nn.Parameter(torch.tensor(math.log(1e-3), dtype=torch.float64))
    optimizer = nuPI([theirs], lr=1.0, Kp=K_P, Ki=K_I, ema_nu=0.0, init_type=nuPIInitType.ZEROS, maximize=True)
    ours = theirs.detach().clone()
    x = before = torch.zeros((), dtype=torch.float64)
    for _ in range(2000):
        e = x - 1.0
        theirs.grad = e.clone()
        optimizer.step()
        ours = ours + pi_step(e, before, 1.0, K_I, K_P)
        before = e
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-12)
        x = x - 0.05 * (x - 3.0 + ours.exp())
    assert float(x) == pytest.approx(1.0, abs=1e-6)
    assert float(ours.exp()) == pytest.approx(2.0, abs=1e-5), "the multiplier of the solution"


def test_one_step_is_the_equations_in_float64():
    learner = bank(ngn.Budget(parameters=of(5)), t0=8.3)
    learner.set_progress(0.0)
    cost = [EACH * 9.3 + 1, EACH * 8.8 + 1]
    with torch.no_grad():
        learner.gates[0].tau.copy_(softplus_inverse(7.8))
    learner.set_progress(0.05)  # a tenth of the way to the commit
    limit = (cost[0] + of(5)) / 2  # half-way up the ramp
    before, e = 0.0, cost[1] / limit - 1
    price = 1e-4 * math.exp(40.0 * 0.1 * e + 1.0 * (e - before))
    assert float(learner.price) == pytest.approx(price, rel=1e-12)
    gate = learner.gates[0]
    assert float(gate.price) == pytest.approx(price * EACH / of(5), rel=1e-12)
    expected = price * EACH / of(5) * 7.8 + float(gate.alpha) * math.sin(math.pi * 7.8) ** 2
    assert float(learner.penalty().detach()) == pytest.approx(expected, rel=1e-9)
    with torch.no_grad():
        gate.tau.copy_(softplus_inverse(3.2))
    learner.set_progress(0.075)
    assert float(gate.price) == 0.0, "below the limit nothing is paid"
    assert float(learner.price) > 0.0


@pytest.mark.parametrize("t0", [1e-4, 4.3, 11.0])
@pytest.mark.parametrize("components", [1, 3, 7, 11.9, 12, 40])
def test_no_deployed_model_is_above_its_budget(t0, components):
    learner = bank(ngn.Budget(parameters=of(components)), t0=t0)
    BANK.train(Trainer, learner, plan(40, lr_boundary=0.1))
    assert deployed(learner)[0] <= of(components)


def test_each_model_of_a_stack_has_its_own():
    learner = bank(ngn.Budget(parameters=[of(2), of(5), of(8)]), seeds=[0, 1, 2], t0=9.0)
    assert learner.reach.requested == [of(2), of(5), of(8)]
    BANK.train(Trainer, learner, plan(60, lr_boundary=0.1))
    left = deployed(learner)
    assert all(count <= limit for count, limit in zip(left, learner.reach.requested, strict=True))
    assert len(set(left)) > 1


def test_the_price_brings_the_boundary_to_the_budget():
    learner = bank(ngn.Budget(parameters=of(5)), t0=9.0, alpha_max=0.0)
    BANK.train(Trainer, learner, plan(600, lr_boundary=0.02))
    assert learner.count().tolist() == [5]


def test_a_slack_budget_costs_nothing():
    learner = bank(ngn.Budget(parameters=of(40)), t0=5.2)
    assert str(learner.reach).endswith("the largest model is within the budget")
    BANK.train(Trainer, learner, plan(60))
    assert float(learner.price) < 1e-6
    assert learner.count().tolist() == [6]


def test_what_the_task_does_not_ask_for_is_not_used():
    learner = bank(ngn.Budget(parameters=[of(9), of(4)]), seeds=[0, 1], t0=[3.2, 8.2])
    BANK.train(Trainer, learner, plan(60))
    (less,), (all_of_it,) = learner.count().tolist()
    assert less < 9
    assert all_of_it == 4
    assert learner.report().budget == (
        f"{of(less):,} of 2,881 parameters (the task asked for less), 1,281 of 1,281 parameters"
    )


def test_growth_without_a_preset_K_stays_below():
    learner = bank(ngn.Budget(parameters=of(9)), K=None, t0=1.0)
    assert learner.reach.largest is None
    for gate in learner.gates:
        gate.pay(torch.tensor(-1.0, dtype=torch.float64))
    BANK.train(Trainer, learner, plan(60, lr_boundary=0.3))
    assert deployed(learner)[0] <= of(9)
    with pytest.raises(ValueError, match="no largest model"):
        bank(ngn.Budget(parameters="50%"), K=None)


@pytest.mark.parametrize("stop", [20, 56])
def test_resumed_it_is_the_same_to_the_last_bit(stop, tmp_path):
    def make():
        return bank(ngn.Budget(parameters=[of(3), of(5)]), seeds=[0, 1], t0=7.4)

    straight, again = resumed_exactly(make, plan(60, lr_boundary=0.1), stop, tmp_path)
    assert torch.equal(straight.price, again.price)


def unequal():
    """Two axes whose components cost a hundred to one."""
    wide, narrow = nn.Linear(100, 8), nn.Linear(1, 8)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.narrow, self.out = wide, narrow, nn.Linear(16, 1)
            self.a = ngn.OrderedAxis(ngn.CountGate(8, t0=6.6, alpha_max=0.0), [*ngn.outputs(wide)])
            self.b = ngn.OrderedAxis(ngn.CountGate(8, t0=6.6, alpha_max=0.0), [*ngn.outputs(narrow)])

        def forward(self, x):
            h = torch.cat([self.a(self.wide(x)), self.b(self.narrow(x[:, :1]))], -1)
            return self.out(nn.functional.pad(h, (0, 16 - h.shape[-1])))

    return Two()


def test_groups_are_priced_by_what_they_cost():
    learner = PricedLearner(unequal(), ngn.Budget(parameters=400))
    for p in (0.0, 0.05):
        learner.set_progress(p)
    prices = [float(gate.price) for gate in learner.gates]
    assert prices[0] / prices[1] == pytest.approx(101 / 2)
    for p in (0.1, 0.5, 0.9):
        learner.set_progress(p)
    assert learner.cost.measured(tuple(learner.count().tolist())) <= 400
    assert learner.count().tolist() == [3, 8], "three of 101 are 303, and 8 of 2 beside 17 fit"


def test_one_group_gives_way_where_most_is_saved():
    def total(counts):
        return 10 * counts[0] + counts[1]

    def chosen(sizes, limit):
        return largest(sizes, [range(5)] * 2, total, total, limit)

    assert chosen([2.6, 2.9], 33) == (3, 3)
    assert chosen([2.6, 2.9], 32) == (3, 2), "(2, 3) would leave a quarter of the limit unused"
    assert chosen([2.6, 2.9], 25) == (2, 3)
    assert chosen([3.7, 2.2], 33) == (3, 3), "what is left is used where a component is half open"
    assert chosen([0.2, 0.2], 5) == (0, 1)
    assert chosen([4.0, 4.0], 0) == (0, 0)
    assert chosen([2.2, 1.9], 24) == (2, 2)
    assert largest([2.2, 1.9], [range(5)] * 2, total, total, 24, fill=True) == (2, 4)
