"""How sizes under a budget become counts: in proportion, and those of few components on evidence or held-out data."""

import itertools
import math
import random

import pytest
import torch

import ngn
from ngn.budget.evidence import PARTS
from ngn.budget.rounding import USED, largest


def attention():
    """A learner that is to keep 1.3 heads, and the number of their size."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 64, batch_first=True, dropout=0.0)
    learner = ngn.learn_sizes(
        layer, {"self_attn": ngn.Heads(), "": ngn.Width()}, example=torch.randn(2, 3, 16),
        budget=ngn.Budget(parameters="35%"),
    )  # fmt: skip
    learner.set_progress(0.0)
    return learner, learner.names.index("self_attn")


@pytest.mark.parametrize("towards", [-1.0, 0.0, 1.0])
def test_weak_evidence_decides_how_a_size_of_few_components_is_rounded(towards):
    """Sizes below the significance stay together; that of 1.3 heads is one head, or two if they look worth more."""
    learner, heads = attention()
    sign = torch.where(torch.arange(2) == heads, towards, -towards).double()
    for step in range(40):  # 1.5 to 2 standard errors
        noise = 1.0 + 4.0 * (-1) ** step
        for moments in (learner.evidence.importance, learner.evidence.slope):
            moments.add(sign * noise, torch.ones((), dtype=torch.float64))
    z = learner.evidence.standard_errors(held_out=False)
    assert float(z[heads]) == pytest.approx(1.3 * towards, abs=0.3)
    for progress in (0.1, 0.2, 0.3, 0.39):
        learner.set_progress(progress)
    assert 1.2 < float(learner.scaled(learner.limit)[heads]) < 1.4
    learner.set_progress(0.4)
    assert bool((learner.lead == 0).all())
    assert learner.count()[heads] == (2 if towards > 0 else 1)
    assert learner.even[heads] == 1
    assert 0.9 * float(learner.limit) < learner.cost.measured(tuple(learner.count().tolist())) <= float(learner.limit)


@pytest.mark.parametrize(
    ("worth", "spread", "batches", "count"),
    [
        (0.1, 0.05, 1, 2),  # the loss falls by more than three standard errors
        (0.1, 0.5, 1, 1),  # by less
        (-0.1, 0.05, 1, 1),
        (0.1, 0.05, 2 * PARTS, 1),  # seen for so long, the data confirm no learning
    ],
)
def test_held_out_data_decide_how_a_size_of_few_components_is_rounded(worth, spread, batches, count):
    learner, heads = attention()
    seen = []

    def loss(part):
        second = learner.gates[heads].gates("soft")[1]
        seen.append(round(float(second.detach()), 3))
        return 1.0 - (worth + spread * (-1) ** part) * second * (second > 0.9)

    for step in range(batches):
        learner.set_progress(0.3)
        learner.judge(loss, step)
    assert len(seen) == batches
    assert not bool(learner.tried_at.any()), "long before the commit nothing is tried"
    learner.set_progress(0.35)
    placed = [(float(gate.t().detach()), float(gate.beta)) for gate in learner.gates]
    learner.judge(loss, batches)
    assert [(float(gate.t().detach()), float(gate.beta)) for gate in learner.gates] == placed, "back in their places"
    tried = {*seen[batches + 1 :]}
    assert tried == ({0.0, 1.0} if batches == 1 else set())
    once = len(seen)
    learner.judge(loss, batches + 1)
    assert len(seen) == once + 1, "once, unless the size leaves the count"
    learner.set_progress(0.4)
    assert learner.count()[heads] == count
    assert learner.even[heads] == 1
    assert 0.9 * float(learner.limit) < learner.cost.measured(tuple(learner.count().tolist())) <= float(learner.limit)
    learner.set_progress(0.0)
    assert not bool(learner.tried_at.any())


def test_a_size_that_has_left_its_count_is_tried_again():
    """A trial that found one head may not hold a size that has grown to three since."""
    learner, heads = attention()
    learner.set_progress(0.35)
    parts = []

    def loss(part):  # a second head hurts
        parts.append(part)
        return 1.0 + 0.1 * learner.gates[heads].gates("soft")[1]

    learner.judge(loss, 0)
    assert learner.tried[heads] == 1
    for lead, trials, tried in ((0.6, 0, 1), (0.8, 1, 2), (2.4, 0, -1)):  # sizes of 1.9, 2.1 and 3.2 heads
        learner.lead[heads] = lead
        before = len(parts)
        learner.judge(loss, 1)
        assert len(parts) - before == 1 + 8 * trials
        assert learner.tried[heads] == tried
    learner.set_progress(0.4)
    assert learner.count()[heads] == 3


def test_heads_and_units_of_many_layers_give_way_together():
    """24 layers, a head of 8 units' worth: one head less in nine layers would pay for what all have to give."""
    layers, sizes = 24, [1.64, 13.1]

    def cost(counts):
        return sum(8 * heads + units for heads, units in zip(counts[::2], counts[1::2], strict=True))

    def distance(counts):
        return sum(math.log(n / size) ** 2 for n, size in zip(counts, sizes * layers, strict=True))

    counts = largest(sizes * layers, [range(1, 5), range(1, 33)] * layers, cost, cost, 26 * layers)
    assert cost(counts) == 26 * layers
    units_alone, heads_alone = (2, 10) * layers, (1, 13) * 9 + (2, 13) * 15
    assert cost(units_alone) == cost(heads_alone) == 26 * layers
    assert distance(counts) < 0.9 * min(distance(units_alone), distance(heads_alone))


@pytest.mark.parametrize("seed", range(10))
def test_counts_are_the_nearest_of_those_that_leave_no_room(seed):
    """Against all counts near the sizes; the search is greedy, so it may miss one by a little."""
    draw = random.Random(seed)
    K = [draw.choice([4, 8, 16]) for _ in range(3)]
    weights = [16 / k * draw.uniform(0.5, 3.0) for k in K]

    def cost(counts):
        return sum(weight * n for weight, n in zip(weights, counts, strict=True))

    limit = draw.uniform(0.3, 0.7) * cost(K)
    sizes = [max(0.5, k * limit / cost(K) * math.exp(draw.gauss(0.0, 0.2))) for k in K]
    sizes = [size * limit / cost(sizes) for size in sizes]

    def distance(counts):
        apart = sum(math.log(n / size) ** 2 for n, size in zip(counts, sizes, strict=True))
        return cost(counts) < USED * limit, apart

    def leaves_no_room(counts):
        return (
            cost(counts)
            <= limit
            < min(
                (cost(counts) + weight for n, k, weight in zip(counts, K, weights, strict=True) if n < k),
                default=math.inf,
            )
        )

    best = min(filter(leaves_no_room, itertools.product(*(range(1, k + 1) for k in K))), key=distance)
    found = largest(sizes, [range(1, k + 1) for k in K], cost, cost, limit)
    assert leaves_no_room(found)
    assert distance(found)[0] == distance(best)[0]
    assert distance(found)[1] <= distance(best)[1] + 0.1
