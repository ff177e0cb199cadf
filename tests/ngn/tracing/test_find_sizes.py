"""Sizes that a trace finds, beside those stated by hand; and that what is found is right."""

from __future__ import annotations

import pytest
import torch
from sizable import Forward, cut_exactly
from torch import Tensor, library, nn
from traceable import NETWORKS, ResNet, UNet, example_of, network

import ngn
from ngn.budget.cost import Cost
from ngn.cut import cut_to
from ngn.sizes.trial import difference


@pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.__name__)
def test_networks_have_the_sizes_stated_by_hand_and_are_cut_exactly(kind, tmp_path):
    x, model = example_of(kind), network(kind)
    paths = {id(module): path for path, module in model.named_modules()}
    for group in ngn.find_sizes(model, x):
        consumers = {paths[id(consumer.holder)] for consumer in group.consumers}
        before, after = ([m or "model" for m in group.members if (m in consumers) is read] for read in (False, True))
        assert " ".join([*before, ">", *after]) == NETWORKS[kind][group.name][2]
    wanted = {name: f"{length} {unit}" for name, (length, unit, _) in NETWORKS[kind].items()}
    cut_exactly(kind, x, tmp_path, wanted)


def test_the_table_says_what_is_not_cut_and_why():
    text = str(ngn.find_sizes(network(UNet), example_of(UNet)))
    assert "down1    8 channels" in text
    assert "is that of an input" in text


def test_groups_are_chosen_by_the_names_of_their_modules():
    found = ngn.find_sizes(model := network(ResNet), example_of(ResNet))
    chosen = found.only("layers.2.conv1").without("head")
    assert [group.name for group in found.without("layers.**")] == []
    with pytest.raises(ValueError, match=r"'layer.0' matches no module with a size; there are stem, layers"):
        found.only("layer.0")
    assert ngn.learn_sizes(model, chosen).names == ["layers.2.conv1"]
    with pytest.raises(ValueError, match="found in another model"):
        ngn.learn_sizes(network(ResNet), found)


@pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("which", ["parameters", "macs"])
def test_the_traced_cost_is_the_measured_one_at_any_counts(kind, which):
    model, x = network(kind), example_of(kind)
    learner = ngn.learn_sizes(model, example=x)
    cost = Cost(model, learner.axes, which, x)
    assert cost.exact is not None
    random = torch.Generator().manual_seed(3)
    for _ in range(3):
        counts = tuple(int(torch.randint(1, axis.K + 1, (), generator=random)) for axis in learner.axes)
        assert cost.measured(counts) == cost.of(cut_to(model, learner.axes, counts))
        value, slope = cost(torch.tensor(counts, dtype=torch.float64))
        more = torch.tensor(counts, dtype=torch.float64)
        more[0] += 1e-3
        assert float(cost(more)[0] - value) == pytest.approx(1e-3 * float(slope[0]), rel=1e-2)


def between(function) -> nn.Module:
    """An operation between two layers, the second with a hook that writes to its input."""
    model = Forward(lambda own, x: own.down(function(own.up(x))), up=nn.Linear(4, 9), down=nn.Linear(9, 3))
    model.down.register_forward_pre_hook(lambda layer, inputs: (inputs[0].mul_(2),))
    return model


def edges(h):
    """Sums over neighbours, as graph networks write them without a package."""
    to, index = torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1])
    summed = torch.zeros(len(h), h.shape[1]).scatter_add(0, to[:, None].expand(-1, h.shape[1]), h[index])
    return summed + torch.zeros_like(h).scatter_add_(0, to.view(-1, 1).repeat(1, h.size(1)), h[index])


def filled(h):
    out = h.new_empty(len(h), 2 * h.shape[1])
    out[:, : h.shape[1]], out[:, h.shape[1] :] = h, h.relu()
    return sum(out.chunk(2, 1))


class Reshaped(nn.Conv2d):
    """A convolution of somebody else, that reads an attribute which the cut sets in every convolution."""

    def forward(self, x):
        weight = self.weight.reshape(self.out_channels, -1).reshape_as(self.weight)
        return nn.functional.conv2d(x, weight, self.bias, groups=self.groups)


class Standardised(nn.Conv2d):
    """A convolution whose weights have mean 0 and variance 1 over the inputs of each unit."""

    def forward(self, x):
        weight = self.weight.reshape(1, self.out_channels, -1)
        weight = nn.functional.batch_norm(weight, None, None, training=True).reshape_as(self.weight)
        return nn.functional.conv2d(x, weight, self.bias)


class Routed(nn.Module):
    """Experts as stacked matrices, for rows that are sorted by expert: torch's grouped product."""

    def __init__(self, dtype):
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(3, *shape, dtype=dtype) / 4) for shape in ((8, 48), (48, 8)))

    def forward(self, x):
        ends = torch.tensor([2, 5, len(x)], dtype=torch.int32)
        return torch._grouped_mm(torch._grouped_mm(x, self.up, offs=ends).relu(), self.down, offs=ends)


@pytest.mark.parametrize(("dtype", "block"), [(torch.float32, 4), (torch.bfloat16, 8)])
def test_a_grouped_product_loses_whole_blocks_of_16_bytes(dtype, block):
    model, x = Routed(dtype), torch.randn(6, 8, dtype=dtype)
    (group,) = ngn.find_sizes(model, x)
    assert (group.length, {cut.width for cut in group.cuts}) == (48 // block, {block})
    learner = ngn.learn_sizes(model, example=x)
    assert difference(model, learner.axes, x, lambda axis: 1) is None
    learner = ngn.learn_sizes(Routed(dtype), {"": ngn.Width(round_to=16, t0=1.2)}, example=x)
    assert learner.deploy(example=x, unsettled="allow").up.shape == (3, 8, 32)


@library.custom_op("regions::roi_align", mutates_args=())
def roi_align(input: Tensor, rois: Tensor) -> Tensor:
    """Torchvision's operation by name and arguments: a mean over a part of an image, [regions, channels, 1, 1]."""
    means = []
    for number, x0, y0, x1, y1 in (5 * rois).int().tolist():
        rows, columns = (slice(min(ends), max(ends) + 1) for ends in ((y0, y1), (x0, x1)))
        means.append(input[number % len(input), :, rows, columns].mean((1, 2), keepdim=True))
    return torch.stack(means)


def detector() -> nn.Module:
    """Regions, which a layer of its own places, of the channels of a convolution."""

    def detect(own, x):
        h = own.stem(x).relu()
        regions = roi_align(h, own.places(h).mean((2, 3)).sigmoid())
        return own.head(own.mask(regions).relu().flatten(1))

    convs = {"stem": nn.Conv2d(3, 8, 3, padding=1), "places": nn.Conv2d(8, 5, 3, padding=1), "mask": nn.Conv2d(8, 6, 1)}
    return Forward(detect, **convs, head=nn.Linear(6, 2))


def test_regions_of_images_keep_channels():
    learner = ngn.learn_sizes(detector(), example=IMAGES)
    assert {axis.name: axis.K for axis in learner.axes} == {"stem": 8, "mask": 6}
    assert difference(learner.model, learner.axes, IMAGES, lambda axis: 3) is None


def test_a_sparse_input_is_compared_as_it_is():
    graph = Forward(
        lambda own, a, x: own.down(torch.sparse.mm(a, own.up(x)).relu()), up=nn.Linear(4, 9), down=nn.Linear(9, 2)
    )
    learner = ngn.learn_sizes(graph, example=(torch.eye(2).to_sparse(), ROWS))
    assert {axis.name: axis.K for axis in learner.axes} == {"up": 9}


def scaled(persistent: bool) -> nn.Module:
    """Units times a buffer that a file of the model holds, or not."""
    maps = {"first": nn.Linear(4, 8), "last": nn.Linear(8, 2)}
    model = Forward(lambda own, x: own.last(torch.tanh(own.first(x) * own.scale)), **maps)
    model.register_buffer("scale", torch.rand(8), persistent=persistent)
    return model


def queries() -> nn.Module:
    """Attention of four heads, of which the first and third, and the second and fourth read the same keys."""

    def attend(own, x):
        q, k, v = (part(x).unflatten(-1, (-1, 4)).transpose(1, 2) for part in (own.q, own.k, own.v))
        k, v = (h[:, None].expand(-1, 2, -1, -1, -1).reshape(len(x), -1, x.shape[1], 4) for h in (k, v))
        return own.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    return Forward(attend, q=nn.Linear(8, 16), k=nn.Linear(8, 8), v=nn.Linear(8, 8), out=nn.Linear(16, 8))


def mixer() -> nn.Module:
    """Layers over channels and over tokens: what a layer over tokens reads has the channels in another dimension."""

    def mix(own, x):
        h = own.embed(x)[:, None].expand(-1, 10, -1) + own.place
        return own.head(h + own.back(own.tokens(h.mT).relu()).mT).mean(1)

    maps = {"embed": nn.Linear(4, 16), "tokens": nn.Linear(10, 12), "back": nn.Linear(12, 10), "head": nn.Linear(16, 3)}
    return Forward(mix, place=nn.Parameter(torch.randn(10, 16)), **maps)


def convs(*parts: nn.Module) -> nn.Sequential:
    return nn.Sequential(parts[0], nn.ReLU(), *parts[1:], nn.ReLU(), nn.Conv2d(6, 2, 1))


def pooled() -> nn.Module:
    parts = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    return nn.Sequential(*parts).to(memory_format=torch.channels_last)


def unpooled() -> nn.Module:
    def forward(own, x):
        h, places = nn.functional.max_pool2d(own.up(x), 2, return_indices=True)
        return own.down(nn.functional.max_unpool2d(own.inner(h), places, 2))

    return Forward(forward, up=nn.Conv2d(3, 6, 2), inner=nn.Conv2d(6, 6, 1), down=nn.Conv2d(6, 2, 1))


def weight_normed() -> nn.Module:
    inner = map(nn.utils.parametrizations.weight_norm, (nn.Conv2d(8, 8, 1, groups=8), nn.Conv2d(8, 6, 3)))
    return convs(nn.Conv2d(3, 8, 3), *inner)


ROWS, WORDS, IMAGES = torch.randn(2, 4), torch.randn(2, 5, 8), torch.randn(2, 3, 9, 9)
LONG_AS_UNITS = [
    edges,
    filled,
    lambda h: h * torch.ones(len(h), 1).expand(-1, h.shape[1]),
    lambda h: torch.maximum(h, torch.full((len(h), h.shape[1]), 0.1)) + torch.ones(h.shape[-1]),
    lambda h: sum(torch.broadcast_tensors(torch.ones(1, 1), h)) + torch.ones(1).tile(h.shape[1]),
    lambda h: torch.view_as_real(torch.polar(h.abs(), h) * 1j).sum(-1),
    lambda h: torch.fft.irfft(torch.fft.rfft(h, dim=0), n=len(h), dim=0),
    lambda h: torch.sparse.mm(torch.eye(len(h)).to_sparse(), h),
]
NOT_ZERO_AT_ZERO = [torch.cos, lambda h: h.exp() + 1, lambda h: h * torch.ones(2, 1)]
CUT = {
    **{
        f"function {number}": (lambda function=function: between(function), ROWS, {"up": "9 units"})
        for number, function in enumerate([*LONG_AS_UNITS, *NOT_ZERO_AT_ZERO])
    },
    "torch's encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 4, 24, 0.0, batch_first=True), 1), WORDS,
        {"layers.0.self_attn": "4 heads", "layers.0.linear1": "24 units"},
    ),
    # the norm of the weight, over its inputs, is that of before
    "weight norm": (weight_normed, IMAGES, {"2": "8 channels", "3": "6 channels"}),
    "a standardised weight": (lambda: convs(nn.Conv2d(3, 8, 3), Standardised(8, 6, 3)), IMAGES, {"2": "6 channels"}),
    "a buffer": (lambda: scaled(True), ROWS, {"first": "8 units"}),
    "repeated keys, in turn": (queries, WORDS, {"q": "2 heads"}),
    "an attribute that the cut sets in any convolution": (
        lambda: convs(Reshaped(3, 6, 3)), IMAGES, {"0": "6 channels"},
    ),
    "pooling undone": (unpooled, IMAGES, {"up": "6 channels"}),
    "bags of embeddings": (
        lambda: nn.Sequential(nn.EmbeddingBag(9, 6), nn.Linear(6, 2)), WORDS.argsort(-1)[0], {"0": "6 units"},
    ),
    "channels last": (pooled, IMAGES.to(memory_format=torch.channels_last), {"0": "8 channels"}),
    "sizes that meet in one activation": (mixer, ROWS, {"place": "16 units", "tokens": "12 units"}),
}  # fmt: skip


@pytest.mark.parametrize("structure", CUT)
def test_a_structure_is_found_and_cut_exactly(structure, tmp_path):
    make, x, wanted = CUT[structure]
    cut_exactly(make, x, tmp_path, wanted)


FIXED = {
    "fft_r2c over it in the model": (lambda: between(lambda h: torch.fft.fft(h).real), ROWS, "up"),
    "softmax over it in the model": (lambda: between(lambda h: h.softmax(-1)), ROWS, "up"),
    "indexed in the model": (lambda: between(lambda h: h[:, torch.arange(8, -1, -1)]), ROWS, "up"),
    "a constant of the program in the model": (lambda: between(lambda h: h + torch.arange(9.0)), ROWS, "up"),
    "sort over it in the model": (lambda: between(lambda h: h.sort(-1).values), ROWS, "up"),
    "a buffer that no file holds in the model": (lambda: scaled(False), ROWS, "first"),
    "a norm over it in 2": (lambda: convs(nn.Conv2d(3, 8, 3), Standardised(8, 6, 3)), IMAGES, "0"),
    "regions of it are read in the model": (detector, IMAGES, "places"),
}  # fmt: skip


@pytest.mark.parametrize("reason", FIXED)
def test_what_fixes_a_length_is_said(reason):
    make, x, member = FIXED[reason]
    found = ngn.find_sizes(make(), x)
    assert member not in [group.name for group in found.groups]
    assert any(reason in fixed.reason for fixed in found.fixed if member in fixed.members)
