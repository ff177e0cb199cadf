"""Structures of torch's and of other people's models, however they hold their parts: each is cut exactly."""

import functools
import types
import warnings
import weakref

import numpy as np
import pytest
import torch
from sizable import Forward, Fused, Gated, Layers, Plus, chain, convs, cut_exactly
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import ngn

X, IMAGES = torch.randn(2, 5, 8), torch.randn(2, 3, 4, 4)
WIDE = torch.randn(2, 5, 24)
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
TINY = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
TINY |= {"num_key_value_heads": 3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


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


def language(kind, **more):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{kind}Config")
    return getattr(transformers, f"{kind}ForCausalLM")(config(**TINY | more))


class Holding(nn.Module):
    """A feed-forward layer that the forward pass reaches by another way than as a submodule."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.mlp = chain(8, 16, 8)
        if way == "weak reference":
            self.reached = weakref.ref(self.mlp)
        elif way == "weak table":
            table = weakref.WeakKeyDictionary({self: weakref.WeakValueDictionary({"mlp": self.mlp})})
            self.reached = lambda: table[self]["mlp"]
        elif way == "cache":
            self.reached = functools.lru_cache(maxsize=1)(lambda: self.mlp)
        elif way == "closure":
            self.forward = functools.wraps(self.forward)(lambda x: self.mlp(x))
        elif way == "method":
            self.forward = types.MethodType(lambda own, x: self.mlp(x), self)
        elif way == "compiled":
            self.reached = torch.compile(lambda: self.mlp, backend="eager")
        elif way == "object":
            self.reached = type("Strategy", (), {"call": staticmethod(lambda: self.mlp)})().call

    def forward(self, x):
        return self.reached()(x)


class Tapped(nn.Module):
    """Hooks keep an activation that the forward pass, or another hook, reads later."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first, self.mlp, self.last = nn.Linear(8, 8), chain(8, 16, 8), nn.Linear(16, 3)
        self.taps = taps = {}
        held, keep, add = {}, functools.partial(lambda held, m, args, out: held.update(h=out), taps), taps.update
        if way == "before":
            self.mlp.register_forward_pre_hook(lambda module, args: taps.update(h=args[0]))
        elif way == "between hooks":
            self.first.register_forward_hook(lambda module, args, output: held.update(h=output))
            self.last.register_forward_pre_hook(lambda module, args: torch.cat([args[0][:, :8], held["h"]], -1))
        else:
            hooks = {
                "closure": lambda module, args, output: taps.update(h=output),
                "default": lambda module, args, output, held=taps: held.update(h=output),
                "method": lambda module, args, output: add(h=output),
                "partial": keep,
            }
            self.first.register_forward_hook(hooks[way])

    def forward(self, x):
        y = self.mlp(self.first(x))
        return self.last(torch.cat([y, self.taps.get("h", y)], -1))


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


def around(output) -> nn.Module:
    """A feed-forward layer, and another output of it."""
    return Forward(lambda own, x: output(own.mlp(x)), mlp=chain(8, 16, 8))


def old_weight_norm() -> nn.Module:
    model = chain(8, 12, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # old, and still met
        nn.utils.weight_norm(model[0])
    return model


def layers() -> nn.Module:
    return Stack(scaled(), scaled(), scaled())


GATED = {"model": "6 slices"}, {"": ngn.Width(6)}
MLP = {"mlp": "16 slices"}, {"mlp": ngn.Width(16)}
HEADS = {"layers.*.self_attn": ngn.Heads()}
CUT = {
    "two maps": (lambda: chain(8, 24, nn.GELU(), 8), X, *GATED),
    "gated": (Gated, X, *GATED),
    "given by name": (Named, X, *GATED),
    "aligned": (Gated, X, {"model": "3 slices"}, {"": ngn.Width(round_to=8)}),
    "encoder": (encoder, X, {"layers.0.self_attn": "4 heads", "layers.1.self_attn": "4 heads"}, HEADS),
    "encoder, pre-norm": (lambda: encoder(True), X, None, HEADS | {"layers.*": ngn.Width(6), "layers": ngn.Depth()}),
    "fused heads": (Fused, X, {"model": "4 heads"}, {"": ngn.Heads()}),
    "timm's attention": (ViTAttention, WIDE, {"model": "6 heads"}, {"": ngn.Heads()}),
    "heads in pairs": (ViTAttention, WIDE, {"model": "3 heads"}, {"": ngn.Heads(round_to=2)}),
    "channels": (vision, IMAGES, {"0": "6 channels", "6": "6 channels"}, {"0": ngn.Channels(6), "6": ngn.Channels(6)}),
    "norms of each channel": (
        lambda: convs(nn.InstanceNorm2d(6, affine=True), nn.PReLU(6), nn.PReLU(), nn.Conv2d(6, 4, 1)),
        IMAGES,
        {"0": "6 channels"},
        {"0": ngn.Channels(6)},
    ),
    "norms around": (
        lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 12), nn.PReLU(12), nn.Linear(12, 8), nn.LayerNorm(8)),
        X[0],
        *GATED,
    ),
    "terms and the units between": (adapted, WIDE, None, {"0": ngn.Width(4)}),
    "units between maps with terms": (adapted, WIDE, None, {"0.0.base_layer": ngn.Width(16)}),
    "beside a recurrent layer": (recurrent, WIDE, {"head": "16 slices"}, {"*": ngn.Width(16)}),
    "grouped queries in one map": (
        lambda: language("Falcon", new_decoder_architecture=True, num_kv_heads=3),
        IDS,
        {f"transformer.h.{number}.self_attention": "3 heads" for number in range(2)},
        {"transformer.h.*.self_attention": ngn.Heads()},
    ),
    "layers called by name": (layers, X, {"layers": "3 layers"}, {"layers": ngn.Depth()}),
    "an old weight norm": (old_weight_norm, X, *GATED),
    "complex numbers": (lambda: around(lambda h: torch.view_as_complex(h.unflatten(-1, (4, 2)))), X, *MLP),
    "rows without numbers, as where every key is masked": (
        lambda: around(lambda h: torch.cat([h, torch.full_like(h, torch.nan)])),
        X,
        *MLP,
    ),
    **{
        f"held by a {way}": (functools.partial(Holding, way), X, *MLP)
        for way in ("weak reference", "weak table", "cache", "closure", "method", "compiled", "object")
    },
    **{
        f"kept by a hook, {way}": (functools.partial(Tapped, way), X[0], *MLP)
        for way in ("closure", "default", "method", "partial", "before", "between hooks")
    },
}


@pytest.mark.parametrize("structure", CUT)
def test_a_structure_is_cut_exactly(structure, tmp_path):
    def hooks(model):
        return sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in model.modules())

    make, x, wanted, sizes = CUT[structure]
    small = cut_exactly(make, x, tmp_path, wanted, sizes)
    assert not any(isinstance(module, ngn.OrderedAxis) for module in small.modules())
    assert hooks(small) == hooks(make())


def test_a_boundary_beyond_the_last_component_has_settled(recwarn):
    learner = ngn.CapacityLearner(nn.Sequential(ngn.learn_sizes(Gated(), {"": ngn.Width(6)}, example=X).model))
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


@pytest.mark.parametrize("way", ["budget", "price", "layers"])
def test_parametrised_maps_are_cut_saved_and_loaded(way, tmp_path):
    def model():
        torch.manual_seed(0)
        branches = [Plus(chain(8, 16, 8)) for _ in range(3)]
        for branch, norm in zip(branches, (weight_norm, spectral_norm, orthogonal), strict=True):
            norm(branch.mlp[0])
            norm(branch.mlp[-1])
        return (Layers if way == "layers" else nn.Sequential)(*branches)

    sizes = {"**.mlp" if way == "layers" else "*.mlp": ngn.Width(16, t0=5.0)}
    sizes |= {"layers": ngn.Depth(t0=1.0)} if way == "layers" else {}
    budget = ngn.Budget(parameters="60%") if way == "budget" else None
    learner = ngn.learn_sizes(model(), sizes, budget=budget, example=X)
    for progress in (0.0, 0.5, 1.0):
        learner.set_progress(progress)
    small = learner.deploy(example=X, unsettled="allow")
    assert not any(hasattr(part, "parametrizations") for part in small.modules())
    if budget is not None:
        assert sum(p.numel() for p in small.parameters()) <= float(learner.limit)
    ngn.save(small, tmp_path / "small.safetensors")
    fresh = ngn.learn_sizes(model(), sizes, budget=budget, example=X)
    assert torch.equal(ngn.load(fresh, tmp_path / "small.safetensors")(X), small(X))


def test_an_example_is_left_as_it_is_and_may_be_written_into():
    def centred(own, x, held):
        x -= x.mean()
        held["seen"] = held.get("seen", 0) + 1
        return own.mlp(x) * held["seen"]

    x, held = X.clone() + 1.0, {}
    learner = ngn.learn_sizes(Forward(centred, mlp=chain(8, 16, 8)), {"mlp": ngn.Width(16, t0=5.0)}, example=(x, held))
    learner.deploy(example=(x, held), unsettled="allow")
    assert torch.equal(x, X + 1.0)
    assert held == {}


@pytest.mark.parametrize("of", [np.array, torch.tensor, list, tuple])
def test_the_order_of_importance_may_be_an_array(of):
    model = chain(8, 4, 8)
    learner = ngn.learn_sizes(model, {"": ngn.Width(by_importance=of([3, 1, 0, 2]), t0=1.0)}, example=X)
    assert torch.equal(learner.deploy(unsettled="allow")[0].weight, model[0].weight[[1, 3]])


@pytest.mark.parametrize("grad", [True, False])
def test_a_map_with_terms_has_the_weight_of_both(grad):
    """``nn.TransformerEncoderLayer`` reads it past the map's forward pass, without gradients."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    learner = ngn.learn_sizes(layer, {"linear1": ngn.Rank(4, t0=2.0)}, frozen=True, example=X)
    with torch.no_grad():
        layer.linear1.up.normal_()
    map_ = layer.linear1
    torch.testing.assert_close(nn.functional.linear(X, map_.weight, map_.bias), map_(X))
    with torch.set_grad_enabled(grad):
        called = layer(X)
    layer.activation_relu_or_gelu = 0  # the way through the maps' forward passes
    torch.testing.assert_close(called, layer(X))
    layer.activation_relu_or_gelu = 1
    small = learner.deploy(example=X, unsettled="allow")
    torch.testing.assert_close(small.linear1.weight, ngn.merge(small.linear1).weight)


@pytest.mark.parametrize(
    ("make", "sizes", "x", "message", "followed"),
    [
        (
            recurrent,
            {"rnn": ngn.Width(4)},
            WIDE,
            r"operation .*rnn.* in rnn.* has slices in head\.\d",
            {"head.*": ngn.Width(4)},
        ),
        (
            lambda: language("Phi3"),
            {"model.layers.*.self_attn": ngn.Heads(), "model.layers.*.mlp": ngn.Width(4)},
            IDS,
            "self_attn: cut to .* Leave it out",
            {"model.layers.*.mlp": ngn.Width(4)},
        ),
        (
            lambda: nn.Sequential(adapted()),
            {"0.0.2": ngn.Width(4), "0.0.1": ngn.Width(4)},
            WIDE,
            "0.0.1: no slices to cut inside it",
            {"0.0.2": ngn.Width(4)},
        ),
    ],
)
def test_the_advice_works(make, sizes, x, message, followed):
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(make().eval(), sizes, example=x)
    assert ngn.learn_sizes(make().eval(), followed, example=x).names
