"""How a model of ordered groups and its samples lie in the arrays of a kernel, and which kernel that is.

A replica's parameters are one row of floats: group after group, component after component, the parts of a component one
after another. A part that is narrower than what is compiled is padded with zeros, and so is a group to whole vectors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.models.depth import ChainBank, LayerStack, TanhBank
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from ngn.components.base import Bank

WIDTHS = (8, 16, 32, 64)
"""Hidden widths that are compiled; others are padded with units that stay exactly zero."""
VECTOR = 16
"""Floats of the widest vectors that there are."""
TILES = {"bank1d": 8, "planar": 4 * VECTOR}
"""Each kernel takes samples in multiples of this."""


@dataclass(frozen=True)
class ArrayPart:
    """One parameter of a component: ``shape`` as it is compiled, from float ``at`` of the component on."""

    name: str
    at: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ArrayGroup:
    """K components, the first ``bare`` of them without parameters; the others begin at float ``offset`` of a row."""

    bank: Bank
    K: int
    bare: int
    offset: int

    @property
    def learned(self) -> int:
        """Components that have parameters."""
        return self.K - self.bare


class Layout:
    """Where everything is.

    Attributes:
        groups: in the order of the model.
        parts, size: of a component, and the floats that it takes.
        parameters: floats of a row.

    Args:
        kernel, function: the C++ file that trains it, as in TILES, and its function.
        banks: each group's, with the number of its components that have no parameters.
        parts: names and compiled shapes; ``spare`` floats follow them.
        hidden: compiled width.
        cost: a step's work, about, with that of the 1D study as one.
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
        """Inputs and targets [N, entries] as [entries, N rounded up], what is added being zero."""
        room = (0, -len(target) % TILES[self.kernel])
        padded_x, padded_target = (torch.nn.functional.pad(v.T, room).contiguous() for v in (x, target))
        return padded_x, padded_target

    def views(self) -> Iterator[tuple[Tensor, Callable[[Tensor], Tensor]]]:
        """Every parameter [*R, ...] of the banks, with what finds its place [R, ...] in rows [R, parameters]."""
        for group in self.groups:
            for part in self.parts:
                p = group.bank.get_parameter(part.name)
                own = tuple(p.shape[-len(part.shape) :])
                yield p, functools.partial(self._place, group, part, own)

    def components(self, group: ArrayGroup, rows: Tensor) -> Tensor:
        """The components of a group with parameters in rows [R, parameters]: [R, learned, size]."""
        own = rows[:, group.offset : group.offset + group.learned * self.size]
        return own.unflatten(1, (group.learned, self.size))

    def _place(self, group: ArrayGroup, part: ArrayPart, own: tuple[int, ...], rows: Tensor) -> Tensor:
        at = slice(part.at, part.at + math.prod(part.shape))
        place = self.components(group, rows)[..., at].unflatten(-1, part.shape)
        for axis, length in enumerate(own):
            place = place.narrow(axis - len(own), 0, length)
        return place


def compiled_width(h: int) -> int:
    """H, the compiled width that a hidden width h is padded to."""
    return next(width for width in WIDTHS if width >= h)


def layout_of(model: torch.nn.Module) -> Layout:
    """The layout of a model for which there is a kernel (``supported.py`` says which ones)."""
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
