"""Costs at any counts, against models that are actually cut."""

from itertools import product

import pytest
import torch
from structures import STRUCTURES
from torch import nn

import ngn
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from ngn.cost import Cost
from ngn.measuring import multiply_adds


def test_multiply_adds_of_layers_by_hand():
    linear, conv = nn.Linear(7, 5), nn.Conv2d(3, 4, 3, padding=1)
    assert multiply_adds(lambda: linear(torch.zeros(11, 7))) == 11 * 7 * 5
    assert multiply_adds(lambda: conv(torch.zeros(2, 3, 6, 6))) == 2 * (6 * 6) * 4 * (3 * 3 * 3)
    assert multiply_adds(lambda: torch.relu(torch.zeros(3, 3))) == 0
    q = torch.zeros(2, 5, 6, 4)  # batch, heads, samples, size: one product for the scores, one for the values
    assert multiply_adds(lambda: nn.functional.scaled_dot_product_attention(q, q, q)) == 2 * (2 * 5 * 6 * 6 * 4)


class Channels(nn.Module):
    """Two convolutions with learned channels; the second is cut on both sides."""

    def __init__(self, K=6):
        super().__init__()
        self.one, self.two, self.out = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 12, 3), nn.Linear(12, 5)
        cuts = [*ngn.outputs(self.one, 6 // K), *ngn.inputs(self.two, 6 // K)]
        self.first = ngn.OrderedAxis(ngn.CountGate(K, t0=K - 1.0), cuts, dim=1)
        cuts = [*ngn.outputs(self.two, 3), *ngn.inputs(self.out, 3)]
        self.second = ngn.OrderedAxis(ngn.CountGate(4, t0=3.0), cuts, dim=1)

    def forward(self, x):
        h = self.second(torch.relu(self.two(self.first(torch.relu(self.one(x))))))
        return self.out(h.mean((-2, -1)))


X = torch.zeros(2, 3, 8, 8)


@pytest.mark.parametrize("kind", ["parameters", "macs"])
def test_two_sizes_of_one_tensor_are_exact_at_all_counts(kind):
    model = Channels()
    cost = Cost(model, [model.first, model.second], kind, X)
    for n in product(range(1, 7), range(1, 5)):
        value, slope = cost(torch.tensor(n, dtype=torch.float64))
        assert float(value) == pytest.approx(cost.measured(n), rel=1e-12)
        for g in range(2):
            if n[g] > 1:
                below = tuple(m - (i == g) for i, m in enumerate(n))
                assert float(slope[g]) == pytest.approx(cost.measured(n) - cost.measured(below), rel=1e-12)
    assert cost(torch.tensor([[2.0, 3.0], [6.0, 4.0]]))[0].tolist() == [cost.measured((2, 3)), cost.measured((6, 4))]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x):
        return x + self.mlp(x)


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("kind", ["parameters", "macs"])
def test_an_axis_in_a_removed_layer_saves_nothing(kind):
    sizes = {"layers.*.mlp": ngn.Width(4), "layers": ngn.Depth()}
    learner = ngn.learn_sizes(Stack(), sizes, example=torch.ones(2, 4))
    cost = Cost(learner.model, learner.axes, kind, torch.zeros(2, 4))
    for n in product(range(1, 5), range(1, 5), range(1, 5), range(1, 4)):
        value, slope = cost(torch.tensor(n, dtype=torch.float64))
        assert float(value) == pytest.approx(cost.measured(n), rel=1e-12)
        for g, most in enumerate(n):
            if most > 1:
                below = tuple(m - (i == g) for i, m in enumerate(n))
                assert float(slope[g]) == pytest.approx(cost.measured(n) - cost.measured(below), rel=1e-12)


@pytest.mark.parametrize("limit", range(60, 240, 17))
def test_no_component_more_fits(limit):
    sizes = {"layers.*.mlp": ngn.Width(4), "layers": ngn.Depth()}
    budget = ngn.Budget(parameters=limit)
    learner = ngn.learn_sizes(Stack(), sizes, budget=budget, example=torch.ones(2, 4))
    learner.step(0.4)
    learner.step(0.6)
    counts = tuple(learner.count().tolist())
    assert learner.cost.measured(counts) <= limit
    for g, axis in enumerate(learner.axes):
        more = tuple(n + (i == g) for i, n in enumerate(counts))
        assert more[g] > axis.K or learner.cost.measured(more) > limit


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
@pytest.mark.parametrize("seeds", [0, [0, 1]])
def test_what_deployment_leaves_is_what_is_measured(structure, seeds):
    replicas = None if isinstance(seeds, int) else 2
    axis = ngn.OrderedSum(structure.bank(5, seeds), ngn.CountGate(5, t0=1.8, replicas=replicas))
    learner = ngn.CapacityLearner(ParallelModel(axis))
    cost = Cost(learner.model, learner.axes, "parameters")
    left = learner.deploy(None if replicas is None else 1, unsettled="allow")
    assert cost.measured((3,)) == sum(p.numel() for p in left.parameters())
    assert float(cost(torch.tensor([3.0]))[0]) == cost.measured((3,))


def test_milliseconds_are_measured_once_at_powers_of_two():
    axis = ngn.OrderedSum(MLPBank([1, 4, 1], 12, 0), ngn.CountGate(12))
    cost = Cost(axis, [axis], "milliseconds", torch.zeros(8, 1))
    assert sorted(cost._known) == [(1,), (2,), (4,), (8,), (12,)]
    assert cost.measured((4,)) == cost.measured((4,)) > 0
    between = float(cost(torch.tensor([6.0]))[0])
    assert between == pytest.approx((cost.measured((4,)) + cost.measured((8,))) / 2)
