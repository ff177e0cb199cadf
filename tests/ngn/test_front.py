"""A front: members are slices of one model, computed exactly as its masks are, and cut afterwards at any cost."""

import copy
import functools

import pytest
import torch
from fronts import MODELS, X, learner_of
from sizable import called
from stopping import resumed
from torch import nn

import ngn
from ngn.front import FrontLearner
from ngn.front.path import even_order, place_of, points, thinned
from ngn.losses import Supervised
from ngn.train.batches import HeldOutParts, ShuffledBatches, Split
from ngn.train.trainer import Trainer


def gradients(learner, x, sliced):
    """Loss and gradients of a pass in training."""
    learner.slices.used, learner.slices._watched = sliced, True
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    learner.zero_grad()
    loss = sum(part.float().square().mean() for part in called(learner.model, x))
    loss.backward()
    found = {name: p.grad for name, p in learner.named_parameters()}
    learner.load_state_dict(before)
    return loss, found


@pytest.mark.parametrize("name", MODELS)
def test_slices_compute_what_masks_do_and_deployed_members_too(name):
    learner, x = learner_of(name)
    costs = learner.costs.tolist()
    assert bool((learner.path.diff(dim=0) >= 0).all())
    assert all(cost <= limit for cost, limit in zip(costs, learner.limits, strict=True))
    assert costs[-1] == learner.cost.full
    learner.train()
    for step in range(1, 5):
        learner.before_step(step)
        (loss, got), (masked, wanted) = gradients(learner, x, True), gradients(learner, x, False)
        torch.testing.assert_close(loss, masked)
        for key, value in wanted.items():
            torch.testing.assert_close(got[key], value, atol=1e-5, rtol=1e-4, msg=key)
        assert bool(learner.slices._plan().tensors) == (learner.drawn(step) < 3)
    learner.eval()
    for budget in (costs[0], costs[20], "90%", "100%"):
        small = learner.deploy(budget, example=x, unsettled="allow")
        limit = budget if isinstance(budget, float) else float(budget[:-1]) / 100 * costs[-1]
        assert sum(p.numel() for p in small.parameters()) <= limit
        with learner.member(budget):
            for part, other in zip(called(learner, x), called(small, x), strict=True):
                torch.testing.assert_close(part, other, atol=1e-5, rtol=1e-4)


def test_a_pass_of_a_member_has_its_shapes_and_leaves_the_whole_model():
    learner, x = learner_of("mlp")
    learner.train().before_step(None)
    learner(x)  # the first pass
    shapes = []
    model, weight = learner.model, learner.model[0].weight
    model[0].register_forward_hook(lambda m, args, out: shapes.append((out.shape[-1], m.out_features, len(m.weight))))
    step = next(step for step in range(1, 5) if learner.drawn(step) == 0)
    learner.before_step(step)
    few = int(learner.count()[0])
    model(x)
    learner(x)
    assert shapes == [(few, few, few)] * 2
    assert few < 20
    assert model[0].weight is weight
    assert model[0].out_features == 20
    with torch.no_grad():
        learner.eval()(x)
    assert shapes[-1] == (20, 20, 20), "in eval mode it is the whole model"
    again = copy.deepcopy(learner.train())
    again(x)
    assert again.model[0].weight is not weight
    assert len(again.model[0].weight) == 20
    handle = model[4].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(x)
    handle.remove()
    assert model[0].weight is weight
    assert not learner.slices._taken
    stop = model[4].register_forward_pre_hook(interrupt)  # torch calls no hook after it
    with pytest.raises(KeyboardInterrupt):
        model(x)
    stop.remove()
    assert len(model.state_dict()["0.weight"]) == 20
    assert model[0].weight is weight


def interrupt(*_):
    raise KeyboardInterrupt


def test_parts_that_are_computed_again_in_the_backward_pass_are_masked():
    class Again(nn.Sequential):
        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=False)

    model = nn.Sequential(Again(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)), nn.Linear(8, 2))
    learner = ngn.learn_sizes(model, example=X, budget=ngn.Front(parameters="40%", members=3)).train()
    for step in (1, 2, 3):
        learner.before_step(step)
        learner(X).square().mean().backward()
    assert model[0][0].weight.grad is not None
    assert learner.slices._again


def test_steps_of_a_block_draw_every_member_once_and_by_the_seed():
    learner, _ = learner_of("mlp", members=5)
    drawn = [[learner.drawn(step) for step in range(1 + 5 * n, 6 + 5 * n)] for n in range(6)]
    assert all(sorted(block) == [0, 1, 2, 3, 4] for block in drawn)
    assert len({*map(tuple, drawn)}) > 3
    other = FrontLearner(copy.deepcopy(learner.model), ngn.Front(parameters="35%", members=5, seed=1))
    assert [other.drawn(step) for step in range(1, 31)] != [number for block in drawn for number in block]
    ends = FrontLearner(copy.deepcopy(learner.model), ngn.Front(parameters="35%", members=4, ends=1))
    assert sorted(ends.drawn(step) for step in range(1, 7)) == [0, 0, 1, 2, 3, 3]


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


def test_each_member_keeps_statistics_of_its_own():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 6), nn.BatchNorm1d(6))
    x = torch.randn(64, 8)
    learner = ngn.learn_sizes(model, example=x, budget=ngn.Front(parameters="40%", members=3)).train()
    for step in range(1, 91):
        learner.before_step(step)
        model(x)
    assert learner.statistics.batches.tolist() == [[30, 30], [30, 30]]
    assert int(model[1].num_batches_tracked) == 30
    for share in ("40%", "70%", "100%"):
        small = learner.deploy(share, unsettled="allow", example=x)
        with torch.no_grad():
            inner = small[3](small[2](small[1](small[0](x))))
        torch.testing.assert_close(small[4].running_mean, inner.mean(0), atol=0.05, rtol=0.05)
        assert torch.allclose(small[4].running_mean, model[4].running_mean, atol=0.05) == (share == "100%")
    between = learner.deploy("55%", unsettled="allow")
    assert torch.equal(between[4].running_mean, learner.deploy("70%", unsettled="allow")[4].running_mean)
    again = learner.deploy("55%", calibration=[[x, "a target"]], unsettled="allow")
    with torch.no_grad():
        torch.testing.assert_close(again(x).mean(0), again[4].bias, atol=0.05, rtol=0)
    assert again[1].momentum == 0.1
    assert not again[1].training
    with pytest.raises(ValueError, match="no batches"):
        learner.deploy("55%", calibration=[], unsettled="allow")


def test_wrong_fronts_are_refused():
    with pytest.raises(ValueError, match="a front takes one of parameters, macs and milliseconds"):
        ngn.Front()
    with pytest.raises(ValueError, match="2 members or more"):
        ngn.Front(macs="25%", members=1)
    model = MODELS["mlp"][0]()
    with pytest.raises(ValueError, match="is too small: the smallest model has"):
        ngn.learn_sizes(model, example=X, budget=ngn.Front(parameters="1%"))
    with pytest.raises(ValueError, match="no gates to learn: leave lambda0= out"):
        ngn.learn_sizes(model, example=X, budget=ngn.Front(parameters="40%"), lambda0=1.0)
    learner = ngn.learn_sizes(model, example=X, at_least=4, at_most={"0": 10}, budget=ngn.Front(parameters="60%"))
    assert learner.path[0].min() >= 4
    assert learner.path[-1].tolist() == [10, 9]
    with pytest.warns(UserWarning, match=r"learner.step\(progress\) was never called"):
        learner.deploy("100%")
