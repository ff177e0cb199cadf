"""The residual networks for small images of He et al., and those of them that are trained already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.core.task import DataInfo
from experiments.data import DataError, resnets

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of red, green and blue in [0, 1]: what the trained networks expect to be subtracted and divided by."""


def standardised(pixels: Tensor) -> Tensor:
    """Return images, uint8 [N, 3, H, W], as the trained networks expect them, float32."""
    mean, std = (torch.tensor(each, device=pixels.device).view(3, 1, 1) for each in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std


class Padded(nn.Module):
    """The shortcut without weights: every second pixel, with channels of zeros on both sides (option A)."""

    def __init__(self, added: int) -> None:
        super().__init__()
        self.added = added

    def forward(self, x: Tensor) -> Tensor:
        front = self.added // 2
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, front, self.added - front))


class Block(nn.Module):
    """Two 3 x 3 convolutions, each with its normalisation, beside a shortcut. The first has the stride.

    Where shapes differ, the shortcut pads with zeros, or (``maps``) is a 1 x 1 convolution.
    """

    def __init__(self, channels: int, out: int, stride: int, maps: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        between = nn.Conv2d(channels, out, 1, stride, bias=False) if maps else Padded(out - channels)
        self.shortcut = nn.Identity() if stride == 1 else between

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + self.shortcut(x))


class CifarResNet(nn.Module):
    """6 ``blocks`` + 2 layers: [N, 3, 32, 32] to [N, classes].

    Source: He et al., "Deep residual learning for image recognition", 2016, section 4.2; shortcuts of option A or B.

    Args:
        blocks: residual blocks of each stage.
        widths: channels of each stage.
        maps: whether a shortcut between stages is a map (option B).

    >>> import torch
    >>> CifarResNet(3)(torch.ones(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, blocks: int, widths: Sequence[int] = (16, 32, 64), classes: int = 10, maps: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        before = [widths[0], *widths[:-1]]
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(
                Block(channels, width, 1 + (stage > 0), maps), *(Block(width, width, 1) for _ in range(blocks - 1))
            )
            for stage, (channels, width) in enumerate(zip(before, widths, strict=True))
        )
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(h))).mean((2, 3)))


def with_weights(model: CifarResNet, weights: Mapping[str, Tensor], where: str) -> CifarResNet:
    """Put a copy of these weights into the module, and return it in eval mode.

    Raises:
        DataError: if they are those of another network; the message begins with ``where``.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError as fault:
        raise DataError(f"{where}: no weights of such a network ({str(fault).splitlines()[0]})") from None
    return model.eval()


def load_trained(name: str, root: Path) -> tuple[CifarResNet, DataInfo]:
    """Return ``resnet20`` or ``resnet56`` of a data root, trained on CIFAR-10, in eval mode.

    Raises:
        DataError: if the data set ``resnets`` is missing or damaged.
        KeyError: if there is no such network.
    """
    read, model = resnets.load_data(root), CifarResNet(resnets.NETWORKS[name].blocks)
    weights = {key: torch.from_numpy(array) for key, array in read.weights[name].items()}
    return with_weights(model, weights, resnets.file_of(name)), read.info
