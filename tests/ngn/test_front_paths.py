"""The sizes of a front lie on one path: even, or by scores where held-out data of a known task prefer it."""

import copy
import functools

import pytest
import torch
from stopping import resumed
from torch import nn

import ngn
from ngn.budget.rounding import points, thinned
from ngn.front.path import even_order, place_of
from ngn.losses import Supervised
from ngn.train.batches import HeldOutParts, ShuffledBatches, Split
from ngn.train.trainer import Trainer


def test_an_even_path_takes_the_same_part_of_all_sizes():
    allowed = [[*range(1, 9)], [*range(1, 9)], [1, 2]]

    class Total:
        kind, measured, estimate = "parameters", staticmethod(sum), staticmethod(sum)

    found = points(even_order(allowed, [8, 8, 2]), allowed, Total(), [3, 9, 10, 18])
    assert found[1] == [3, 9, 10, 18]
    assert found[0] == [(1, 1, 1), (4, 4, 1), (5, 4, 1), (8, 8, 2)]
    assert [len(counts) for counts in thinned([range(100), [1], range(4)], 12)] == [10, 1, 4]
    with pytest.raises(ValueError, match=r"outside of the front: it goes from 3 \(16.7%\) to 18"):
        place_of("10%", [3.0, 9.0, 18.0], "parameters")
    with pytest.raises(ValueError, match="outside"):
        place_of(19, [3.0, 18.0], "parameters")
    with pytest.raises(TypeError, match="as in '40%'"):
        place_of(None, [3.0, 18.0], "parameters")


def test_members_use_their_limits_where_heads_are_coarse(monkeypatch):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 5, 32)

    def unused():
        front = ngn.Front(parameters="25%", members=7)
        learner = ngn.learn_sizes(copy.deepcopy(model), example=x, budget=front)
        assert bool((learner.path.diff(dim=0) >= 0).all())
        return max(1 - float(learner.costs[place]) / learner.limits[place] for place in learner.places)

    assert unused() < 0.02
    monkeypatch.setattr("ngn.front.UNUSED", 1.0)
    assert unused() > 0.04


class Branches(nn.Module):
    """Two branches: one sees what the target is made of, one sees noise."""

    def __init__(self, units=24):
        super().__init__()
        branch = [nn.Sequential(nn.Linear(6, units), nn.Tanh(), nn.Linear(units, 1)) for _ in range(2)]
        self.signal, self.noise = branch

    def forward(self, x):
        return self.signal(x[:, :6]) + self.noise(x[:, 6:])


def samples(shuffled=False, seed=1):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(3000, 12, generator=g)
    y = (1.5 * x[:, :6]).sin().sum(1, keepdim=True)
    return x, y[torch.randperm(len(y), generator=g)] if shuffled else y


@functools.cache
def branches(shuffled=False, held=True, steps=200, seed=1, **settings):
    """A front of branches after a training, and its losses on other data."""
    x, y = samples(shuffled, seed)
    torch.manual_seed(seed)
    front = ngn.Front(parameters="25%", members=4, seed=seed)
    learner = ngn.learn_sizes(Branches(), example=x[:4], budget=front)
    ngn.fit(
        learner, x[:1024], y[:1024], nn.functional.mse_loss, ngn.TrainPlan(steps=steps, lr=2e-2), batch=128,
        held_out=(x[1024:1536], y[1024:1536]) if held else None, progress="never", **settings,
    )  # fmt: skip
    return learner, learner.front(lambda model: float(nn.functional.mse_loss(model(x[1536:]), y[1536:])))


def test_sizes_part_where_held_out_data_say_so_and_never_on_shuffled_targets():
    even = branches(held=False, steps=0)[0].path
    learner, table = branches()
    signal, noise = table.rows[0]["sizes"].values()
    assert signal > 2 * noise
    assert learner.asked == 4
    worse = branches(held=False)[1]
    assert table.rows[0]["score"] < worse.rows[0]["score"] - 0.05
    assert all(torch.equal(branches(shuffled=True, seed=seed)[0].path, even) for seed in (1, 2))
    costs = learner.costs.tolist()
    assert costs == sorted(costs)
    assert all(a <= b for a, b in zip(costs, learner.limits, strict=True))
    assert bool((learner.path.diff(dim=0) >= 0).all())


def test_a_trained_network_says_at_once_and_not_to_targets_that_it_does_not_know():
    x, y = samples()
    model = Branches()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(100):
        nn.functional.mse_loss(model(x[:1024]), y[:1024]).backward()
        optimizer.step()
        optimizer.zero_grad()
    for shuffled in (False, True):
        targets = samples(shuffled)[1]
        parts = [(x[n : n + 64], targets[n : n + 64]) for n in range(0, 2048, 64)]
        learner = ngn.learn_sizes(copy.deepcopy(model), example=x[:4], budget=ngn.Front(parameters="25%", members=4))
        even = learner.path.clone()
        assert learner.allocate(parts[:16], parts[16:], nn.functional.mse_loss) == (not shuffled)
        assert torch.equal(learner.path, even) == shuffled
        assert all(p.grad is None for p in learner.parameters())


def test_a_front_is_ahead_of_its_largest_network_cut_without_healing():
    learner, table = branches()
    dense = copy.deepcopy(learner)
    x, y = samples()
    torch.manual_seed(1)
    dense.model.load_state_dict(Branches().state_dict(), strict=False)
    optimizer = torch.optim.AdamW(dense.parameters(), lr=2e-2)
    dense.train().before_step(None)  # the same data and steps, but always the whole model
    for step in range(200):
        rows = slice(step % 8 * 128, (step % 8 + 1) * 128)
        nn.functional.mse_loss(dense(x[:1024][rows]), y[:1024][rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
    cut = dense.front(lambda model: float(nn.functional.mse_loss(model(x[1536:]), y[1536:])))
    assert cut.rows[-1]["score"] < 1.0
    assert all(row["sizes"] == other["sizes"] for row, other in zip(table.rows, cut.rows, strict=True))
    ahead = [other["score"] - row["score"] for row, other in zip(table.rows, cut.rows, strict=True)]
    assert ahead[0] > 0.1
    assert ahead[1] > 0.05
    assert ahead[2] > -0.05


@pytest.mark.parametrize("stop", [3, 30])
def test_a_resumed_training_is_the_same_to_the_last_bit(stop, tmp_path):
    x, y = samples()
    held = HeldOutParts(Split(x[1024:1536], y[1024:1536]), 16)

    def trainer(**settings):
        torch.manual_seed(1)
        learner = ngn.learn_sizes(Branches(), example=x[:4], budget=ngn.Front(parameters="25%", members=4))
        batches = ShuffledBatches((x[:1024], y[:1024]), 1024, 128)
        loss = Supervised(nn.functional.mse_loss)
        plan = ngn.TrainPlan(steps=40, lr=2e-2)
        return Trainer(learner, batches, loss, plan, held_out=held, progress="never", **settings)

    torch.manual_seed(2)
    learner, _ = resumed(trainer, tmp_path, stop)
    assert learner.asked > 0
