"""Learned numbers of channels of convolutions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

from ngn.axis import OrderedAxis, inputs, outputs
from ngn.cut_modules import value_of
from ngn.sizes.base import ByImportance, Maker, Size, by_unit

SQUEEZING = re.compile("[Ss]queeze|SE(Layer|Block|Module|$)")
"""Matches class names of squeeze-and-excitation blocks."""


class Channels(Size):
    """The output channels of a convolution, in ``K`` groups of neighbours.

    The library follows the modules registered after the convolution:

    * Norms of single channels, PReLU, depthwise convolutions and squeeze-and-excitation blocks are cut with it.
    * The next convolution or linear layer is the consumer.
    * From inside an ``nn.Sequential``, the search goes on behind it.

    The output must go to this consumer only, not into a residual sum. Pass ``example=`` to test that.

    Args:
        K, by_importance, round_to, gate: see :class:`Size`; K = None for single channels.
        also: names of the modules with the same channels. A block of two layers, from the channels and back, is
            squeeze and excitation (Hu et al. 2018).
        into: name of the consumer. All names are looked up in the modules around the convolution, the nearest first.

    >>> import torch, ngn
    >>> convs = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 2, 3)]
    >>> learner = ngn.learn_sizes(torch.nn.Sequential(*convs), {"0": ngn.Channels(4, t0=1.2)})
    >>> learner.deploy(example=torch.randn(1, 3, 9, 9), unsettled="allow")[3].in_channels
    4
    """

    unit = "channels"

    def __init__(
        self,
        K: int | None = None,
        by_importance: ByImportance = None,
        also: Sequence[str] = (),
        into: str = "",
        **gate: Any,
    ) -> None:
        super().__init__(K, by_importance, **gate)
        self.also, self.into = also, into

    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        conv = model.get_submodule(name)
        if not isinstance(conv, _ConvNd) or conv.groups > 1:
            raise ValueError(f"{name} is a {type(conv).__name__}; ngn.Channels takes a convolution without groups")
        block = None
        if self.into:
            having, taking = self._named(model, conv, name)
        else:
            having, taking, block = _found(model, conv, name)
        for module in taking:
            if not _fits(module, conv):
                raise ValueError(
                    f"{name} has {conv.out_channels} output channels, but {module} takes {_input_size(module)}"
                )
        K = self.divided(name, conv.out_channels)
        for module in having:
            _check_having(module, conv, K, name)
        cuts = [cut for module in (conv, *having) for cut in outputs(module, conv.out_channels // K)]
        cuts += [cut for module in taking for cut in inputs(module, _input_size(module) // K)]
        whole = [part.num_groups for part in having if isinstance(part, nn.GroupNorm)]  # loses whole groups only
        dim, units = -1 - len(conv.kernel_size), min([conv.out_channels, *whole])
        axis = self.axis(name, K, make, cuts, taking, dim=dim, units=units)
        if block is not None:
            axis.guessed = f"the consumer of its channels was found inside a {type(block).__name__}"

    def _named(self, model: nn.Module, conv: Any, name: str) -> tuple[list[nn.Module], list[nn.Module]]:
        """Return the modules that ``also`` names, and the consumers, for ``conv``."""
        around = [holder for holder, _ in _holders(model, name)]
        having: list[nn.Module] = []
        taking: list[nn.Module] = []
        for part in (_nearest(path, name, around) for path in self.also):
            if [*part.children()] and not outputs(part):
                reduce, expand = _squeeze(part, conv, name)
                taking, having = [*taking, reduce], [*having, expand]
            else:
                having.append(part)
        last = _nearest(self.into, name, around)
        if not isinstance(last, (_ConvNd, nn.Linear)):
            raise ValueError(
                f"{name}: into={self.into!r} is a {type(last).__name__}, not a convolution or linear layer"
            )
        if getattr(last, "groups", 1) > 1:
            raise ValueError(
                f"{name}: into={self.into!r} is a convolution of {last.groups} groups, which cannot be cut"
            )
        return having, [*taking, last]


def _holders(model: nn.Module, name: str) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield the modules around ``name``, the nearest first, each with its child on the way to ``name``."""
    part = model.get_submodule(name)
    while name:
        name = name.rpartition(".")[0]
        holder = model.get_submodule(name)
        yield holder, part
        part = holder


def _nearest(path: str, name: str, around: Sequence[nn.Module]) -> nn.Module:
    """Return the module ``path`` of the first of ``around`` that has it."""
    for holder in around:
        with suppress(AttributeError):
            return holder.get_submodule(path)
    raise ValueError(f"{name}: no module around it has a module {path!r}")


def _input_size(module: Any) -> int:
    """Return the input features or channels of ``module``."""
    return int(module.in_features if isinstance(module, nn.Linear) else module.in_channels)


def _fits(taking: Any, conv: Any) -> bool:
    """Tell whether ``taking`` can consume the channels of ``conv``; a linear layer may flatten all positions."""
    per, channels = _input_size(taking), conv.out_channels
    return bool(per % channels == 0 if isinstance(taking, nn.Linear) else per == channels)


def _check_having(module: Any, conv: Any, K: int, name: str) -> None:
    """Raise a ValueError if ``module``, which ``also`` names, does not have the channels of ``conv``."""
    what, C = f"{name}: the {type(module).__name__} in also=", conv.out_channels
    cuts = outputs(module)
    if not cuts:
        raise ValueError(f"{what} has no weight, bias or mean per channel; name the modules inside it")
    if isinstance(module, nn.GroupNorm):
        if C // K % (C // module.num_groups):
            raise ValueError(f"{what} can lose whole groups only: K={K} must divide its {module.num_groups} groups")
    else:
        by_unit([module], C, name)
    for cut in cuts:
        if (size := value_of(module, cut.name).shape[cut.dim]) != C:
            raise ValueError(f"{what} has {size} entries of {cut.name}, not {C}")


def _squeeze(block: nn.Module, conv: Any, name: str) -> tuple[nn.Module, nn.Module]:
    """Return the two layers of a squeeze-and-excitation block behind ``conv``: C channels to fewer, and back."""
    maps = [part for part in block.modules() if isinstance(part, (_ConvNd, nn.Linear))]
    sizes = [(_input_size(part), int(getattr(part, "out_features", getattr(part, "out_channels", 0)))) for part in maps]
    C = conv.out_channels
    if len(sizes) != 2 or sizes[0][0] != C or sizes[1] != sizes[0][::-1] or by_unit([*block.modules()], C, name):
        raise ValueError(
            f"{name}: {type(block).__name__} is not a block of two layers, from {C} channels to fewer and back"
        )
    return maps[0], maps[1]


def _behind(model: nn.Module, name: str) -> Iterator[tuple[nn.Module, nn.Module | None]]:
    """Yield the modules after a convolution, in the order of registration.

    First come its later siblings, then those of each ``nn.Sequential`` around it. A squeeze-and-excitation block is
    yielded whole, other modules part by part. Outside the first module around the convolution, a module with its own
    forward pass, such as a residual block, ends the search. The second item is the sibling with its own forward pass
    that holds the part, or None.
    """
    for number, (holder, within) in enumerate(_holders(model, name)):
        children = [*holder.children()]
        for child in children[children.index(within) + 1 :]:
            own = bool([*child.children()]) and not (_in_order(child) or _squeezes(child))
            if number and own:
                return
            for part in _parts(child):
                yield part, child if own else None
        if not _in_order(holder):
            return


def _in_order(module: nn.Module) -> bool:
    """Tell whether ``module`` only calls its children one after the other."""
    return type(module).forward is nn.Sequential.forward


def _squeezes(module: nn.Module) -> bool:
    maps = (part for part in module.modules() if isinstance(part, (_ConvNd, nn.Linear)))
    return bool(SQUEEZING.search(type(module).__name__)) and any(True for _ in maps)


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, OrderedAxis):
        return
    yield module
    if not _squeezes(module):
        for child in module.children():
            yield from _parts(child)


def _found(model: nn.Module, conv: Any, name: str) -> tuple[list[nn.Module], list[nn.Module], nn.Module | None]:
    """Find the modules with the channels of ``conv``, and their consumers.

    The third item is the module with its own forward pass that holds the consumer, or None.

    Raises:
        ValueError: if there is no consumer, or a module mixes the channels.
    """
    having: list[nn.Module] = []
    taking: list[nn.Module] = []
    for part, block in _behind(model, name):
        sizes = (part.groups, part.in_channels, part.out_channels) if isinstance(part, _ConvNd) else ()
        if _squeezes(part):
            reduce, expand = _squeeze(part, conv, name)
            taking, having = [*taking, reduce], [*having, expand]
        elif sizes == (conv.out_channels,) * 3 and conv.out_channels > 1:  # depthwise
            having.append(part)
        elif isinstance(part, (_ConvNd, nn.Linear)):
            if _fits(part, conv) and getattr(part, "groups", 1) == 1:
                return having, [*taking, part], block
            break
        elif isinstance(part, nn.GroupNorm) and part.num_channels == conv.out_channels and part.num_groups > 1:
            raise ValueError(
                f"{name}: a GroupNorm averages over the channels of a group, so only whole groups can be cut. Name it "
                f"in also=, its consumer in into=, and choose a K that divides its {part.num_groups} groups"
            )
        elif found := by_unit([part], conv.out_channels, name, [1, -1 - len(conv.kernel_size)]):
            having += found
        elif [*part.parameters(recurse=False), *part.buffers(recurse=False)] and not (
            isinstance(part, nn.PReLU) and part.num_parameters == 1
        ):
            break
    raise ValueError(
        f"{name}: no consumer of its channels found next to it; name it: ngn.Channels(also=[...], into=...)"
    )
