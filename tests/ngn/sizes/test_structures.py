"""Sizes of torch's own modules: found, open at the start, and cut as the hard model says."""

import pytest
import torch
from torch import nn

import ngn


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(8, 24), nn.Linear(24, 8), nn.Linear(8, 24)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


def encoder(norm_first: bool = False) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 4, 24, 0.0, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def vision() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1, groups=12),  # depthwise
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 6, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 16, 8),
    )


class Fused(nn.Module):
    """Attention of vision transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj, self.head_dim = nn.Linear(8, 24), nn.Linear(8, 8), 2

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, 2)).movedim(2, 0).transpose(2, 3)
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


X, IMAGES = torch.randn(2, 5, 8), torch.randn(2, 3, 4, 4)
CASES = {
    "two maps": (lambda: nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8)), {"": ngn.Width}, X),
    "gated": (Gated, {"": ngn.Width}, X),
    "encoder width": (encoder, {"layers.*": ngn.Width}, X),
    "encoder heads": (encoder, {"layers.*.self_attn": ngn.Heads}, X),
    "encoder both, pre-norm": (
        lambda: encoder(True),
        {"layers.*.self_attn": ngn.Heads, "layers.*": ngn.Width, "layers": ngn.Depth},
        X,
    ),
    "fused heads": (Fused, {"": ngn.Heads}, X),
    "channels": (vision, {"0": ngn.Channels, "6": ngn.Channels}, IMAGES),
}


def built(case, **gate):
    make, sizes, x = CASES[case]
    torch.manual_seed(0)
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(), module.running_var.uniform_(0.5, 2.0)
    before = model(x).detach()
    specs = {name: size(**gate) if size in (ngn.Heads, ngn.Depth) else size(6, **gate) for name, size in sizes.items()}
    return ngn.learn_sizes(model, specs), before, x


@pytest.mark.parametrize("case", CASES)
def test_the_start_is_the_original(case):
    learner, before, x = built(case)
    assert torch.allclose(learner(x), before, atol=1e-6)
    assert torch.allclose(learner.deploy(example=x)(x), before, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("places", [None, lambda name, K: [*reversed(range(K))]])
def test_what_is_deployed_is_the_hard_model(case, places, tmp_path):
    learner, before, x = built(case, t0=0.8, places=places)
    assert set(learner.count().tolist()) == {2}
    small = learner.deploy(example=x)
    assert not torch.allclose(small(x), before, atol=1e-2)
    assert not any(isinstance(module, ngn.OrderedAxis) for module in small.modules())
    learner.train()
    (learner(x).square().sum() + learner.penalty()).backward()
    assert all(bool(p.grad.isfinite()) and float(p.grad) for p in learner.controller_parameters())
    ngn.save(small, tmp_path / "small")
    assert torch.equal(ngn.load(built(case, places=places)[0].model, tmp_path / "small")(x), small(x))


def test_places_say_what_stays():
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))
    weight = model[0].weight.clone()
    small = ngn.learn_sizes(model, {"": ngn.Width(3, places=[2, 0, 1], t0=1.0)}).deploy(example=torch.randn(4, 3))
    assert torch.equal(small[0].weight, weight[[0, 1, 4, 5]])
    with pytest.raises(ValueError, match="permutation"):
        ngn.learn_sizes(model, {"": ngn.Width(6, places=[0, 0, 1, 2, 3, 4])})


def test_a_boundary_beyond_the_last_component_has_settled(recwarn):
    learner = ngn.CapacityLearner(nn.Sequential(built("two maps")[0].model))
    learner.deploy()
    assert learner.report().distance == [0.0]
    assert not recwarn


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "causal", "padding", "both", "per head"])
def test_attention_is_that_of_torch(masks, batch_first, weights):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 4, batch_first=batch_first, kdim=6, vdim=5)
    q, k, v = torch.randn(3, 3, 8), torch.randn(3, 3, 6), torch.randn(3, 3, 5)
    causal, padding = torch.ones(3, 3, dtype=torch.bool).triu(1), torch.tensor([[False, False, True]] * 3)
    given = {
        "none": {},
        "causal": {"attn_mask": causal, "is_causal": True},
        "padding": {"key_padding_mask": padding},
        "both": {"attn_mask": causal, "key_padding_mask": padding},
        "per head": {"attn_mask": torch.randn(12, 3, 3), "average_attn_weights": False},
    }[masks]
    before = attention(q, k, v, need_weights=weights, **given)
    ngn.learn_sizes(attention, {"": ngn.Heads()})
    for a, b in zip(attention(q, k, v, need_weights=weights, **given), before, strict=True):
        assert a is b is None or torch.allclose(a, b, atol=1e-6)
    single = nn.MultiheadAttention(8, 2)
    before = single(q[0], q[0], q[0])
    ngn.learn_sizes(single, {"": ngn.Heads()})
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(single(q[0], q[0], q[0]), before, strict=True))


def convs(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 1), *middle)


@pytest.mark.parametrize(
    ("model", "sizes", "message"),
    [
        (Gated, {"w4": ngn.Width(2)}, "no module matches 'w4'; near are: w"),
        (Gated, {"": ngn.Width(7)}, "7 slices do not divide 24; 3, 4, 6, 8 do"),
        (Gated, {"": ngn.Width(4, round_to=4)}, "do not divide 24 into multiples of 4; 1, 2, 3, 6 do"),
        (Gated, {"w1": ngn.Width(4)}, r"name them with Width\(up="),
        (Gated, {"": ngn.Width(4, up="w1", down="w5")}, "no module w5"),
        (Gated, {"": ngn.Heads()}, r"name its maps with Heads\(qkv="),
        (Gated, {"": ngn.Channels(2)}, "not a convolution"),
        (Gated, {"w1": ngn.Rank(2), "w1.base": ngn.Width(2)}, "no module matches 'w1.base'"),
        (lambda: nn.Sequential(Gated()), {"*": ngn.Width(4), "0": ngn.Width(4)}, "another size ends at the same"),
        (Gated, {"*": ngn.Depth()}, "not an nn.ModuleList"),
        (lambda: nn.Sequential(nn.MultiheadAttention(8, 2, add_bias_kv=True)), {"0": ngn.Heads()}, "extra key"),
        (lambda: convs(nn.GroupNorm(2, 6), nn.Conv2d(6, 3, 1)), {"0": ngn.Channels(2)}, "GroupNorm"),
        (lambda: convs(nn.ReLU()), {"0": ngn.Channels(2)}, "not beside it"),
        (lambda: convs(nn.Conv2d(5, 3, 1)), {"0": ngn.Channels(2)}, "not beside it"),
    ],
)
def test_what_cannot_be_sized_is_said(model, sizes, message):
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(model(), sizes)


def test_maps_can_be_named():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wq, self.wk, self.wv, self.wo = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 8)
            self.mix, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x):
            q, k, v = (m(x).unflatten(-1, (-1, 2)).transpose(1, 2) for m in (self.wq, self.wk, self.wv))
            h = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
            return self.down(self.mix(self.wo(h)).relu() @ self.up.weight.T)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Own()

        def forward(self, x):
            return self.a(x)

    with pytest.raises(ValueError, match="head_dim"):
        ngn.learn_sizes(Model(), {"a": ngn.Heads(qkv=("wq", "wk", "wv"), out="wo")})
    sizes = {"a": ngn.Heads(qkv=("wq", "wk", "wv"), out="wo", head_dim=2, t0=0.2)}
    learner = ngn.learn_sizes(Model(), sizes)
    assert learner.deploy(example=X).a.wq.out_features == 4
    learner = ngn.learn_sizes(Model(), {"a": ngn.Width(8, up="up", down="down", t0=1.0)})
    assert learner.deploy(example=X).a.down.in_features == 4


def test_components_can_be_aligned():
    learner = ngn.learn_sizes(Gated(), {"": ngn.Width(round_to=8, t0=0.9)})
    assert learner.axes[0].K == 3
    assert learner.deploy(example=X).w1.out_features == 16
