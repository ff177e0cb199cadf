"""Learned terms next to frozen maps and adapters after frozen layers: types, memory, files, and empty ones."""

import pytest
import torch
from torch import nn

import ngn
from ngn.components.low_rank import LowRankLinear, attach_low_rank, merge
from ngn.cut.truncation import deploy
from ngn.methods.fixed import FixedCount
from ngn.streams import generator

K = 4


class Block(nn.Module):
    """A layer like those of pretrained models: it returns a tuple, and the model reads its attributes."""

    kind = "full"

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.q, self.v = nn.Linear(6, 6, dtype=dtype), nn.Linear(6, 4, bias=False, dtype=dtype)
        self.out = nn.Linear(4, 6, dtype=dtype)

    def forward(self, x, scale=1.0):
        return x + scale * self.out(torch.tanh(self.q(x)[..., :4]) * self.v(x)), "cache"


class Backbone(nn.Module):
    def __init__(self, dtype=torch.float32, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(Block(dtype) for _ in range(layers))
        self.requires_grad_(False)

    def forward(self, x):
        for layer in self.layers:
            assert layer.kind == "full"
            x, cache = layer(x, scale=0.5)
            assert cache == "cache"
        return x


TARGETS = [f"layers.{i}.{kind}" for i in range(2) for kind in "qv"]


def gate(t0):
    return ngn.CountGate(K, t0=t0, delta=-0.5)


def adapted(counts, dtype=torch.float32, device="cpu"):
    """A backbone with terms at the given ``counts`` and random last maps."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Backbone(dtype).to(device)
        attach_low_rank(model, TARGETS, lambda number: gate(counts[number]), seed=3)
        for name, p in model.named_parameters():
            if name.endswith("up"):
                nn.init.normal_(p)
    return model


COUNTS = [2.1, 0.1, 0.2, 3.9]
X = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(2))


def test_at_the_start_it_is_the_frozen_model_whose_modules_stay_the_objects():
    model, x = Backbone(), X
    wanted, modules = model(x), {*model.modules()}
    assert attach_low_rank(model, TARGETS, lambda number: gate(1.5), seed=3) == TARGETS
    assert torch.equal(model(x), wanted)
    assert modules <= {*model.modules()}
    assert {name.rpartition(".")[2] for name, p in model.named_parameters() if p.requires_grad} == {"down", "up", "tau"}


def test_of_none_the_frozen_module_itself_is_left():
    learner = ngn.Learner(adapted(COUNTS))
    small = learner.deploy(example=X)
    plain = Backbone()
    zero = [name for name, n in zip(TARGETS, learner.count(), strict=True) if n == 0]
    assert zero
    for name in zero:
        assert type(small.get_submodule(name)) is type(plain.get_submodule(name))
    nothing = deploy(adapted([0.1] * 4), share_frozen=True)
    assert str(nothing) == str(plain)


def test_component_k_starts_the_same_however_many_there_are():
    few, many = (LowRankLinear(nn.Linear(6, 3), FixedCount(count), seed=5, name="layers.0.q") for count in (2, 7))
    assert torch.equal(many.down[:2], few.down)
    assert not torch.equal(many.down[0], many.down[1])
    assert bool((many.down.abs() <= 6**-0.5).all())
    source = generator(5, "init", "layers.0.q", 1)
    assert torch.equal(few.down[1], torch.empty(1, 6).uniform_(-(6**-0.5), 6**-0.5, generator=source)[0])


def test_terms_are_masters_in_float32_beside_a_bfloat16_model():
    model = adapted([3.0] * 4, torch.bfloat16)
    trained = {name.rpartition(".")[2]: p.dtype for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"down": torch.float32, "up": torch.float32, "tau": torch.float64}
    y = model(X.bfloat16())
    assert y.dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert all(p.grad.dtype == p.dtype for p in model.parameters() if p.requires_grad)


def test_late_terms_are_not_lost_in_bfloat16():
    base = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    nn.init.zeros_(base.weight)
    term = LowRankLinear(base, FixedCount(13, r=1.0), seed=0, name="q")
    nn.init.ones_(term.down)
    term.up.data[:] = torch.tensor([256.0] + [0.75] * 12)
    y, one = 0 * torch.ones(1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.bfloat16)
    assert abs(term(one).item() - 265.0) <= 1.0
    for value in term.up[0].tolist():
        y = y + value
    assert y.item() == 256.0  # adding the terms one by one loses all but the first


def test_nothing_large_is_kept_for_the_backward_pass():
    model, kept = adapted([2.0] * 4), []
    x = torch.randn(50, 6, requires_grad=True)

    def pack(value):
        kept.append(value)
        return value

    term, plain = model.layers[0].q, nn.Linear(6, 6).requires_grad_(False)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        plain(x)
        without, kept = {value.untyped_storage().data_ptr() for value in kept}, []
        term(x)
    rows = {value.untyped_storage().data_ptr(): value.numel() for value in kept if value.shape[:1] == (50,)}
    assert x.untyped_storage().data_ptr() in rows.keys() - without
    assert sorted(rows.values()) == [50 * K, 50 * 6]  # A x, and x itself


def test_what_cannot_be_attached_is_named():
    refused = {"layers.7.q": r"no module layers\.7\.q", "layers.0": "layers.0 is a Block, not a linear map"}
    for name, message in {**refused, "layers.0.q": "LowRankLinear"}.items():
        with pytest.raises(ValueError, match=message):
            attach_low_rank(adapted(COUNTS), [name], lambda number: gate(1.0), seed=0)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 3e-2)])
def test_merged_maps_are_stock_and_give_what_maps_and_terms_gave(dtype, near):
    """The result has the type of the map; r = 1/2, so that coefficients differ from 1."""
    model = Backbone(dtype)
    sizes = {"layers.0.q": ngn.Rank(K, t0=2.0, r=0.5), "layers.*.v": ngn.Rank(K, t0=0.01)}
    learner = ngn.learn_sizes(model, sizes)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("up"):
                p.normal_()
    with pytest.raises(ValueError, match="deploy it first"):
        merge(model)
    small, x = learner.deploy(unsettled="allow"), torch.randn(5, 6).to(dtype)
    with torch.no_grad():
        wanted = small(x)
        merged = merge(small)
        torch.testing.assert_close(merged(x), wanted, rtol=near, atol=near)
    assert [type(part) for part in merged.layers[0].children()] == [nn.Linear] * 3
    assert merged.state_dict().keys() == Backbone().state_dict().keys()
    assert merged.layers[0].q.weight.dtype == dtype
    alone = LowRankLinear(nn.Linear(6, 3), ngn.CountGate(4, t0=1.8), seed=0, name="q")
    assert type(merge(deploy(alone))) is nn.Linear
