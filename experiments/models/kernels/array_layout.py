"""The kernel for a model of ordered groups, and the layout of parameters and samples in its arrays.

The parameters of a replica are one row of floats, ordered by group, by component, and by part of a component. Parts
that are narrower than the compiled width are padded with zeros. Groups are padded to whole vectors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.models.depth import ChainBank, LayerStack, TanhBank
from experiments.models.kernels import WIDEST
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from ngn.components.base import Bank

WIDTHS = (8, 16, 32, WIDEST)
"""Compiled hidden widths. Other widths are padded with units that stay exactly zero."""
VECTOR = 16
"""Floats in the widest vector registers."""
TILES = {"bank1d": 8, "planar": 4 * VECTOR}
"""Kernel → the number of samples must be a multiple of this; zeros are added."""


@dataclass(frozen=True)
class ArrayPart:
    """One parameter of a component.

    Attributes:
        at: index of its first float within the component.
        shape: its compiled shape.
    """

    name: str
    at: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ArrayGroup:
    """One group of K components.

    Attributes:
        bare: number of leading components without parameters.
        offset: index of the first float of the other components within a row.
    """

    bank: Bank
    K: int
    bare: int
    offset: int

    @property
    def learned(self) -> int:
        """Components that have parameters."""
        return self.K - self.bare


class Layout:
    """The layout of a model in the arrays of a kernel.

    Attributes:
        groups: the groups, in the order of the model.
        parts, size: the parts of a component, and its floats.
        parameters: floats in a row.

    Args:
        kernel, function: name of the C++ file, as in TILES, and of its function.
        banks: the bank of each group, with its number of components without parameters.
        parts: names and compiled shapes; ``spare`` floats follow them.
        hidden: compiled width.
        cost: approximate work of one step, relative to the 1D study.
    """

    def __init__(
        self,
        kernel: str,
        function: str,
        banks: Sequence[tuple[Bank, int]],
        parts: Sequence[tuple[str, tuple[int, ...]]],
        hidden: int,
        cost: float,
        spare: int = 0,
    ) -> None:
        self.kernel, self.function, self.hidden, self.cost = kernel, function, hidden, cost
        self.parts: list[ArrayPart] = []
        at = 0
        for name, shape in parts:
            self.parts.append(ArrayPart(name, at, shape))
            at += math.prod(shape)
        self.size = at + spare
        self.groups: list[ArrayGroup] = []
        self.parameters = 0
        for bank, bare in banks:
            group = ArrayGroup(bank, bank.K, bare, self.parameters)
            self.groups.append(group)
            self.parameters += -(-group.learned * self.size // VECTOR) * VECTOR

    def sample_arrays(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets [N, entries] as [entries, N rounded up], padded with zeros."""
        room = (0, -len(target) % TILES[self.kernel])
        padded_x, padded_target = (torch.nn.functional.pad(v.T, room).contiguous() for v in (x, target))
        return padded_x, padded_target

    def views(self) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
        """Yield every parameter [*R, ...] with a function that returns its view [R, ...] of rows [R, parameters]."""
        for group in self.groups:
            for part in self.parts:
                p = group.bank.get_parameter(part.name)
                shape = tuple(p.shape[-len(part.shape) :])
                yield p, functools.partial(self._place, group, part, shape)

    def components(self, group: ArrayGroup, rows: Tensor) -> Tensor:
        """Return a view [R, learned, size] of a group's components with parameters in rows [R, parameters]."""
        own = rows[:, group.offset : group.offset + group.learned * self.size]
        return own.unflatten(1, (group.learned, self.size))

    def _place(self, group: ArrayGroup, part: ArrayPart, own: tuple[int, ...], rows: Tensor) -> Tensor:
        at = slice(part.at, part.at + math.prod(part.shape))
        place = self.components(group, rows)[..., at].unflatten(-1, part.shape)
        for axis, length in enumerate(own):
            place = place.narrow(axis - len(own), 0, length)
        return place


def compiled_width(h: int) -> int:
    """Return the compiled width to which hidden width h is padded."""
    return next(width for width in WIDTHS if width >= h)


def layout_of(model: torch.nn.Module) -> Layout:
    """Return the layout of a model that has a kernel (see ``supported.py``)."""
    if isinstance(model, LayerStack):
        banks = []
        for layer in model.layers:
            bank = layer.bank
            assert isinstance(bank, TanhBank)
            banks.append((bank, int(bank.identity)))
        return Layout("planar", "ngn_layers_advance", banks, [("W", (2, 2)), ("b", (2,))], hidden=0, cost=4.0)
    assert isinstance(model, ParallelModel)
    bank = model.group.bank
    if isinstance(bank, ChainBank):
        H = compiled_width(bank.width)
        parts = [("U", (2, H)), ("a", (H,)), ("V", (H, 2)), ("b", (2,))]
        return Layout("planar", "ngn_chain_advance", [(bank, 0)], parts, H, cost=16.0)
    assert isinstance(bank, MLPBank)
    H = compiled_width(bank.sizes[1])
    parts = [("W1", (1, H)), ("b1", (H,)), ("W2", (H, H)), ("b2", (H,)), ("W3", (H, 1)), ("b3", (1,))]
    return Layout("bank1d", "ngn_bank1d_advance", [(bank, 0)], parts, H, cost=1.0, spare=15)
