"""Sizes of torch's own modules: found, open at the start, and cut as the hard model says."""

import pytest
import torch
from sizable import Fused, Gated, convs
from torch import nn

import ngn


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
    "norms of each channel": (
        lambda: convs(nn.InstanceNorm2d(6, affine=True), nn.PReLU(6), nn.PReLU(), nn.Conv2d(6, 4, 1)),
        {"0": ngn.Channels},
        IMAGES,
    ),
    "norms around": (
        lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 12), nn.PReLU(12), nn.Linear(12, 8), nn.LayerNorm(8)),
        {"": ngn.Width},
        X[0],
    ),
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
    return ngn.learn_sizes(model, specs, example=x), before, x


@pytest.mark.parametrize("case", CASES)
def test_the_start_is_the_original(case):
    learner, before, x = built(case)
    assert torch.allclose(learner(x), before, atol=1e-6)
    assert torch.allclose(learner.deploy(example=x)(x), before, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", [None, lambda name, K: [*reversed(range(K))]])
def test_what_is_deployed_is_the_hard_model(case, order, tmp_path):
    learner, before, x = built(case, t0=0.8, by_importance=order)
    assert set(learner.count().tolist()) == {2}
    small = learner.deploy(example=x)
    assert not torch.allclose(small(x), before, atol=1e-2)
    assert not any(isinstance(module, ngn.OrderedAxis) for module in small.modules())
    learner.train()
    (learner(x).square().sum() + learner.penalty()).backward()
    assert all(bool(p.grad.isfinite()) and float(p.grad) for p in learner.controller_parameters())
    ngn.save(small, tmp_path / "small")
    assert torch.equal(ngn.load(built(case, by_importance=order)[0].model, tmp_path / "small")(x), small(x))


def test_a_boundary_beyond_the_last_component_has_settled(recwarn):
    learner = ngn.CapacityLearner(nn.Sequential(built("two maps")[0].model))
    learner.deploy()
    assert learner.report().distance == [0.0]
    assert not recwarn


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "causal", "padding", "both", "per head"])
def test_attention_is_that_of_torch(masks, batch_first, weights):
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
    ngn.learn_sizes(attention, {"": ngn.Heads()}, example=(q, k, v))
    for a, b in zip(attention(q, k, v, need_weights=weights, **given), before, strict=True):
        assert a is b is None or torch.allclose(a, b, atol=1e-6)
    single = nn.MultiheadAttention(8, 2)
    before = single(q[0], q[0], q[0])
    ngn.learn_sizes(single, {"": ngn.Heads()}, example=(q[0],) * 3)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(single(q[0], q[0], q[0]), before, strict=True))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(8, 8)

    def forward(self, scale, x):
        return x + scale * self.f(x)


def test_layers_may_be_called_by_name_and_in_half_precision():
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Residual() for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(scale=torch.tensor(0.5), x=x)
            return x

    learner = ngn.learn_sizes(Stack(), {"layers": ngn.Depth(t0=1.0)}, example=X)
    assert len(learner.deploy(example=X).layers) == 2
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


def test_activations_may_be_given_by_name():
    class Named(Gated):
        def forward(self, x):
            return self.w2(input=nn.functional.silu(self.w1(input=x)) * self.w3(input=x))

    learner = ngn.learn_sizes(Named(), {"": ngn.Width(6, t0=1.2)}, example=X)
    small = learner.deploy(example=X, unsettled="allow")
    assert not small.w2._forward_pre_hooks
    assert not small.w2._forward_pre_hooks_with_kwargs


def test_components_can_be_aligned():
    learner = ngn.learn_sizes(Gated(), {"": ngn.Width(round_to=8, t0=0.9)}, example=X)
    assert learner.axes[0].K == 3
    assert learner.deploy(example=X).w1.out_features == 16


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
