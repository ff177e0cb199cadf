"""A front: members are slices of one model, computed exactly as its masks are, and cut afterwards at any cost."""

import copy

import pytest
import torch
import traceable
from sizable import called
from torch import nn
from traceable import example_of, network

import ngn
from ngn.front import FrontLearner
from ngn.path import even_order, place_of, points, thinned

X = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(3))


class Block(nn.Module):
    """Attention of torch, then a feed-forward layer."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8))

    def forward(self, x):
        h = self.norms[0](x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


class Tied(nn.Module):
    """The embedding of words is the last map, too, and one layer is called twice."""

    def __init__(self):
        super().__init__()
        self.embed, self.up, self.down = nn.Embedding(11, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, words):
        x = self.embed(words)
        for _ in range(2):
            x = x + self.down(self.up(x).relu())
        return x @ self.embed.weight.T


def llama():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6, "num_key_value_heads": 3}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32, num_hidden_layers=2, **sizes))


IDS = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(0))
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 9), nn.Tanh(), nn.Linear(9, 3)), X),
    "attention": (Block, X),
    "tied": (Tied, IDS),
    "gqa": (llama, {"input_ids": IDS}),
    **{
        name: (lambda kind=getattr(traceable, name): network(kind), example_of(getattr(traceable, name)))
        for name in ("ResNet", "MobileNet", "Grouped", "Swin", "Recurrent")
    },
}


def learner_of(name, **front):
    torch.manual_seed(0)
    make, x = MODELS[name]
    share = {"parameters": {"gqa": "55%", "Recurrent": "85%", "tied": "45%", "Swin": "45%"}.get(name, "35%")}
    return ngn.learn_sizes(make(), example=x, budget=ngn.Front(**{"members": 4, **share, **front})), x


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
    rows, costs = learner.points()
    assert all(a <= b for one, other in zip(rows, rows[1:], strict=False) for a, b in zip(one, other, strict=True))
    assert costs == sorted(costs) and list(rows[-1]) == learner.path.amax(0).tolist()
    assert costs[0] <= float(learner.reach.requested[0]) < costs[-1]
    learner.train()
    for step in range(1, 5):
        learner.before_step(step)
        (loss, got), (masked, wanted) = gradients(learner, x, True), gradients(learner, x, False)
        torch.testing.assert_close(loss, masked)
        for key, value in wanted.items():
            torch.testing.assert_close(got[key], value, atol=1e-5, rtol=1e-4, msg=key)
        closed = [axis.name for count, axis in zip(learner.count(), learner.axes, strict=True) if count < axis.K]
        plan = learner.slices._plan()
        assert bool(closed) == bool(plan.tensors) == (learner.drawn(step) < 3) and len(plan.sizes) >= len(closed)
    learner.eval()
    for budget in (costs[0], costs[20], "90%", "100%"):
        small = learner.deploy(budget, example=x, unsettled="allow")
        with learner.member(budget):
            assert learner.cost.measured(tuple(learner.count().tolist())) <= place_cost(budget, costs)
            for part, other in zip(called(learner, x), called(small, x), strict=True):
                torch.testing.assert_close(part, other, atol=1e-5, rtol=1e-4)


def place_cost(budget, costs):
    return budget if isinstance(budget, float) else float(budget[:-1]) / 100 * costs[-1]


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
    assert shapes == [(few, few, few)] * 2 and few < 20
    assert model[0].weight is weight and model[0].out_features == 20
    with torch.no_grad():
        learner.eval()(x)
    assert shapes[-1] == (20, 20, 20), "in eval mode it is the whole model"
    again = copy.deepcopy(learner.train())
    again(x)
    assert again.model[0].weight is not weight and len(again.model[0].weight) == 20
    handle = model[4].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(x)
    handle.remove()
    assert model[0].weight is weight and not learner.slices._taken
    stop = model[4].register_forward_pre_hook(interrupt)  # torch calls no hook after it
    with pytest.raises(KeyboardInterrupt):
        model(x)
    stop.remove()
    assert len(model.state_dict()["0.weight"]) == 20 and model[0].weight is weight


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
    assert model[0][0].weight.grad is not None and learner.slices._again


def test_steps_of_a_block_draw_every_member_once_and_by_the_seed():
    learner, _ = learner_of("mlp", members=5)
    drawn = [[learner.drawn(step) for step in range(1 + 5 * n, 6 + 5 * n)] for n in range(6)]
    assert all(sorted(block) == [0, 1, 2, 3, 4] for block in drawn) and len({*map(tuple, drawn)}) > 3
    other = FrontLearner(copy.deepcopy(learner.model), ngn.Front(parameters="35%", members=5, seed=1))
    assert [other.drawn(step) for step in range(1, 31)] != sum(drawn, [])
    ends = FrontLearner(copy.deepcopy(learner.model), ngn.Front(parameters="35%", members=4, ends=1))
    assert sorted(ends.drawn(step) for step in range(1, 7)) == [0, 0, 1, 2, 3, 3]


def test_an_even_path_takes_the_same_part_of_all_sizes():
    allowed = [[*range(1, 9)], [*range(1, 9)], [1, 2]]

    class Total:
        kind, measured, estimate = "parameters", staticmethod(sum), staticmethod(sum)

    found = points(even_order(allowed, [8, 8, 2]), allowed, Total(), [3, 9, 10, 18])
    assert found == [(1, 1, 1), (4, 4, 1), (5, 4, 1), (8, 8, 2)]
    assert [len(counts) for counts in thinned([range(100), [1], range(4)], 12)] == [10, 1, 4]
    with pytest.raises(ValueError, match=r"outside of the front: it goes from 3 \(16.7%\) to 18"):
        place_of("10%", [3.0, 9.0, 18.0], "parameters")
    with pytest.raises(ValueError, match="outside"):
        place_of(19, [3.0, 18.0], "parameters")
    with pytest.raises(TypeError, match="as in '40%'"):
        place_of(None, [3.0, 18.0], "parameters")


def trained(name, steps=6, **front):
    """A learner after some steps in a loop of one's own."""
    learner, x = learner_of(name, **front)
    learner.train()
    optimizer = torch.optim.SGD(learner.parameters(), 0.05)
    for step in range(steps):
        sum(part.float().square().mean() for part in called(learner, x)).backward()
        optimizer.step()
        learner.step((step + 1) / steps, optimizer)
        optimizer.zero_grad()
    return learner.eval(), x


LOAD = """
import sys, torch, ngn
from test_front import MODELS, called
make, x = MODELS[sys.argv[1]]
torch.manual_seed(9)
small = ngn.load(make(), sys.argv[2], budget=sys.argv[3])
torch.save([small.state_dict(), called(small, x)], sys.argv[4])
assert "ngn.tracing.run" not in sys.modules
"""


@pytest.mark.parametrize("name", ["ResNet", "attention", "gqa"])
def test_one_file_holds_all_members(name, tmp_path):
    learner, x = trained(name)
    ngn.save(learner, tmp_path / "family")
    make = MODELS[name][0]
    for budget in ("60%", "77%", "100%", learner.points()[1][3]):
        small, loaded = learner.deploy(budget), ngn.load(make(), tmp_path / "family", budget=budget)
        assert loaded.state_dict().keys() == small.state_dict().keys()
        assert all(torch.equal(value, small.state_dict()[key]) for key, value in loaded.state_dict().items())
        assert str(loaded) == str(small)
        for part, other in zip(called(loaded, x), called(small, x), strict=True):
            assert torch.equal(part, other)
        ngn.save(loaded, tmp_path / "small")
        assert str(ngn.load(make(), tmp_path / "small")) == str(loaded)
    assert str(ngn.load(make(), tmp_path / "family")) == str(make())
    with pytest.raises(ValueError, match="outside of the front"):
        ngn.load(make(), tmp_path / "family", budget="10%")
    with pytest.raises(ValueError, match="no front"):
        ngn.load(make(), tmp_path / "small", budget="60%")
