"""A front: members are slices of one model, computed exactly as its masks are, and cut afterwards at any cost."""

import copy

import pytest
import torch
import torch.nn.functional as F
from fronts import IDS, MODELS, X, learner_of, trained
from sizable import called
from torch import nn

import ngn
from ngn.front import FrontLearner


def gradients(learner, x, sliced):
    """Loss and gradients of a pass in training."""
    learner.slices._again, learner.slices._watched = not sliced, True
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
        assert bool(learner.slices._plan()[0]) == (learner.drawn(step) < 3)
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


class Narrowed(nn.Module):  # layer norm, and an RMS norm of the program's own, read one residual stream
    def __init__(self, how=""):
        super().__init__()
        self.how = how
        self.embed, self.norm, self.scale = nn.Embedding(11, 16), nn.LayerNorm(16), nn.Parameter(torch.rand(16))
        self.up, self.down, self.head = nn.Linear(16, 24), nn.Linear(24, 16), nn.Linear(16, 5)

    def forward(self, words):
        x = self.embed(words)
        x = x + self.down(self.up(self.norm(x)).relu())
        x = torch.cat([x[..., :8] * 5, x[..., 8:]], -1) if self.how == "typed" else x
        x = x + torch.zeros(16) if self.how == "trained" and self.training else x
        return self.head(x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.scale)


def test_norms_of_a_narrow_stream_are_over_what_is_left(monkeypatch):
    monkeypatch.setitem(MODELS, "narrow", (Narrowed, X := torch.randint(0, 11, (3, 7))))
    learner, _ = trained("narrow", residual=True)
    whole, small = learner.model, learner.deploy("50%", example=X, unsettled="allow")
    assert (learner.names, learner_of("narrow")[0].names) == (["embed", "up"], ["up"])
    with learner.member("50%"):
        k, u = (axis.ranks.argsort(stable=True)[: int(axis.capacity.left)].sort().values for axis in learner.axes)
        assert torch.equal(learner(X), small(X))
    assert (len(k), len(u)) == (len(small.scale), small.up.out_features) == (10, 16)
    h = whole.embed.weight[X][..., k]
    inner = F.layer_norm(h, (len(k),), whole.norm.weight[k], whole.norm.bias[k])
    inner = F.linear(inner, whole.up.weight[u][:, k], whole.up.bias[u]).relu()
    h = h + F.linear(inner, whole.down.weight[k][:, u], whole.down.bias[k])
    h = h / (h.square().mean(-1, keepdim=True) + 1e-6).sqrt() * whole.scale[k]
    torch.testing.assert_close(small(X), F.linear(h, whole.head.weight[:, k], whole.head.bias))
    learner.train().before_step(next(step for step in range(1, 5) if learner.drawn(step) == 0))
    learner.slices._again = True
    with pytest.raises(ValueError, match="embed: norms run over this size, so a smaller one needs slices"):
        learner(X)


def test_narrow_streams_that_are_another_function_stay_whole():
    for how, reason in {"typed": "its parts have other lengths", "trained": "it fails in train mode"}.items():
        with pytest.warns(UserWarning, match="residual=True narrows nothing"):
            learner = ngn.learn_sizes(Narrowed(how), example=IDS, budget=ngn.Front(parameters="60%", residual=True))
        assert any(reason in fixed.reason for fixed in learner.found.fixed)
    front = ngn.Front(parameters="40%", residual=True)
    learner = ngn.learn_sizes(Narrowed(), example=IDS, budget=front, at_most={"embed": 12})
    with learner.train().member("60%"):  # before any training
        assert learner(IDS).requires_grad
    model = nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoderLayer(16, 4, 24, batch_first=True), nn.Linear(16, 3))
    learner = ngn.learn_sizes(model, example=X, budget=front)
    with learner.eval().member("90%"):
        torch.testing.assert_close(learner(X), learner.deploy("90%", unsettled="allow")(X))  # with all heads


def test_wrong_fronts_are_refused():
    with pytest.raises(ValueError, match="a front takes one of parameters, macs and milliseconds"):
        ngn.Front()
    with pytest.raises(ValueError, match="2 members or more"):
        ngn.Front(macs="25%", members=1)
    model = MODELS["mlp"][0]()
    with pytest.raises(ValueError, match="is too small: the smallest model has"):
        ngn.learn_sizes(model, example=X, budget=ngn.Front(parameters="1%"))
    with pytest.raises(ValueError, match="residual= finds sizes that find_sizes does not"):
        ngn.learn_sizes(model, ngn.find_sizes(model, X), budget=ngn.Front(parameters="40%", residual=True))
    with pytest.raises(ValueError, match="no gates to learn: leave lambda0= out"):
        ngn.learn_sizes(model, example=X, budget=ngn.Front(parameters="40%"), lambda0=1.0)
    learner = ngn.learn_sizes(model, example=X, at_least=4, at_most={"0": 10}, budget=ngn.Front(parameters="60%"))
    assert learner.path[0].min() >= 4
    assert learner.path[-1].tolist() == [10, 9]
    with pytest.warns(UserWarning, match=r"learner.step\(progress\) was never called"):
        learner.deploy("100%")


def test_a_table_and_a_picture_of_the_members(tmp_path):
    learner, x = learner_of("mlp")
    lines = str(table := learner.front(lambda model: model(x).std())).splitlines()
    assert lines[0].split() == ["parameters", "share", "score", "0", "2"]
    assert len(lines) == 5
    assert "100.0%" in lines[4]
    assert [row["parameters"] for row in table.rows] == [float(line.split()[0].replace(",", "")) for line in lines[1:]]
    with pytest.raises(ValueError, match=r"learner.front\(score\)"):
        learner.front().save(tmp_path / "front.svg")
    pytest.importorskip("matplotlib")
    table.save(tmp_path / "front.svg")
    assert "<svg" in (tmp_path / "front.svg").read_text()


def test_a_trainer_of_transformers_trains_it_with_parts_computed_again(tmp_path):
    transformers = pytest.importorskip("transformers")
    from ngn.integrations.transformers import SizesCallback

    learner, x = learner_of("gqa", members=3)
    data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 11, (16, 7))]
    settings = {"max_steps": 4, "per_device_train_batch_size": 4, "report_to": [], "save_strategy": "no"}
    settings |= {"use_cpu": True, "disable_tqdm": True, "activation_checkpointing": True}
    arguments = transformers.TrainingArguments(str(tmp_path), **settings)
    callback = SizesCallback(learner)
    transformers.Trainer(learner.model, arguments, train_dataset=data, callbacks=[callback]).train()
    assert learner._steps == 4
    assert learner.slices._again
    for share in ("60%", "100%"):
        learner.deploy(share, example=x)
