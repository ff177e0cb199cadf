"""The residual networks for CIFAR-10 compute what the paper describes, with the weights of the data set."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.data import resnets
from experiments.models.cifar_resnet import CifarResNet, standardised, with_weights

TINY = resnets.Network("", "", blocks=2, widths=(2, 4, 8), classes=3)


def made() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    # Variances have to be positive.
    return {
        name: (rng.random(shape) + 0.1 if name.endswith("var") else rng.normal(size=shape)).astype(np.float32)
        for name, shape in TINY.shapes().items()
    }


def reference(x: Tensor, given: dict[str, np.ndarray]) -> Tensor:
    """The same network without modules, in float64."""
    state = {name: torch.tensor(array, dtype=torch.float64) for name, array in given.items()}

    def layer(h: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        h = F.conv2d(h, state[f"{conv}.weight"], stride=stride, padding=1)
        weight, bias, mean, variance = (
            state[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (h - mean) / (variance + 1e-5).sqrt() * weight + bias

    h = layer(x.double(), "conv1", "bn1").clamp(min=0)
    for stage, width in enumerate(TINY.widths, start=1):
        for block in range(TINY.blocks):
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
        found = with_weights(TINY, made())(x)
    assert expected.std() > 0
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_the_tensors_of_the_data_set_are_those_of_the_module():
    for network in resnets.NETWORKS.values():
        state = CifarResNet(network.blocks, network.widths, network.classes).state_dict()
        shapes = {name: tuple(value.shape) for name, value in state.items() if "num_batches" not in name}
        assert shapes == network.shapes()


def test_pixels_are_standardised_by_channel():
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1)
    black, white = standardised(pixels)[:, :, 0, 0]
    torch.testing.assert_close(black, torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]))
    torch.testing.assert_close(white, torch.tensor([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225]))
