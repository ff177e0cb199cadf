"""The sizes of a model, found by tracing it: groups of dimensions that can only be cut together, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ngn.checks import Also
from ngn.cuts import Cut
from ngn.tracing.dims import Dim, Leaf, Misfit, Product, resolved

TEXTS = ("size", "members", "not cut", "why", "before -> after", "entries")
"""Titles of the columns of a table that are no numbers."""


@dataclass(frozen=True)
class Polynomial:
    """A cost of G sizes, C(n) = sum_p prod_d (a_pd + sum_g A_pdg n_g).

    Each term p is a product of activations and weights, or a parameter. Its factors are the lengths of dimensions,
    which are affine in the sizes. So costs and their slopes are exact at all sizes, and nothing has to be measured.

    Attributes:
        names, full: the names of the sizes, [G], and their numbers of units, float64 [G].
        constant, slopes: a, float64 [P, D], and A, float64 [P, D, G].
    """

    names: tuple[str, ...]
    full: Tensor
    constant: Tensor
    slopes: Tensor

    def of(self, components: Mapping[str, int]) -> Polynomial:
        """The cost of some sizes, by name, counted in so many components each; other sizes stay full."""
        at = [self.names.index(name) for name in components]
        scale = (self.full[at] / torch.tensor([*components.values()], dtype=torch.float64)).round()
        rest = self.full.clone()
        rest[at] = 0
        constant = self.constant + self.slopes @ rest
        return Polynomial(tuple(components), self.full[at] / scale, constant, self.slopes[..., at] * scale)

    def __call__(self, n: Tensor) -> tuple[Tensor, Tensor]:
        """C, float64 [...], and dC/dn, [..., G], at the sizes n, float64 [..., G]."""
        lengths = self.constant + torch.einsum("pdg,...g->...pd", self.slopes, n)
        D = range(lengths.shape[-1])
        others = [lengths[..., [e for e in D if e != d]].prod(-1) for d in D]
        return lengths.prod(-1).sum(-1), torch.einsum("...pd,pdg->...g", torch.stack(others, -1), self.slopes)


def polynomial(terms: Sequence[Sequence[Dim]], sizes: Mapping[Leaf, str]) -> Polynomial | None:
    """The sum of the products of lengths in ``terms``; None if a length is not affine in the ``sizes``."""
    columns = {leaf: number for number, leaf in enumerate(sizes)}
    one = torch.eye(len(columns) + 1, dtype=torch.float64)[-1]
    rows: list[list[Tensor]] = []
    try:
        for term in terms:
            factors = [_affine(dim, columns) for dim in term]
            varying = [factor for factor in factors if bool(factor[:-1].any())]
            rows.append([one * prod(float(f[-1]) for f in factors if not bool(f[:-1].any())), *varying])
    except Misfit:
        return None
    most = max(map(len, rows), default=1)
    table = torch.stack([torch.stack([*row, *[one] * (most - len(row))]) for row in rows or [[0 * one]]])
    full = torch.tensor([leaf.size for leaf in columns], dtype=torch.float64)
    return Polynomial(tuple(sizes.values()), full, table[..., -1], table[..., :-1])


def _affine(dim: Dim, columns: Mapping[Leaf, int]) -> Tensor:
    """The length of ``dim`` as the coefficients of the sizes and a constant, [G + 1]; else a :class:`Misfit`."""
    dim = resolved(dim)
    total = torch.zeros(len(columns) + 1, dtype=torch.float64)
    if isinstance(dim, Leaf):
        total[columns.get(dim, -1)] = 1.0 if dim in columns else dim.size
        return total
    parts = [_affine(part, columns) for part in dim.parts]
    if not isinstance(dim, Product):
        return sum(parts, total)
    total[-1] = 1.0
    for part in parts:
        if bool(part[:-1].any()) and bool(total[:-1].any()):
            raise Misfit
        total = part * total[-1] if bool(part[:-1].any()) else total * part[-1]
    return total


@dataclass(frozen=True)
class Consumer:
    """A product, in the forward pass of ``site``, that sums over dimension ``dim`` of the weight ``holder.name``.

    ``by_input``: whether the units can be scaled in the input of ``site``, a linear layer or a convolution. Otherwise
    they are scaled in the weight, while ``site`` is at work.
    """

    site: nn.Module
    holder: nn.Module
    name: str
    dim: int
    by_input: bool


@dataclass(frozen=True)
class SizeGroup:
    """One size: units that all tensors of the group have in common.

    Attributes:
        name: that of the first module that produces the units.
        unit: what a unit is: "heads", "channels" or "units".
        length: number of units.
        cuts: the tensors that have the units.
        consumers: the products that sum over them.
        counts: (module, attribute) pairs that shrink with the size.
        members: names of the modules whose tensors have the units, the consumers last.
        parameters, macs: the share of all parameters, and of all multiply-adds, that have the units.
        order: units, the most important first; None for the order that ``learn_sizes`` gives them.
        units: if a unit is a block of several that could be removed one by one, the number of those.
        normalised: whether a norm runs over the units.
    """

    name: str
    unit: str
    length: int
    cuts: tuple[Cut, ...] = field(repr=False)
    consumers: tuple[Consumer, ...] = field(repr=False)
    counts: tuple[tuple[Any, str], ...] = field(repr=False)
    members: tuple[str, ...]
    parameters: float
    macs: float
    order: Sequence[int] | None = None
    units: int | None = None
    normalised: bool = False

    @property
    def producers(self) -> list[nn.Module]:
        """The modules whose outputs have the units."""
        read = {(consumer.holder, consumer.name, consumer.dim) for consumer in self.consumers}
        return [cut.module for cut in self.cuts if (cut.module, cut.name, cut.dim) not in read]


@dataclass(frozen=True)
class Uncut:
    """A dimension that is not cut.

    Attributes:
        members: names of the tensors with it.
        length: number of entries.
        reason: the operation that forbids it, and the module in which it happens.
    """

    members: tuple[str, ...]
    length: int
    reason: str


@dataclass(frozen=True)
class FoundSizes:
    """The sizes of a model; ``print(found)`` shows a table.

    Attributes:
        model: the model.
        groups: what can be cut.
        fixed: what cannot, and why.
        example: the input of the trace.
        costs: "parameters" and "macs" as functions of the numbers of units.
        also: further inputs of the trace, by their method.
    """

    model: nn.Module = field(repr=False)
    groups: tuple[SizeGroup, ...]
    fixed: tuple[Uncut, ...]
    example: Any = field(repr=False)
    costs: Mapping[str, Polynomial | None] = field(repr=False)
    also: Also = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[SizeGroup]:
        return iter(self.groups)

    def __getitem__(self, name: str) -> SizeGroup:
        return next(group for group in self.groups if group.name == name)

    def only(self, *patterns: str) -> FoundSizes:
        """The groups of which a module has a name that one of ``patterns`` matches."""
        return self._those(patterns, True)

    def without(self, *patterns: str) -> FoundSizes:
        """The groups of which no module has a name that one of ``patterns`` matches."""
        return self._those(patterns, False)

    def _those(self, patterns: Sequence[str], matching: bool) -> FoundSizes:
        matched: set[str] = set()
        for pattern in patterns:
            expression = pattern_of(pattern)
            names = {group.name for group in self if any(map(expression.fullmatch, group.members))}
            if not names:
                raise ValueError(f"{pattern!r} matches no module with a size; there are {self.listed()}")
            matched |= names
        return replace(self, groups=tuple(group for group in self if (group.name in matched) == matching))

    def chosen(self, groups: Mapping[str, SizeGroup]) -> FoundSizes:
        """A choice of groups: the name of each, and what it is to be, with a new name or in other components."""
        costs = {
            kind: cost and replace(cost, names=tuple(groups[n].name if n in groups else "" for n in cost.names))
            for kind, cost in self.costs.items()
        }
        return replace(self, groups=tuple(groups.values()), costs=costs)

    def listed(self, most: int = 6) -> str:
        """The names of the groups, without numbers where there are many, for a message."""
        names = [group.name for group in self.groups]
        if len(names) > most:
            names = list(dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names))
        return ", ".join([*names[:most], *(["..."] if len(names) > most else [])]) or "none"

    def __str__(self) -> str:
        rows = [("size", "length", "parameters", "multiply-adds", "members")]
        for g in self.groups:
            length = f"{g.length:,} {g.unit}"
            rows.append((g.name or "model", length, f"{g.parameters:.1%}", f"{g.macs:.1%}", listed(_tails(g.members))))
        fixed = [(listed(f.members), f"{f.length:,}", f.reason) for f in self.fixed]
        lines = aligned(rows) + (["", *aligned([("not cut", "length", "why"), *fixed])] if fixed else [])
        return "\n".join(lines)


def pattern_of(pattern: str) -> re.Pattern[str]:
    """The expression of a pattern: ``*`` is anything within one part of a name, ``**`` any number of parts."""
    parts = {"**.": r"(?:.*\.)?", ".**": r"(?:\..*)?", "**": ".*", "*": r"[^.]*"}
    return re.compile(re.sub(r"\*\*\.|\.\*\*|\*\*|\*|[^*.]+|\.", lambda m: parts.get(m[0]) or re.escape(m[0]), pattern))


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names for a message."""
    names = [name or "model" for name in names]
    return ", ".join(names if len(names) <= most else [*names[: most - 1], f"... ({len(names) - most + 1} more)"])


def _tails(names: Sequence[str]) -> list[str]:
    """The names without the part that all have in common."""
    parts = [name.split(".") for name in names]
    shared = 0
    while len({tuple(part[: shared + 1]) for part in parts}) == 1 and all(len(part) > shared + 1 for part in parts):
        shared += 1
    return [".".join(part[shared:]) for part in parts]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose first row has the titles: texts are aligned to the left, numbers to the right."""
    texts = {n for n, title in enumerate(rows[0]) if title in TEXTS}
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = (
        [c.ljust(w) if n in texts else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    )
    return ["  ".join(row).rstrip() for row in cells]
