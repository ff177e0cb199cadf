"""Learned numbers of channels of convolutions that exist."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

from ngn.axis import OrderedAxis, inputs, outputs
from ngn.sizes.base import Maker, Places, Size, by_unit, hook


class Channels(Size):
    """The channels that a convolution gives, in ``K`` groups of neighbours.

    What has them is found in the order of the modules beside the convolution: norms of each channel by itself, PReLU
    and depthwise convolutions of as many channels, then the convolution or linear map that takes them. So the
    convolution's output must go there and nowhere else: not into a residual sum. ``learner.deploy(example=...)`` finds
    what does not hold.

    Args:
        K, places, round_to, gate: see :class:`Size`; K = None for single channels.
        also, into: names, in the parent of the convolution or else in the model, of what has the channels, and of what
            takes them.

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
            having = [_named(path, name, parent, model) for path in self.also]
            taking = _named(self.into, name, parent, model)
            if not isinstance(taking, (_ConvNd, nn.Linear)):
                raise ValueError(
                    f"{self.into} is a {type(taking).__name__}, no convolution or linear map to take {name}"
                )
        else:
            having, taking = _after(parent, conv, name)
        per = _taken(taking)
        if not _fits(taking, conv):
            raise ValueError(f"{name} gives {conv.out_channels} channels, and {taking} takes {per}")
        K = self._divided(name, conv.out_channels)
        cuts = [cut for module in (conv, *having) for cut in outputs(module, conv.out_channels // K)]
        dim = -1 if isinstance(taking, nn.Linear) else -1 - len(conv.kernel_size)
        hook(taking, self.axis(name, K, make, cuts + inputs(taking, per // K), dim=dim))


def _named(path: str, name: str, *models: nn.Module) -> nn.Module:
    """The module that is called ``path`` in the first of ``models`` that has it."""
    for model in models:
        with suppress(AttributeError):
            return model.get_submodule(path)
    raise ValueError(f"{name}: neither what holds it nor the model has a module {path!r}")


def _taken(module: Any) -> int:
    """Entries or channels that ``module`` takes."""
    return int(module.in_features if isinstance(module, nn.Linear) else module.in_channels)


def _fits(taking: Any, conv: Any) -> bool:
    """Whether ``taking`` can be what takes the channels of ``conv``: flattened with all places, a linear map."""
    per, channels = _taken(taking), conv.out_channels
    return bool(per % channels == 0 if isinstance(taking, nn.Linear) else per == channels)


def _after(parent: nn.Module, conv: Any, name: str) -> tuple[list[nn.Module], Any]:
    """What has the channels of ``conv`` beside it, and what takes them."""
    having: list[nn.Module] = []
    sized = {id(part) for axis in parent.modules() if isinstance(axis, OrderedAxis) for part in axis.modules()}
    own = {id(part) for part in conv.modules()} - {id(conv)}  # its parametrisations
    parts = [part for part in parent.modules() if id(part) not in sized | own]
    for part in parts[parts.index(conv) + 1 :]:
        sizes = (part.groups, part.in_channels, part.out_channels) if isinstance(part, _ConvNd) else ()
        if sizes == (conv.out_channels,) * 3 and conv.out_channels > 1:  # depthwise
            having.append(part)
        elif isinstance(part, (_ConvNd, nn.Linear)):
            if _fits(part, conv) and getattr(part, "groups", 1) == 1:
                return having, part
            break
        elif found := by_unit([part], conv.out_channels, name, [1, -1 - len(conv.kernel_size)]):
            having += found
        elif [*part.parameters(recurse=False)] and not (isinstance(part, nn.PReLU) and part.num_parameters == 1):
            break
    raise ValueError(f"what takes the channels of {name} is not beside it: name it with Channels(also=[...], into=...)")
