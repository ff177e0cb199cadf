"""Sizes that cannot be learned are refused before the training, and the model is left as it was."""

import warnings

import pytest
import torch
from sizable import Fused, Gated, chain, convs
from torch import Tensor, nn

import ngn


def tied(at: int) -> nn.Module:
    model = nn.Sequential(chain(8, 12, 8), chain(8, 12, 8))
    model[1][at].weight = model[0][at].weight
    return model


def hooked() -> nn.Module:
    model = chain(8, 12, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # old, and still met
        nn.utils.weight_norm(model[0])
    return model


class Twice(nn.Module):
    """Three square layers in a row, with the shapes of a gated feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)


class Scaled(nn.MultiheadAttention):
    def forward(self, *args, **kwargs):
        y, weights = super().forward(*args, **kwargs)
        return 10 * y, weights


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(8, 8) for _ in range(4))
        self.q_norm = nn.RMSNorm(8)


class Biased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value, self.dense, self.head_dim = nn.Linear(8, 24), nn.Linear(8, 8), 2

    def forward(self, x, alibi):
        return x


@pytest.mark.parametrize(
    ("model", "sizes", "message"),
    [
        (Gated, {"w4": ngn.Width(2)}, "no module matches 'w4'; did you mean w"),
        (Gated, {"": ngn.Width(7)}, "7 slices do not divide 24; choose K from 3, 4, 6, 8"),
        (Gated, {"": ngn.Width(4, round_to=4)}, "do not divide 24 into multiples of 4; choose K from 1, 2, 3, 6"),
        (Gated, {"w1": ngn.Width(4)}, r"name them: ngn\.Width\(up="),
        (Gated, {"": ngn.Width(4, up="w1", down="w5")}, "no module w5"),
        (Gated, {"": ngn.Heads()}, r"name its linear layers: ngn\.Heads\(qkv="),
        (Gated, {"": ngn.Channels(2)}, "takes a convolution without groups"),
        (Gated, {"w1": ngn.Rank(2), "w1.base": ngn.Width(2)}, "no module matches 'w1.base'"),
        (lambda: nn.Sequential(Gated()), {"*": ngn.Width(4), "0": ngn.Width(4)}, "consumer already has a learned size"),
        (Gated, {"*": ngn.Depth()}, "not an nn.ModuleList"),
        (lambda: nn.Sequential(nn.MultiheadAttention(8, 2, add_bias_kv=True)), {"0": ngn.Heads()}, "extra key"),
        (lambda: convs(nn.GroupNorm(2, 6), nn.Conv2d(6, 3, 1)), {"0": ngn.Channels(2)}, "GroupNorm"),
        (lambda: convs(nn.ReLU()), {"0": ngn.Channels(2)}, "no consumer of its channels found"),
        (lambda: convs(nn.Conv2d(5, 3, 1)), {"0": ngn.Channels(2)}, "no consumer of its channels found"),
        (lambda: convs(nn.Conv2d(12, 3, 1)), {"0": ngn.Channels(2)}, "no consumer of its channels found"),
        (lambda: convs(nn.Conv2d(6, 12, 1, groups=6)), {"0": ngn.Channels(2)}, "no consumer of its channels found"),
        (lambda: convs(nn.Conv2d(12, 3, 1)), {"0": ngn.Channels(2, into="1")}, "has 6 output channels, but Conv2d"),
        (lambda: chain(8, 8, 8, 8), {"": ngn.Width(4)}, r"name them: ngn\.Width"),
        (lambda: nn.Sequential(Twice()), {"0": ngn.Width(4)}, r"name them: ngn\.Width"),
        (lambda: chain(8, 12, nn.LayerNorm(12), 8), {"": ngn.Width(4)}, "LayerNorm averages over the 12 units"),
        (lambda: chain(8, 12, nn.Softmax(-1), 8), {"": ngn.Width(4)}, "a Softmax mixes the 12 units"),
        (lambda: convs(nn.LocalResponseNorm(2), nn.Conv2d(6, 3, 1)), {"0": ngn.Channels(2)}, "Norm mixes the 6 units"),
        (lambda: convs(nn.Softmax2d(), nn.Conv2d(6, 3, 1)), {"0": ngn.Channels(2)}, "Softmax2d mixes the 6 units"),
        (lambda: convs(nn.LogSoftmax(1), nn.Conv2d(6, 3, 1)), {"0": ngn.Channels(2)}, "LogSoftmax mixes the 6 units"),
        (lambda: convs(nn.ChannelShuffle(2), nn.Conv2d(6, 3, 1)), {"0": ngn.Channels(2)}, "Shuffle mixes the 6 units"),
        (
            lambda: nn.Sequential(chain(8, 24), nn.Linear(12, 8)),
            {"": ngn.Width(up="0.0", down="1")},
            "not have the 12 outputs",
        ),
        (lambda: nn.Sequential(Scaled(8, 2)), {"0": ngn.Heads()}, "would replace its forward pass"),
        (lambda: nn.Sequential(Normed()), {"0": ngn.Heads(head_dim=2)}, "normalises over all heads"),
        (lambda: nn.Sequential(Fused(), Biased()), {"1": ngn.Heads()}, "alibi is a bias per head"),
        (lambda: tied(0), {"*": ngn.Width(4)}, r"0\.0\.weight is tied to 1\.0\.weight"),
        (lambda: tied(2), {"*": ngn.Width(4)}, r"0\.2\.weight is tied to 1\.2\.weight"),
        (lambda: nn.Sequential(hooked()), {"0": ngn.Width(4)}, "weight_norm"),
        (
            lambda: nn.Sequential(chain(8, 12, 8)),
            {"0.2": ngn.Rank(2), "0": ngn.Width(4, up="0", down="2.base")},
            "rank",
        ),
        (
            lambda: nn.ModuleDict({"layers": nn.ModuleList([Gated()] * 3)}),
            {"layers": ngn.Depth()},
            "the same layer several times",
        ),
        (lambda: chain(8, 8), {"": ngn.Rank(2)}, "take its place|wrap it, as in nn.Sequential|not a linear layer"),
        (Gated, {"": ngn.Width(4, order=ngn.Order("annealed"))}, "r < 1|r below 1"),
    ],
)
def test_what_cannot_be_sized_is_said_and_the_model_left_as_it_was(model, sizes, message):
    model = model()
    before = [(name, type(m), dict(m._forward_pre_hooks), dict(m._forward_hooks)) for name, m in model.named_modules()]
    trained = [p.requires_grad for p in model.parameters()]
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(model, sizes, frozen=True)
    assert before == [
        (name, type(m), dict(m._forward_pre_hooks), dict(m._forward_hooks)) for name, m in model.named_modules()
    ]
    assert trained == [p.requires_grad for p in model.parameters()]


def test_after_a_refusal_it_can_be_tried_again():
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    with pytest.raises(ValueError, match="a budget of 3 parameters is too small"):
        ngn.learn_sizes(model, {"": ngn.Width(8)}, budget=ngn.Budget(parameters=3))
    assert ngn.learn_sizes(model, {"": ngn.Width(8)}, budget=ngn.Budget(parameters="50%")).names == ["model"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: ngn.Heads(4), "is not a permutation such as"),
        (lambda: ngn.Depth(3), "is not a permutation such as"),
        (lambda: ngn.learn_sizes(Gated(), {"": ngn.Width(4)}, budget="60%"), r"ngn\.Budget\(parameters="),
    ],
)
def test_what_is_of_another_kind_is_said(mistake, message):
    with pytest.raises(TypeError, match=message):
        mistake()


class Counted(nn.Module):
    """Attention that knows its number of heads as ``h``."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(8, 8) for _ in range(4))
        self.h = 4

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (self.h, -1)).transpose(-3, -2) for part in (self.wq, self.wk, self.wv))
        return self.wo(nn.functional.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2))


class Apart(nn.Module):
    """A residual block whose norms are not registered next to their convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))


class Outside(nn.Module):
    """Layers whose residual sum is outside them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x).tanh()
        return x


HEADS = {"qkv": ("wq", "wk", "wv"), "out": "wo", "head_dim": 2}


@pytest.mark.parametrize(
    ("model", "sizes", "shape", "message"),
    [
        (Counted, {"": ngn.Heads(**HEADS)}, (2, 5, 8), "model: cut to half, the model computes something else"),
        (Apart, {"conv1": ngn.Channels(8)}, (2, 4, 6, 6), r"conv1: cut to half, .*running_mean"),
        (Outside, {"layers": ngn.Depth()}, (2, 8), "layers: cut to half,"),
    ],
)
def test_what_could_not_be_cut_is_found_on_an_example_before_the_training(model, sizes, shape, message):
    model, x = model(), torch.randn(*shape)
    before = model(x), repr(model)
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(model, sizes, example=x)
    assert torch.equal(model(x), before[0])
    assert repr(model) == before[1]
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(model, sizes, budget=ngn.Budget(macs="60%", example=x))


def test_what_is_missing_can_be_named():
    x = torch.randn(2, 5, 8)
    learner = ngn.learn_sizes(Counted(), {"": ngn.Heads(**HEADS, counts=["h"], t0=1.0)}, example=x)
    small = learner.deploy(example=x, unsettled="allow")
    assert (small.h, small.wq.out_features) == (2, 4)
    with pytest.raises(ValueError, match="has no integer attribute 'n_heads'"):
        ngn.learn_sizes(Counted(), {"": ngn.Heads(**HEADS, counts="n_heads")})
    learner = ngn.learn_sizes(
        Apart(), {"conv1": ngn.Channels(8, also=["bn1"], into="conv2")}, example=x[0].expand(4, 5, 8)[None]
    )
    assert float(learner.size()) > 8, "the trial leaves the boundary where it was"


class Joined(nn.Module):
    """A gated feed-forward layer with a fused up projection, as in Phi-3."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj = nn.Linear(16, 128), nn.Linear(64, 16)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value, self.dense = nn.Linear(16, 48), nn.Linear(16, 16)


@pytest.mark.parametrize("model", [Joined, Attending])
def test_maps_are_not_read_backwards(model):
    with pytest.raises(ValueError, match="shapes alone do not tell its up and down layers"):
        ngn.learn_sizes(model(), {"": ngn.Width(8)})


@pytest.mark.parametrize(
    ("example", "said"),
    [
        (torch.randn(1, 1, 9, 9), "to have 3 channels, but got 1"),
        ((torch.randn(1, 3, 9, 9),) * 2, "takes 2 positional arguments but 3 were given"),
        ("nothing", "conv2d"),
    ],
)
def test_a_wrong_example_is_not_blamed_on_a_size(example, said):
    model = convs(nn.ReLU(), nn.Conv2d(6, 2, 1))
    with pytest.raises(ValueError, match=f"^the model fails on the example: .*{said}"):
        ngn.learn_sizes(model, {"0": ngn.Channels()}, example=example)
    assert [*model[2].children()] == []
    learner = ngn.learn_sizes(model, {"0": ngn.Channels()})
    with pytest.raises(ValueError, match=f"^the model fails on the example: .*{said}"):
        learner.deploy(example=example)


class Normalised(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return nn.functional.normalize(h, dim=-1)


class Independent(ngn.Capacity):
    """A user's capacity: gates without an order."""

    replicas = None

    def __init__(self, K: int) -> None:
        super().__init__()
        self.K, self.a = K, nn.Parameter(torch.linspace(2.0, -2.0, K, dtype=torch.float64))

    def gates(self, mode: str) -> Tensor:
        return torch.sigmoid(self.a) if mode == "soft" else self.kept().double()

    def weights(self) -> Tensor:
        return torch.ones_like(self.a, requires_grad=False)

    def penalty(self) -> Tensor:
        return torch.sigmoid(self.a).sum()

    def kept(self) -> Tensor:
        return self.a.detach() > 0

    def count(self) -> Tensor:
        return self.kept().sum()

    def size(self) -> Tensor:
        return torch.sigmoid(self.a.detach()).sum()


@pytest.mark.parametrize(
    "made", [ngn.CountGate, ngn.FixedCount, ngn.Retained, Independent], ids=lambda made: made.__name__
)
def test_every_capacity_is_tried_on_the_example(made):
    def capacity(name, K):
        return made(K)

    x, sizes = torch.randn(5, 8), {"": ngn.Width(6)}
    mixing = nn.Sequential(nn.Linear(8, 12), Normalised(), nn.Linear(12, 8))
    with pytest.raises(ValueError, match="cut to half, the model computes something else"):
        ngn.learn_sizes(mixing, sizes, example=x, capacity=capacity)
    learner = ngn.learn_sizes(chain(8, 12, 8), sizes, example=x, capacity=capacity)
    assert [type(axis.capacity) for axis in learner.axes] == [made]  # the trial's capacity is gone
    assert [axis.mode for axis in learner.axes] == ["soft"]


def test_of_several_sizes_the_one_that_cannot_be_cut_is_named():
    mixing = nn.Sequential(nn.Linear(8, 12), Normalised(), nn.Linear(12, 8))
    model = nn.Sequential(chain(8, 12, 8), mixing)
    with pytest.raises(ValueError, match=r"^1: cut to half,"):
        ngn.learn_sizes(model, {"*": ngn.Width(6)}, example=torch.randn(5, 8), capacity=lambda name, K: Independent(K))
