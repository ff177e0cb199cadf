"""Channels behind which there are squeeze-and-excitation blocks, which take them twice."""

import pytest
import torch
from torch import nn
from transformers import EfficientNetConfig, EfficientNetModel

import ngn

IMAGES = torch.randn(3, 3, 8, 8)


class SqueezeExcitation(nn.Module):
    def __init__(self, channels: int, few: int, plain: bool = False) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, few) if plain else nn.Conv2d(channels, few, 1)
        self.fc2 = nn.Linear(few, channels) if plain else nn.Conv2d(few, channels, 1)
        self.plain = plain

    def forward(self, x):
        mean = x.mean((2, 3)) if self.plain else x.mean((2, 3), keepdim=True)
        s = self.fc2(nn.functional.silu(self.fc1(mean))).sigmoid()
        return x * (s[..., None, None] if self.plain else s)


class ConvNorm(nn.Sequential):
    def __init__(self, before: int, after: int, groups: int = 1) -> None:
        super().__init__(nn.Conv2d(before, after, 3, padding=1, groups=groups), nn.BatchNorm2d(after), nn.ReLU())


class Inverted(nn.Module):
    """An inverted residual block, of MobileNetV3 and EfficientNet."""

    def __init__(self, kind=SqueezeExcitation, plain=False, after: nn.Module | None = None) -> None:
        super().__init__()
        parts = [ConvNorm(4, 12), ConvNorm(12, 12, 12), kind(12, 5, plain), after or nn.Identity()]
        self.block = nn.Sequential(*parts, nn.Conv2d(12, 4, 1), nn.BatchNorm2d(4))

    def forward(self, x):
        return x + self.block(x)


def net(*blocks) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(ConvNorm(3, 4), *(make() for make in blocks), nn.Flatten(), nn.Linear(4 * 64, 2)).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(), module.running_var.uniform_(0.5, 2.0)
    return model


@pytest.mark.parametrize("plain", [False, True], ids=["convolutions", "linear maps"])
@pytest.mark.parametrize("after", [None, nn.Hardswish()], ids=["nothing", "an activation"])
def test_both_consumers_are_cut(plain, after):
    model = net(*[lambda: Inverted(plain=plain, after=after)] * 2)
    learner = ngn.learn_sizes(model, {"*.block.0.0": ngn.Channels(6, t0=1.4)}, example=IMAGES)
    soft = learner.axes[0].coefficients()
    assert 0 < soft.min() < 0.9  # so that folding shows
    small = learner.deploy(example=IMAGES, unsettled="allow")  # compares with the hard model
    block = small[1].block
    kept = int(learner.count()[0]) * 2
    assert block[0][0].out_channels == block[1][0].groups == block[4].in_channels == kept < 12
    assert block[2].fc1.weight.shape[:2] == (5, kept)
    assert block[2].fc2.weight.shape[:2] == (kept, 5)
    assert not any(isinstance(module, ngn.OrderedAxis) or module._forward_pre_hooks for module in small.modules())


def test_the_soft_model_multiplies_what_each_consumer_is_given():
    """Both consumers get c h: compare with a block whose weights are multiplied by hand."""
    model = net(Inverted)
    learner = ngn.learn_sizes(model, {"1.block.0.0": ngn.Channels(t0=1.4)}, example=IMAGES)
    c = learner.axes[0].coefficients().detach()
    by_hand = net(Inverted)
    with torch.no_grad():
        by_hand[1].block[2].fc1.weight.mul_(c.view(1, -1, 1, 1))
        by_hand[1].block[4].weight.mul_(c.view(1, -1, 1, 1))
    assert torch.allclose(learner(IMAGES), by_hand(IMAGES), atol=1e-6)
    learner(IMAGES).square().mean().backward()
    assert learner.axes[0].capacity.tau.grad.abs() > 0


def test_efficientnet():
    """Blocks of transformers without any nn.Sequential; one pattern matches all convolutions."""
    torch.manual_seed(0)
    config = EfficientNetConfig(
        image_size=32,
        width_coefficient=0.5,
        depth_coefficient=0.5,
        hidden_dim=640,
        in_channels=[32, 16],
        out_channels=[16, 24],
        kernel_sizes=[3, 3],
        strides=[1, 2],
        num_block_repeats=[1, 2],
        expand_ratios=[4, 4],
        depthwise_padding=[],
    )
    model = EfficientNetModel(config).eval()
    x = torch.randn(2, 3, 32, 32)
    sizes = {"encoder.blocks.*.expansion.expand_conv": ngn.Channels(8, t0=1.3)}
    learner = ngn.learn_sizes(model, sizes, example=x)
    small = learner.deploy(example=x, unsettled="allow")
    for name in learner.names:
        block = small.get_submodule(name.rpartition(".expansion")[0])
        assert block.squeeze_excite.reduce.in_channels == block.projection.project_conv.in_channels < 32
