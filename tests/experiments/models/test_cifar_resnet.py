"""The residual networks for CIFAR-10 compute what the paper describes, with the weights of the data set."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from experiments.data import DataError
from experiments.models.cifar_resnet import CifarResNet, standardised, with_weights
from experiments.tasks.images.resnets import with_given_weights

BLOCKS, WIDTHS = 2, (2, 4, 8)


def made():
    rng = np.random.default_rng(6)
    # Variances have to be positive.
    return {
        name: torch.tensor(rng.random(v.shape) + 0.1 if name.endswith("var") else rng.normal(size=v.shape)).float()
        for name, v in CifarResNet(BLOCKS, WIDTHS, 3).state_dict().items()
        if "num_batches" not in name
    }


def reference(x, given):
    """The same network without modules, in float64."""
    state = {name: value.double() for name, value in given.items()}

    def layer(h, conv, norm, stride=1):
        h = F.conv2d(h, state[f"{conv}.weight"], stride=stride, padding=1)
        weight, bias, mean, variance = (
            state[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (h - mean) / (variance + 1e-5).sqrt() * weight + bias

    h = layer(x.double(), "conv1", "bn1").clamp(min=0)
    for stage, width in enumerate(WIDTHS, start=1):
        for block in range(BLOCKS):
            place = f"layer{stage}.{block}"
            down = stage > 1 and block == 0
            inner = layer(h, f"{place}.conv1", f"{place}.bn1", 2 if down else 1).clamp(min=0)
            if down:
                zeros = torch.zeros(len(h), width // 4, h.shape[2] // 2, h.shape[3] // 2, dtype=h.dtype)
                h = torch.cat([zeros, h[:, :, ::2, ::2], zeros], dim=1)
            h = (layer(inner, f"{place}.conv2", f"{place}.bn2") + h).clamp(min=0)
    return h.mean((2, 3)) @ state["linear.weight"].T + state["linear.bias"]


def test_the_outputs_are_those_of_a_network_written_by_hand():
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected = reference(x, made())
    with torch.no_grad():
        found = with_weights(CifarResNet(BLOCKS, WIDTHS, 3), made(), "here")(x)
    assert expected.std() > 0
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_weights_of_another_network_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"here: no weights of such a network"):
        with_weights(CifarResNet(3, WIDTHS, 3), made(), "here")
    save_file(CifarResNet(1).state_dict(), file := tmp_path / "mine.safetensors")
    whole, info = with_given_weights(CifarResNet(1).eval(), str(file), "a network")
    assert (info.name, whole.training) == ("mine", False)
    with pytest.raises(DataError, match=r"model\.path=.*mine.*: does not hold weights of a network, as safetensors"):
        with_given_weights(CifarResNet(2), str(file), "a network")


def test_pixels_are_standardised_by_channel():
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1)
    black, white = standardised(pixels)[:, :, 0, 0]
    torch.testing.assert_close(black, torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]))
    torch.testing.assert_close(white, torch.tensor([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225]))
