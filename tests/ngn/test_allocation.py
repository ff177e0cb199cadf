"""Sizes under a budget part on evidence: positive and negative controls, and the equations."""

import copy
import functools
import math

import numpy as np
import pytest
import torch
from sizable import Forward, chain
from torch import nn

import ngn
from ngn.budget.allocation import BLIND, SPEED
from ngn.budget.evidence import AVERAGE, PARTS, Confirmation
from ngn.components.low_rank import LowRankLinear
from ngn.methods.batch import boundary_slopes
from ngn.methods.fixed import FixedCount
from ngn.schedules import Shape

RANKS, WIDTH = (1, 1, 2, 10), 16
"""Ranks of the target's four linear maps: the right allocation is uneven by construction."""
EVEN = [4, 4, 4, 4]
"""A quarter of each width."""


class Sum(nn.Module):
    """A sum of bottlenecks on separate inputs."""

    def __init__(self, widths=(WIDTH,) * 4):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, n, bias=False), nn.Linear(n, WIDTH, bias=False)) for n in widths
        )

    def forward(self, x):
        return sum(part(x[:, i]) for i, part in enumerate(self.parts))


def samples(seed, count, shuffled=False):
    source, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(7)
    x = torch.randn(count, 4, WIDTH, generator=source)
    y = 0.3 * torch.randn(count, WIDTH, generator=source)
    for i, rank in enumerate(RANKS):
        left, right = (torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=fixed))[0][:, :rank] for _ in range(2))
        y = y + x[:, i] @ left @ right.T
    return x, y[torch.randperm(count, generator=source)] if shuffled else y


PLAN = ngn.TrainPlan(steps=500, lr=5e-3, lr_shape=Shape("cosine"))


class Minibatches:
    def __init__(self, x, y, seed):
        self.x, self.y, self.seed = x, y, seed

    def at(self, index):
        rows = torch.randint(len(self.x), (128,), generator=torch.Generator().manual_seed(1000 * self.seed + index))
        return self.x[rows], self.y[rows]


def learned(seed, shuffled=False, **budget):
    torch.manual_seed(seed)
    limit, example = ngn.Budget(parameters="25%", **budget), samples(0, 2)[0]
    learner = ngn.learn_sizes(Sum(), {"parts.*": ngn.Width()}, example=example, budget=limit, by_importance=None)
    held_out = Minibatches(*samples(100 + seed, 2048, shuffled), seed + 50)
    batches = Minibatches(*samples(seed, 2048, shuffled), seed)
    ngn.fit(learner, batches, None, nn.functional.mse_loss, PLAN, held_out=held_out, progress="never")
    return learner


def error(model):
    x, y = samples(999, 2048)
    with torch.no_grad():
        return float((model(x) - y).square().mean().sqrt())


@pytest.mark.parametrize("seed", [0, 1])
def test_sizes_follow_the_task_and_are_better_than_even_ones(seed):
    learner = learned(seed)
    torch.manual_seed(seed)
    even = Sum(EVEN)
    fixed = ngn.Learner(LowRankLinear(nn.Linear(1, 1), FixedCount(1), seed=0, name="unused"))
    fixed.model = even  # the same trainer, without sizes
    ngn.fit(fixed, Minibatches(*samples(seed, 2048), seed), None, nn.functional.mse_loss, PLAN, progress="never")
    counts = learner.count().tolist()
    assert sum(counts) == sum(EVEN)
    assert counts[3] >= 9, counts
    assert error(learner.deploy()) < 0.6 * error(even)
    assert learner.strongest[3] > 3.0
    table = [line.split() for line in str(learner.report()).splitlines()]
    assert table[0][-2:] == ["even", "benefit"]
    assert table[4][-2] == "4"
    assert float(table[4][-1]) > 3.0
    assert [line[0] for line in table[-2:]] == ["even:", "benefit:"], "the words are explained"


@pytest.mark.parametrize("seed", [0, 1])
def test_shuffled_targets_leave_the_sizes_exactly_even(seed):
    assert learned(seed, shuffled=True).count().tolist() == EVEN


@functools.cache
def trained():
    """All widths, trained on the true targets."""
    torch.manual_seed(0)
    model, batches = Sum(), Minibatches(*samples(0, 2048), 0)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for step in range(150):
        x, y = batches.at(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


def shrunk(shuffled=False, scored=True, held=True):
    """Sort the trained network by Taylor scores, then shrink it in few steps: the learner and its losses."""
    model, batches, mse = copy.deepcopy(trained()), Minibatches(*samples(0, 2048), 0), nn.functional.mse_loss
    limit, x = ngn.Budget(parameters="25%"), samples(0, 2)[0]
    learner = ngn.learn_sizes(model, {"parts.*": ngn.Width()}, example=x, budget=limit, by_importance=None)
    learner.sort("taylor", [batches.at(n) for n in range(8)], mse)
    for axis in learner.axes:
        axis.worth = axis.worth if scored else None
    train, test = (Minibatches(*samples(number, 2048, shuffled), 0) for number in (0, 100))
    plan = ngn.TrainPlan(steps=20, lr=5e-3)
    history = ngn.fit(learner, train, None, mse, plan, held_out=test if held else None, progress="never")
    return learner, history.curves["task"]


def test_a_trained_network_begins_near_the_sizes_of_its_scores():
    learner, _ = shrunk()
    counts = learner.count().tolist()
    assert sum(counts) == sum(EVEN)
    assert counts[3] >= 9, counts
    assert learner.even.tolist() == EVEN
    (even, losses), (_, without) = shrunk(held=False), shrunk(held=False, scored=False)
    np.testing.assert_array_equal(losses, without, "scores alone change nothing")
    assert error(learner.deploy()) < 0.9 * error(even.deploy())


def test_shuffled_targets_leave_a_trained_network_even_to_the_bit():
    (learner, losses), (_, without) = shrunk(shuffled=True), shrunk(shuffled=True, scored=False)
    assert learner.count().tolist() == EVEN
    np.testing.assert_array_equal(losses, without)


def test_without_significance_the_sizes_are_exactly_even():
    learner = learned(0, significance=math.inf)
    assert learner.count().tolist() == EVEN
    assert "benefit" not in str(learner.report())
    assert "even: all sizes shrank alike" in str(learner.report())
    assert bool((learner.lead == 0).all())


def two(significance=3.0, **gate):
    """Two widths whose units cost 9 and 4 parameters."""
    model = Forward(lambda own, x: (own.a(x), own.b(x[:, :1])), a=chain(4, 32, 4), b=chain(1, 32, 2))
    budget = ngn.Budget(parameters="50%", significance=significance)
    return ngn.learn_sizes(model, {"*": ngn.Width()}, example=torch.randn(2, 4), budget=budget, **gate)


def test_the_evidence_is_the_equations():
    learner, source = two(), np.random.default_rng(0)
    learner.set_progress(0.0)
    slopes = source.normal([0.9, 0.1], 0.2, (40, 2))
    learner.set_progress(0.1)  # a quarter of the way
    for step, (a, b) in enumerate(slopes):
        for gate, slope in zip(learner.gates, (a, b), strict=True):
            gate.tau.grad = torch.tensor(-slope * float(boundary_slopes([gate])))
        learner.after_backward(step)
        assert all(gate.tau.grad is None for gate in learner.gates)
    cost, n = np.array([9.0, 4.0]), learner.sizes.numpy()
    beta = 2.0 / np.maximum(1.0, 0.1 * n)

    def errors(worth):
        gain = worth - (worth * n * cost).sum(1, keepdims=True) / (n * cost).sum()
        weights = (1 - 1 / AVERAGE) ** np.arange(39, -1, -1)[:, None]
        mean = (weights * gain).sum(0) / weights.sum()
        variance = (weights * gain**2).sum(0) / weights.sum() - mean**2
        return mean / np.sqrt(variance / (weights.sum() ** 2 / (weights**2).sum() - 1))

    important, slope = errors(slopes**2 / beta / cost), errors(slopes / cost)
    np.testing.assert_allclose(learner.evidence.standard_errors(held_out=True).numpy(), important, rtol=1e-9)
    z = np.sign(important) * np.minimum(np.abs(important), np.abs(slope))
    assert z[0] > 0 > z[1], "0.1 a parameter against 0.025"
    np.testing.assert_allclose(learner.evidence.standard_errors(held_out=False).numpy(), z, rtol=1e-9)
    before = learner.lead.clone()
    learner.set_progress(0.108)
    step = SPEED * (0.108 - 0.1) / 0.4 * np.sign(z) * np.clip(np.abs(z) - 3.0, 0.0, 1.0)
    np.testing.assert_allclose((learner.lead - before).numpy(), step, rtol=1e-9)
    limit = learner.cost.full * 0.5 ** (0.108 / 0.4)
    assert float(learner.costs()[0]) == pytest.approx(limit, rel=1e-6)


@pytest.mark.parametrize("share", [0.1, 0.37, 0.5, 0.93, 1.0])
@pytest.mark.parametrize("lead", [(0.0, 0.0), (1.5, -0.7), (-4.0, 4.0)])
def test_sizes_have_the_cost_of_the_limit(share, lead):
    learner = two()
    learner.lead.copy_(torch.tensor(lead, dtype=torch.float64))
    limit = torch.tensor(share * learner.cost.full, dtype=torch.float64)
    counts = learner.scaled(limit)
    assert float(learner.cost(counts)[0]) == pytest.approx(float(limit), rel=1e-6)
    assert bool(((counts >= 1) & (counts <= 32)).all())
    inside = (counts > 1) & (counts < 32)
    if bool(inside.all()):
        assert float((counts[0] / counts[1]).log()) == pytest.approx(lead[0] - lead[1], abs=1e-9)


def test_no_size_parts_before_there_is_evidence_and_none_without_gradients():
    learner = two()
    for step in range(50):
        learner.set_progress(step / 100)
    assert bool((learner.lead == 0).all())
    assert learner.count().tolist() == learner.even.tolist()
    with pytest.warns(UserWarning, match=r"no gradient of a boundary was seen: call learner.step\(progress\) before"):
        learner.deploy()


def test_the_optimiser_moves_no_boundary_and_nothing_is_paid():
    learner = two()
    optimizer = torch.optim.SGD(learner.parameters(), lr=1e3, weight_decay=0.1)
    learner.set_progress(0.0)
    for step in range(3):
        loss = learner.model.a(torch.randn(8, 4)).square().mean() + learner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        learner.step((step + 1) / 1000)
    assert float(learner.penalty()) == 0.0
    assert learner.size()[0] == learner.size()[1], "in step, whatever the optimiser did"


@pytest.mark.parametrize("t0", [1e-4, 1.0])
def test_training_from_few_components_ends_with_all_of_the_budget(t0):
    learner = two(t0=t0)
    x = torch.randn(16, 4)

    def loss(model, batch):
        return sum(y.square().mean() for y in model(batch))

    ngn.fit(learner, [x], None, loss, ngn.TrainPlan(steps=40), progress="never")
    assert learner.count().tolist() == [16, 15], "what is closed on the way up is not cut"


def noise(step):
    return torch.tensor(0.01 * math.sin(37.0 * step), dtype=torch.float64)


@pytest.mark.parametrize(
    ("loss", "gain", "confirmed"),
    [
        (lambda step: 1.0 / (2 + step), lambda step: 0.0, True),
        (lambda step: 1.0 - 0.0002 * step, lambda step: 0.0, False),
        (lambda step: 1.0 + 0.01 * step, lambda step: 0.0, False),
        (lambda step: 1.0 + 0.01 * step, lambda step: 0.05, True),
        (lambda step: 1.0, lambda step: -0.05, False),
    ],
)
def test_held_out_data_confirm_learning_or_capacity(loss, gain, confirmed):
    test = Confirmation(None)
    assert not bool(test.seen.any())
    for step in range(3 * PARTS):
        test.add(step, loss(step) + noise(step), gain(step) + noise(step + 1))
    assert bool(test.confirms(3.0)) == confirmed


def test_nothing_is_learned_before_the_first_share_of_the_way():
    learner = two()
    learner.set_progress(0.0)
    for moments in (learner.evidence.importance, learner.evidence.slope):
        moments.moments[0], moments.weights[:] = 1.0, 1.0
    learner.set_progress(0.99 * BLIND * 0.4)
    assert bool((learner.lead == 0).all())
    learner.set_progress(0.0)
    assert not any(bool(value.any()) for value in learner.evidence.buffers()), "a new training begins"
