"""Which modules have and take the channels of a convolution, and what is said where that cannot be known."""

import pytest
import torch
from sizable import Forward, cut_exactly
from torch import nn

import ngn

IMAGES = torch.randn(3, 3, 12, 12)
CHANNELS = ngn.Channels


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


CUT = {
    "of other dimensions": (over_sensors, torch.randn(2, 1, 4, 16), {"a": "8 channels"}, {"a": CHANNELS()}),
    # with as many samples as channels
    "in a batch of eight": (over_sensors, torch.randn(8, 1, 4, 16), {"a": "8 channels"}, {"a": CHANNELS()}),
    "both halves of a gated unit": (
        lambda: nn.Sequential(conv(), nn.GLU(1), nn.Flatten(), nn.Linear(4 * 10 * 10, 4)),
        IMAGES,
        {"0": "4 channels"},
        {"0": CHANNELS()},
    ),
    "buffers of one's own": (lambda: ended(conv(), Frozen(8)), IMAGES, {"0": "8 channels"}, {"0": CHANNELS()}),
    "parameters of one's own": (
        lambda: ended(conv(), Forward(lambda own, x: x * own.gamma, gamma=nn.Parameter(torch.rand(8, 1, 1)))),
        IMAGES,
        {"0": "8 channels"},
        {"0": CHANNELS()},
    ),
    "groups of a norm": (lambda: ended(conv(), nn.GroupNorm(4, 8)), IMAGES, {"0": "4 channels"}, {"0": CHANNELS()}),
    "as many": (lambda: ended(conv(), nn.GroupNorm(4, 8)), IMAGES, {"0": "4 channels"}, {"0": CHANNELS(4)}),
    "groups of a convolution": (
        lambda: nn.Sequential(conv(), nn.ReLU(), nn.ConvTranspose2d(8, 8, 4, 2, 1, groups=4), conv(8, 2)),
        IMAGES,
        {"0": "4 channels"},
        {"0": CHANNELS()},
    ),
}


@pytest.mark.parametrize("structure", CUT)
def test_channels_are_cut_exactly(structure, tmp_path):
    make, x, wanted, sizes = CUT[structure]
    cut_exactly(make, x, tmp_path, wanted, sizes)


def test_an_activation_of_another_size_is_refused_not_emptied():
    learner = ngn.learn_sizes(
        nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), {"": ngn.Width(8)}, example=torch.randn(5, 3)
    )
    with pytest.raises(ValueError, match=r"dimension -1 .* \[.*, 5\] must be a multiple of the axis's 8 components"):
        learner.axes[0](torch.ones(2, 5))


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
