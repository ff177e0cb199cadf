"""Structures of torch's and of other people's models: each is cut exactly, or the message leads to what works."""

import pytest
import torch
from sizable import Forward, Fused, Gated, Layers, chain, convs, cut_exactly
from torch import nn

import ngn

X, WIDE, IMAGES, PIXELS = (torch.randn(n) for n in ((2, 5, 8), (2, 5, 24), (2, 3, 4, 4), (3, 3, 12, 12)))


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 4, 24, 0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class ViTAttention(nn.Module):
    """Attention of timm's vision transformers: what the heads have together is an attribute of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.attn_dim = 6, 4, 24
        self.qkv, self.q_norm, self.proj = nn.Linear(24, 72), nn.LayerNorm(4), nn.Linear(24, 24)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        h = nn.functional.scaled_dot_product_attention(self.q_norm(q), self.q_norm(k), v)
        return self.proj(h.transpose(1, 2).reshape(b, n, self.attn_dim))


def with_terms(base: nn.Linear) -> nn.Module:
    """A map with the terms of peft's LoRA."""
    return Forward(
        lambda own, x: own.base_layer(x) + own.lora_B["default"](own.lora_A["default"](x)),
        base_layer=base,
        lora_A=nn.ModuleDict({"default": nn.Linear(base.in_features, 4, bias=False)}),
        lora_B=nn.ModuleDict({"default": nn.Linear(4, base.out_features, bias=False)}),
    )


def adapted() -> nn.Module:
    return nn.Sequential(nn.Sequential(with_terms(nn.Linear(24, 48)), nn.GELU(), with_terms(nn.Linear(48, 24))))


def recurrent() -> nn.Module:
    parts = {"embed": nn.Linear(24, 12), "rnn": nn.LSTM(12, 16, batch_first=True), "head": chain(16, 32, nn.ReLU(), 2)}
    return Forward(lambda own, x: own.head(own.rnn(own.embed(x))[0]), **parts)


class Named(Gated):
    """Activations are given by name."""

    def forward(self, x):
        return self.w2(input=nn.functional.silu(self.w1(input=x)) * self.w3(input=x))


def scaled() -> nn.Module:
    """A layer that is called with a number first, and by name."""
    return Forward(lambda own, scale, x: x + scale * own.f(x), f=nn.Linear(8, 8))


class Stack(Layers):
    def forward(self, x):
        for layer in self.layers:
            x = layer(scale=torch.tensor(0.5), x=x)
        return x


def layers() -> nn.Module:
    return Stack(scaled(), scaled(), scaled())


def conv(before: int = 3, after: int = 8, size: int = 3, **more) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, **more)


def ended(*parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(*parts, nn.ReLU(), conv(8, 2, 1))


def over_sensors() -> nn.Module:
    """A convolution over sensors and time, then one over time, as in EEGNet."""
    convs = {"a": nn.Conv2d(1, 8, (4, 3)), "b": nn.Conv1d(8, 6, 3)}
    return Forward(lambda own, x: own.b(own.a(x).relu().squeeze(2)).mean(-1), **convs)


class Frozen(nn.Module):
    """A batch norm with buffers only, as in detectors."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.rand(channels) + 0.5)
        self.register_buffer("bias", torch.rand(channels))

    def forward(self, x):
        return x * self.weight[:, None, None] + self.bias[:, None, None]


GATED = {"model": "6 slices"}, {"": ngn.Width(6)}
CUT = {
    "two maps": (lambda: chain(8, 24, nn.GELU(), 8), X, *GATED),
    "units of any order": (
        lambda: chain(8, 8, 8),
        X,
        {"model": "4 slices"},
        {"": ngn.Width(4, by_importance=[7, 0, 5, 2, 3, 1, 4, 6])},
    ),
    "gated": (Gated, X, *GATED),
    "given by name": (Named, X, *GATED),
    "aligned": (Gated, X, {"model": "3 slices"}, {"": ngn.Width(round_to=8)}),
    "encoder": (
        encoder,
        X,
        {f"layers.{n}{part}": size for n in range(2) for part, size in ((".self_attn", "4 heads"), ("", "6 slices"))}
        | {"layers": "2 layers"},
        {"layers.*.self_attn": ngn.Heads(), "layers.*": ngn.Width(6), "layers": ngn.Depth()},
    ),
    "fused heads": (Fused, X, {"model": "4 heads"}, {"": ngn.Heads()}),
    "timm's attention": (ViTAttention, WIDE, {"model": "6 heads"}, {"": ngn.Heads()}),
    "heads in pairs": (ViTAttention, WIDE, {"model": "3 heads"}, {"": ngn.Heads(round_to=2)}),
    "norms of each channel": (
        lambda: convs(nn.InstanceNorm2d(6, affine=True), nn.PReLU(6), nn.PReLU(), nn.Conv2d(6, 4, 1)),
        IMAGES,
        {"0": "6 channels"},
        {"0": ngn.Channels(6)},
    ),
    "terms and the units between": (
        adapted,
        WIDE,
        {"0.0.lora_A.default": "4 slices", "0.0": "4 slices", "0.2.lora_A.default": "4 slices"},
        {"0": ngn.Width(4)},
    ),
    "beside a recurrent layer": (recurrent, WIDE, {"head": "16 slices"}, {"*": ngn.Width(16)}),
    # with as many samples as channels
    "of other dimensions": (over_sensors, torch.randn(8, 1, 4, 16), {"a": "8 channels"}, {"a": ngn.Channels()}),
    "both halves of a gated unit": (
        lambda: nn.Sequential(conv(), nn.GLU(1), nn.Flatten(), nn.Linear(4 * 10 * 10, 4)),
        PIXELS,
        {"0": "4 channels"},
        {"0": ngn.Channels()},
    ),
    "buffers of one's own": (lambda: ended(conv(), Frozen(8)), PIXELS, {"0": "8 channels"}, {"0": ngn.Channels()}),
    "parameters of one's own": (
        lambda: ended(conv(), Forward(lambda own, x: x * own.gamma, gamma=nn.Parameter(torch.rand(8, 1, 1)))),
        PIXELS,
        {"0": "8 channels"},
        {"0": ngn.Channels()},
    ),
    "groups of a norm": (lambda: ended(conv(), nn.GroupNorm(4, 8)), PIXELS, {"0": "4 channels"}, {"0": ngn.Channels()}),
    "groups of a convolution": (
        lambda: nn.Sequential(conv(), nn.ReLU(), nn.ConvTranspose2d(8, 8, 4, 2, 1, groups=4), conv(8, 2)),
        PIXELS,
        {"0": "4 channels"},
        {"0": ngn.Channels()},
    ),
    "layers called by name": (layers, X, {"layers": "3 layers"}, {"layers": ngn.Depth()}),
}


@pytest.mark.parametrize("structure", CUT)
def test_a_structure_is_cut_exactly(structure, tmp_path):
    make, x, wanted, sizes = CUT[structure]
    cut_exactly(make, x, tmp_path, wanted, sizes)


def test_a_boundary_beyond_the_last_component_has_settled(recwarn):
    learner = ngn.Learner(nn.Sequential(ngn.learn_sizes(Gated(), {"": ngn.Width(6)}, example=X).model))
    learner.deploy()
    assert learner.report().distance == [0.0]
    assert not recwarn


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "no batch", "causal", "padding", "both", "per head"])
def test_attention_is_that_of_torch(masks, batch_first, weights):
    attention = nn.MultiheadAttention(8, 4, batch_first=batch_first, kdim=6, vdim=5)
    q, k, v = torch.randn(3, 3, 8), torch.randn(3, 3, 6), torch.randn(3, 3, 5)
    causal, padding = torch.ones(3, 3, dtype=torch.bool).triu(1), torch.tensor([[False, False, True]] * 3)
    given = {
        "none": {},
        "no batch": {},
        "causal": {"attn_mask": causal, "is_causal": True},
        "padding": {"key_padding_mask": padding},
        "both": {"attn_mask": causal, "key_padding_mask": padding},
        "per head": {"attn_mask": torch.randn(12, 3, 3), "average_attn_weights": False},
    }[masks]
    q, k, v = (part[0] if masks == "no batch" else part for part in (q, k, v))
    before = attention(q, k, v, need_weights=weights, **given)
    ngn.learn_sizes(attention, {"": ngn.Heads()}, example=(q, k, v))
    for a, b in zip(attention(q, k, v, need_weights=weights, **given), before, strict=True):
        assert a is b is None or torch.allclose(a, b, atol=1e-6)


def test_layers_may_be_called_in_half_precision():
    learner = ngn.learn_sizes(layers(), {"layers": ngn.Depth(t0=1.0)}, example=X)
    with torch.autocast("cpu", torch.bfloat16):
        learner(X).sum().backward()
    with pytest.raises(ValueError, match="no input of a layer has the shape of its output"):
        learner.model.layers[0](scale=torch.ones(5, 1), x=X[0, 0])


def test_a_map_in_two_places_has_its_ranks_in_both():
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    model.append(model[0])
    learner = ngn.learn_sizes(model, {"0": ngn.Rank(4, t0=2.0)}, frozen=True)
    assert model[0] is model[2]
    small = learner.deploy(example=torch.randn(3, 6), unsettled="allow")
    assert small[0] is small[2]


def test_attention_weights_are_the_mean_over_the_heads_that_stay():
    attention = nn.MultiheadAttention(8, 4, batch_first=True)
    small = ngn.learn_sizes(attention, {"": ngn.Heads(t0=1.2)}, example=(X, X, X)).deploy(unsettled="allow")
    with pytest.raises(ValueError, match="a mask per head needs batch x heads = 2 x 2 matrices, not 8"):
        small(X, X, X, attn_mask=torch.zeros(8, 5, 5))


def test_batch_norms_that_were_converted_for_several_processes_are_cut():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 3))
    x = torch.randn(2, 3, 9, 9)
    learner = ngn.learn_sizes(model, {"0": ngn.Channels(4, t0=1.0)}, example=x)
    model(x)  # moves the statistics
    learner.model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    small = learner.deploy(example=x)
    assert isinstance(small[1], nn.SyncBatchNorm)
    assert (small[1].num_features, small[3].in_channels) == (4, 4)
    learner.model[1] = nn.BatchNorm2d(8)  # one that has tensors of its own
    with pytest.raises(ValueError, match=r"cuts BatchNorm2d\.weight, which is not part of the model"):
        learner.deploy()


def test_an_activation_of_another_size_is_refused_not_emptied():
    learner = ngn.learn_sizes(
        nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), {"": ngn.Width(8)}, example=torch.randn(5, 3)
    )
    with pytest.raises(ValueError, match=r"dimension -1 .* \[.*, 5\] must be a multiple of the axis's 8 components"):
        learner.axes[0](torch.ones(2, 5))


def test_an_example_that_tries_nothing_is_warned_of(recwarn):
    model = nn.Sequential(conv(bias=False), nn.ReLU(), conv(8, 2))
    learner = ngn.learn_sizes(model, {"0": ngn.Channels()}, example=0 * PIXELS)
    (warning,) = [str(each.message) for each in recwarn]
    assert warning.startswith("the example does not test 0: it never reaches it, or only with zeros")
    assert not any(axis.called for axis in learner.axes)


def test_entries_of_a_report_are_channels_where_pixels_follow():
    model = nn.Sequential(conv(3, 16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 10 * 10, 2))
    learner = ngn.learn_sizes(model, {"0": ngn.Channels(8, t0=4.0)}, example=PIXELS)
    assert "8 -> 5 channels  16 -> 10 " in str(learner.report())
