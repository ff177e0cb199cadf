"""Learned numbers of channels of convolutions that exist."""

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
"""What classes of squeeze-and-excitation blocks are called."""


class Channels(Size):
    """The channels that a convolution gives, in ``K`` groups of neighbours.

    What has them is found in the order of the modules behind the convolution, beside it and, where it lies in
    ``nn.Sequential``s, behind those: norms of each channel by itself, PReLU, depthwise convolutions of as many
    channels and squeeze-and-excitation blocks, then the convolution or linear map that takes them. So the
    convolution's output must go there and nowhere else: not into a residual sum. ``learner.deploy(example=...)`` finds
    what does not hold.

    Args:
        K, by_importance, round_to, gate: see :class:`Size`; K = None for single channels.
        also, into: names of what has the channels, and of what takes them, in the nearest module around the
            convolution that has one of that name. A block of two maps, from the channels and back to them, in ``also``
            is one of squeeze and excitation (Hu et al. 2018): their mean over places has the channels, too.

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
            raise ValueError(f"{name} is a {type(conv).__name__}, not a convolution without groups")
        block = None
        if self.into:
            having, taking = self._named(model, conv, name)
        else:
            having, taking, block = _found(model, conv, name)
        for module in taking:
            if not _fits(module, conv):
                raise ValueError(f"{name} gives {conv.out_channels} channels, and {module} takes {_taken(module)}")
        K = self.divided(name, conv.out_channels)
        for module in having:
            _check_having(module, conv, K, name)
        cuts = [cut for module in (conv, *having) for cut in outputs(module, conv.out_channels // K)]
        cuts += [cut for module in taking for cut in inputs(module, _taken(module) // K)]
        axis = self.axis(name, K, make, cuts, taking, dim=-1 - len(conv.kernel_size))
        if block is not None:
            axis.guessed = f"what takes its channels was found within a {type(block).__name__}"

    def _named(self, model: nn.Module, conv: Any, name: str) -> tuple[list[nn.Module], list[nn.Module]]:
        """What is said to have the channels of ``conv``, and what to take them."""
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
            raise ValueError(f"{self.into} is a {type(last).__name__}, no convolution or linear map to take {name}")
        if getattr(last, "groups", 1) > 1:
            raise ValueError(
                f"{self.into} is a convolution of {last.groups} groups, which cannot be cut to take {name}"
            )
        return having, [*taking, last]


def _holders(model: nn.Module, name: str) -> Iterator[tuple[nn.Module, nn.Module]]:
    """The modules around that of a ``name``, from the inside, each with its part towards it."""
    part = model.get_submodule(name)
    while name:
        name = name.rpartition(".")[0]
        holder = model.get_submodule(name)
        yield holder, part
        part = holder


def _nearest(path: str, name: str, around: Sequence[nn.Module]) -> nn.Module:
    """The module that is called ``path`` in the first of ``around`` that has it."""
    for holder in around:
        with suppress(AttributeError):
            return holder.get_submodule(path)
    raise ValueError(f"{name}: neither what holds it nor the model has a module {path!r}")


def _taken(module: Any) -> int:
    """Entries or channels that ``module`` takes."""
    return int(module.in_features if isinstance(module, nn.Linear) else module.in_channels)


def _fits(taking: Any, conv: Any) -> bool:
    """Whether ``taking`` can be what takes the channels of ``conv``: flattened with all places, a linear map."""
    per, channels = _taken(taking), conv.out_channels
    return bool(per % channels == 0 if isinstance(taking, nn.Linear) else per == channels)


def _check_having(module: Any, conv: Any, K: int, name: str) -> None:
    """Raise a ValueError if ``module`` cannot be what has the channels of ``conv`` as well."""
    what, C = f"{name}: {type(module).__name__}, which is named to have its channels,", conv.out_channels
    cuts = outputs(module)
    if not cuts:
        raise ValueError(f"{what} has no weight, bias or mean of them; name the modules within it, or none")
    if isinstance(module, nn.GroupNorm):
        if C // K % (C // module.num_groups):
            raise ValueError(f"{what} is cut by whole groups: K = {K} has to divide its {module.num_groups}")
    else:
        by_unit([module], C, name)
    for cut in cuts:
        if (size := value_of(module, cut.name).shape[cut.dim]) != C:
            raise ValueError(f"{what} has {size} entries of {cut.name}, not {C}")


def _squeeze(block: nn.Module, conv: Any, name: str) -> tuple[nn.Module, nn.Module]:
    """The two maps of a squeeze-and-excitation block behind ``conv``: from its channels to fewer, and back."""
    maps = [part for part in block.modules() if isinstance(part, (_ConvNd, nn.Linear))]
    sizes = [(_taken(part), int(getattr(part, "out_features", getattr(part, "out_channels", 0)))) for part in maps]
    C = conv.out_channels
    if len(sizes) != 2 or sizes[0][0] != C or sizes[1] != sizes[0][::-1] or by_unit([*block.modules()], C, name):
        raise ValueError(f"{name}: {type(block).__name__} is no block of two maps, of {C} channels and back to them")
    return maps[0], maps[1]


def _behind(model: nn.Module, name: str) -> Iterator[tuple[nn.Module, nn.Module | None]]:
    """What lies behind a convolution in the order of modules: beside it, and behind the ``nn.Sequential``s it is in.

    Squeeze-and-excitation blocks are given in one, of other modules each part; behind the ``nn.Sequential``s those end
    it that have a forward pass of their own, such as a residual block. Beside it is given which one a part is within.
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
    """Whether it calls its children one after the other, and does nothing else."""
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
    """What has the channels of ``conv`` behind it, what takes them, and the module with a forward pass of its own that
    this is within, if it is."""
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
                f"{name}: a GroupNorm takes means over the channels of a group, so only whole groups can be cut: name "
                f"it in also= and what takes them in into=, with a K that divides its {part.num_groups} groups"
            )
        elif found := by_unit([part], conv.out_channels, name, [1, -1 - len(conv.kernel_size)]):
            having += found
        elif [*part.parameters(recurse=False), *part.buffers(recurse=False)] and not (
            isinstance(part, nn.PReLU) and part.num_parameters == 1
        ):
            break
    raise ValueError(f"what takes the channels of {name} is not beside it: name it with Channels(also=[...], into=...)")
