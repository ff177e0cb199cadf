"""Learned numbers of channels of convolutions that exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from ngn.axis import inputs, outputs
from ngn.sizes.base import Maker, Places, Size, hook


class Channels(Size):
    """The channels that a convolution gives, in ``K`` groups of neighbours.

    What has them is found in the order of the modules beside the convolution: normalisations and depthwise convolutions
    of as many channels, then the convolution or linear map that takes them. So the convolution's output must go there
    and nowhere else: not into a residual sum. ``learner.deploy(example=...)`` finds what does not hold.

    Args:
        K, places, round_to, gate: see :class:`Size`; K = None for single channels.
        also, into: names, in the parent of the convolution, of what has the channels, and of what takes them.

    >>> import torch, ngn
    >>> convs = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 2, 3)]
    >>> learner = ngn.learn_sizes(torch.nn.Sequential(*convs), {"0": ngn.Channels(4, t0=1.2)})
    >>> learner.deploy(example=torch.randn(1, 3, 9, 9), unsettled="allow")[3].in_channels
    4
    """

    unit = "channels"

    def __init__(
        self, K: int | None = None, places: Places = None, also: Sequence[str] = (), into: str = "", **gate: Any
    ) -> None:
        super().__init__(K, places, **gate)
        self.also, self.into = also, into

    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        conv = model.get_submodule(name)
        if not isinstance(conv, _ConvNd) or conv.groups > 1:
            raise ValueError(f"{name} is a {type(conv).__name__}, not a convolution without groups")
        parent = model.get_submodule(name.rpartition(".")[0])
        if self.into:
            having, taking = [*map(parent.get_submodule, self.also)], parent.get_submodule(self.into)
        else:
            having, taking = _after(parent, conv, name)
        per = _taken(taking)
        if per % conv.out_channels:
            raise ValueError(f"{name} gives {conv.out_channels} channels, which do not divide the {per} inputs behind")
        K = self._divided(name, conv.out_channels)
        cuts = [cut for module in (conv, *having) for cut in outputs(module, conv.out_channels // K)]
        dim = -1 if isinstance(taking, nn.Linear) else -1 - len(conv.kernel_size)
        hook(taking, self.axis(name, K, make, cuts + inputs(taking, per // K), dim=dim))


def _taken(module: Any) -> int:
    """Entries or channels that ``module`` takes."""
    return int(module.in_features if isinstance(module, nn.Linear) else module.in_channels)


def _after(parent: nn.Module, conv: Any, name: str) -> tuple[list[nn.Module], Any]:
    """What has the channels of ``conv`` beside it, and what takes them."""
    having: list[nn.Module] = []
    parts = [*parent.modules()]
    for part in parts[parts.index(conv) + 1 :]:
        depthwise = isinstance(part, _ConvNd) and 1 < part.groups == part.in_channels == conv.out_channels
        if depthwise or (isinstance(part, _BatchNorm) and part.num_features == conv.out_channels):
            having.append(part)
        elif isinstance(part, (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d)):
            raise ValueError(f"{name}: a {type(part).__name__} takes means over channels and cannot be cut")
        elif isinstance(part, (_ConvNd, nn.Linear)):
            if _taken(part) % conv.out_channels == 0 and getattr(part, "groups", 1) == 1:
                return having, part
            break
    raise ValueError(f"what takes the channels of {name} is not beside it: name it with Channels(also=[...], into=...)")
