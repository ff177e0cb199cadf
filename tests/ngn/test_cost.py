"""Costs at any counts, against models that are actually cut."""

import random
from itertools import count, product

import pytest
import torch
from sizable import Layers, Plus, chain
from structures import STRUCTURES
from torch import nn

import ngn
from experiments.models.parallel import ParallelModel
from ngn.budget.cost import Cost
from ngn.measuring import multiply_adds

B, L, D = 2, 7, 16
MIXED = B * L * (3 * D * D + D * D) + 2 * B * L * L * D
"""An attention layer: four maps of D, scores and values."""


class Queries(nn.Module):
    """Five learned queries, a view of which enters a layer, as in DETR and Perceiver."""

    def __init__(self):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(5, D))
        self.up, self.side, self.out = nn.Linear(D, 32), nn.Linear(D, 32), nn.Linear(32, 3)

    def forward(self, x):
        h = self.up(self.queries[None].expand(len(x), -1, -1)) + self.side(x.mean(1, keepdim=True))
        return {"logits": self.out(h.relu()), "aux": None}


@pytest.mark.parametrize(
    ("module", "shape", "wanted"),
    [
        (nn.LSTM(D, 6), (B, L, D), B * L * 24 * (D + 6)),
        (nn.LSTM(D, 6, num_layers=2, bidirectional=True), (B, L, D), B * L * 2 * 24 * (D + 6 + 12 + 6)),
        (nn.GRU(D, 6), (B, L, D), B * L * 18 * (D + 6)),
        (nn.Bilinear(D, D, 3), None, B * 3 * D * D),
        (nn.Linear(D, 5), (D,), 5 * D),
        (nn.Conv2d(3, 4, 3, padding=1), (B, 3, 6, 6), B * (6 * 6) * 4 * (3 * 3 * 3)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (B, 4, 5, 5), B * 25 * 4 * 3 * 9),
        (nn.MultiheadAttention(D, 4, batch_first=True), None, MIXED),
        (nn.TransformerEncoderLayer(D, 4, 32, batch_first=True), (B, L, D), MIXED + B * L * 2 * D * 32),
        (Queries(), (B, L, D), B * (5 * D * 32 + D * 32 + 5 * 32 * 3)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_multiply_adds_of_what_one_operation_computes(module, shape, wanted):
    """Operations for whole layers, views of parameters, and outputs that are no tensors."""
    inputs = [torch.randn(shape)] if shape else [torch.randn(B, L, D)] * 3
    inputs = inputs if not isinstance(module, nn.Bilinear) else [torch.randn(B, D)] * 2
    assert multiply_adds(lambda: module.eval()(*inputs)) == wanted
    assert torch.backends.mha.get_fastpath_enabled()


def test_multiply_adds_of_vectors_and_branches():
    x, y = torch.randn(4, 8), torch.randn(8)
    q = torch.zeros(2, 5, 6, 4)  # batch, heads, samples, size: one product for the scores, one for the values
    assert multiply_adds(lambda: nn.functional.scaled_dot_product_attention(q, q, q)) == 2 * (2 * 5 * 6 * 6 * 4)
    assert multiply_adds(lambda: torch.relu(x)) == 0
    assert multiply_adds(lambda: (x @ y, y @ y, torch.einsum("ik,jk->ij", x, x))) == 4 * 8 + 8 + 4 * 4 * 8
    with torch.inference_mode():
        frozen = torch.randn(4, 8)
    assert multiply_adds(lambda: nn.functional.linear(frozen, x)) == 4 * 4 * 8
    assert multiply_adds(lambda: torch.func.vmap(nn.Linear(8, 3))(x)) == 4 * 8 * 3
    experts, ends = torch.randn(2, 8, 16).bfloat16(), torch.tensor([1, 4], dtype=torch.int32)
    assert multiply_adds(lambda: torch._grouped_mm(x.bfloat16(), experts, offs=ends)) == 4 * 8 * 16
    held = torch.nested.nested_tensor([x, x[:3]], layout=torch.jagged)
    assert multiply_adds(lambda: nn.Linear(8, 3)(held)) == 7 * 8 * 3


def test_one_example_is_enough_for_a_budget_of_multiply_adds():
    x = torch.randn(B, L, D)
    learner = ngn.learn_sizes(Queries(), example=x, budget=ngn.Budget(macs="50%"))
    assert learner.cost.full == B * (5 * D * 32 + D * 32 + 5 * 32 * 3)
    other = ngn.learn_sizes(Queries(), example=x, budget=ngn.Budget(macs="50%", example=x[:1]))
    assert other.cost.full == learner.cost.full / B


def stack():
    return Layers(*(Plus(chain(4, 8, 4)) for _ in range(3)))


@pytest.mark.parametrize("kind", ["parameters", "macs"])
def test_an_axis_in_a_removed_layer_saves_nothing(kind):
    sizes = {"layers.*.mlp": ngn.Width(4), "layers": ngn.Depth()}
    learner = ngn.learn_sizes(stack(), sizes, example=torch.ones(2, 4))
    cost = Cost(learner.model, learner.axes, kind, torch.zeros(2, 4))
    for n in product(range(1, 5), range(1, 5), range(1, 5), range(1, 4)):
        value, slope = cost(torch.tensor(n, dtype=torch.float64))
        assert float(value) == pytest.approx(cost.measured(n), rel=1e-12)
        for g, most in enumerate(n):
            if most > 1:
                below = tuple(m - (i == g) for i, m in enumerate(n))
                assert float(slope[g]) == pytest.approx(cost.measured(n) - cost.measured(below), rel=1e-12)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
@pytest.mark.parametrize("seeds", [0, [0, 1]])
def test_what_deployment_leaves_is_what_is_measured(structure, seeds):
    replicas = None if isinstance(seeds, int) else 2
    axis = ngn.OrderedSum(structure.bank(5, seeds), ngn.CountGate(5, t0=1.8, replicas=replicas))
    learner = ngn.Learner(ParallelModel(axis))
    cost = Cost(learner.model, learner.axes, "parameters")
    left = learner.deploy(None if replicas is None else 1, unsettled="allow")
    assert cost.measured((3,)) == sum(p.numel() for p in left.parameters())
    assert float(cost(torch.tensor([3.0]))[0]) == cost.measured((3,))


class Clock:
    """A clock that only models move: other programs slow them down for a while, or delay single passes."""

    def __init__(self, seed=0, delayed=0.0, busy=(1.0,)):
        self.now, self.left, self.slower = 0.0, 0.0, 1.0
        self.random, self.delayed, self.busy = random.Random(seed), delayed, busy

    def __call__(self):
        return self.now

    def __deepcopy__(self, memo):
        return self

    def passes(self, seconds):
        if self.left <= 0:
            self.slower, self.left = self.random.choice(self.busy), self.random.uniform(0.0, 0.05)
        delay = self.random.expovariate(0.5 / seconds) if self.random.random() < self.delayed else 0.0
        self.now += seconds * self.slower + delay
        self.left -= seconds * self.slower


class Timed(nn.Module):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, n), nn.GELU(), nn.Linear(n, 4)) for n in (48, 32))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        self.clock.passes(1e-4 + 1e-7 * self.blocks[0][0].out_features * self.blocks[1][0].out_features)  # no sum
        return x


def chosen(monkeypatch, clock, **limit):
    """The counts of the even allocation within a budget, by this clock."""
    monkeypatch.setattr("ngn.measuring.perf_counter", count(step=0.05).__next__)  # on the wall: other programs move it
    monkeypatch.setattr("ngn.measuring.thread_time", clock)
    monkeypatch.setattr("ngn.measuring.PASSES", (9, 20))
    sizes = {"blocks.*": ngn.Width(16)}
    learner = ngn.learn_sizes(Timed(clock), sizes, example=torch.ones(1, 4), budget=ngn.Budget(**limit))
    learner.sizes.copy_(learner.scaled(learner.limit))
    return learner, learner.final_counts()


def test_what_other_programs_do_does_not_choose_the_sizes(monkeypatch):
    quiet, wanted = chosen(monkeypatch, Clock(), milliseconds="60%")
    assert quiet.cost.full == pytest.approx(0.1 + 1e-4 * 48 * 32)
    assert 0.58 < quiet.cost.measured(wanted[0]) / quiet.cost.full <= 0.6
    for seed in range(2):
        clock = Clock(seed, delayed=0.7, busy=(1.0, 1.0, 1.7, 2.5))
        busy, counts = chosen(monkeypatch, clock, milliseconds="60%")
        assert counts == wanted
        tables = busy.cost.saved.where(busy.cost.saved.isfinite(), torch.zeros(()))
        assert bool((tables.diff(dim=-1) >= 0).all() and (tables <= 0).all()), "a smaller model is never slower"


def test_a_time_is_compared_no_closer_than_it_was_measured(monkeypatch):
    """A training that goes on in another process measures again."""
    learner, _ = chosen(monkeypatch, Clock(), milliseconds="60%")
    learner.set_progress(1.0)
    spent = learner.cost.measured(tuple(learner.count().tolist()))
    learner.limit.fill_(0.985 * spent)
    learner.deploy(unsettled="allow")
    learner.limit.fill_(0.9 * spent)
    with pytest.raises(ValueError, match="milliseconds are above the budget of"):
        learner.deploy(unsettled="allow")


def test_uncertain_times_are_called_so(monkeypatch):
    clock = Clock(delayed=1.0)  # no pass is ever undisturbed
    with pytest.warns(UserWarning, match=r"Sizes under this budget are uncertain. Times .* differ by up to \d+%"):
        chosen(monkeypatch, clock, milliseconds="80%")
    with pytest.raises(ValueError, match=r"too small: the smallest model has .*stop other programs and try again"):
        chosen(monkeypatch, clock, milliseconds="5%")
