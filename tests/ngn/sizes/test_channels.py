"""Which modules have and take the channels of a convolution, and what is said where that cannot be known."""

import pytest
import torch
from modes import hard_output
from torch import nn

import ngn
from ngn.gate import softplus_inverse

IMAGES = torch.randn(3, 3, 12, 12)
CHANNELS = ngn.Channels


def conv(before: int = 3, after: int = 8, size: int = 3, **more) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, **more)


def ended(*parts: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*parts, nn.ReLU(), conv(8, 2, 1))


def exact(model: nn.Module, sizes: dict[str, ngn.Channels], x: torch.Tensor, count: int) -> nn.Module:
    """Cut to a count, with an example; what is left computes what the model does without the others."""
    learner = ngn.learn_sizes(model, sizes, example=x)
    for axis in learner.axes:
        axis.capacity.tau.data.fill_(softplus_inverse(max(1e-4, count - 1) / axis.capacity.stride))
    with torch.no_grad():
        wanted = hard_output(learner.eval(), x)
    small = learner.deploy(example=x, unsettled="allow")
    torch.testing.assert_close(small(x), wanted)
    return small


class Spectrogram(nn.Module):
    """A convolution over sensors and time, then one over time, as in EEGNet."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, (4, 3)), nn.Conv1d(8, 6, 3)

    def forward(self, x):
        return self.b(self.a(x).relu().squeeze(2)).mean(-1)


@pytest.mark.parametrize("batch", [2, 8])
def test_a_convolution_of_other_dimensions_is_gated_along_its_channels(batch):
    small = exact(Spectrogram(), {"a": CHANNELS()}, torch.randn(batch, 1, 4, 16), 3)
    assert (small.a.out_channels, small.b.in_channels) == (3, 3)


def test_an_activation_of_another_size_is_refused_not_emptied():
    learner = ngn.learn_sizes(
        nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), {"": ngn.Width(8)}, example=torch.randn(5, 3)
    )
    with pytest.raises(ValueError, match=r"dimension -1 .* \[.*, 5\] must be a multiple of the axis's 8 components"):
        learner.axes[0](torch.ones(2, 5))


class Frozen(nn.Module):
    """A batch norm with buffers only, as in detectors."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.rand(channels) + 0.5)
        self.register_buffer("bias", torch.rand(channels))

    def forward(self, x):
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(8, 1, 1))

    def forward(self, x):
        return x * self.gamma


def test_what_mixes_the_channels_is_said():
    with pytest.raises(ValueError, match=r"no channels to cut inside it\. 8 entries of 0, 3: a norm over it in 1"):
        ngn.learn_sizes(ended(conv(), LayerNorm2d(8)), {"0": CHANNELS()}, example=IMAGES)
    mixed = nn.Sequential(conv(), nn.GLU(1), nn.Flatten(), nn.Linear(4 * 10 * 10, 4))
    assert exact(mixed, {"0": CHANNELS()}, IMAGES, 3)[0].out_channels == 6, "both halves of a gated unit"


def test_parameters_and_buffers_of_ones_own_are_cut():
    assert exact(ended(conv(), Frozen(8)), {"0": CHANNELS()}, IMAGES, 3)[1].bias.shape == (3,)
    assert exact(ended(conv(), Scale()), {"0": CHANNELS()}, IMAGES, 3)[1].gamma.shape == (3, 1, 1)


def test_whole_groups_of_a_group_norm_can_be_cut():
    with pytest.raises(ValueError, match="8 channels do not divide 8 into multiples of 2; choose K from"):
        ngn.learn_sizes(ended(conv(), nn.GroupNorm(4, 8)), {"0": CHANNELS(8)}, example=IMAGES)
    for K in (4, None):
        small = exact(ended(conv(), nn.GroupNorm(4, 8)), {"0": CHANNELS(K)}, IMAGES, 3)
        assert (small[1].num_groups, small[1].num_channels) == (3, 6)


def test_whole_groups_of_a_grouped_convolution_are_cut():
    grouped = nn.Sequential(conv(), nn.ReLU(), nn.ConvTranspose2d(8, 8, 4, 2, 1, groups=4), conv(8, 2))
    small = exact(grouped, {"0": CHANNELS()}, IMAGES, 3)
    assert (small[0].out_channels, small[2].groups, small[3].in_channels) == (6, 3, 6)


def test_an_example_that_tries_nothing_is_warned_of(recwarn):
    model = nn.Sequential(conv(bias=False), nn.ReLU(), conv(8, 2))
    learner = ngn.learn_sizes(model, {"0": CHANNELS()}, example=0 * IMAGES)
    (warning,) = [str(each.message) for each in recwarn]
    assert warning.startswith("the example does not test 0: it never reaches it, or only with zeros")
    assert not any(axis.called for axis in learner.axes)


def test_entries_of_a_report_are_channels_where_pixels_follow():
    model = nn.Sequential(conv(3, 16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 10 * 10, 2))
    learner = ngn.learn_sizes(model, {"0": CHANNELS(8, t0=4.0)}, example=IMAGES)
    assert "8 -> 5 channels  16 -> 10 " in str(learner.report())
