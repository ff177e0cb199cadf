"""Costs of a traced model as polynomials of its sizes.

    C(n) = sum_p prod_d (a_pd + sum_g A_pdg n_g)

Each term p is a product of activations and weights, or a parameter. Its factors are the lengths of dimensions, which
are affine in the sizes. So costs and their slopes are exact at all sizes, and nothing has to be measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ngn.tracing.dims import Dim, Leaf, Product, resolved


@dataclass(frozen=True)
class Polynomial:
    """A cost of G sizes.

    Attributes:
        names: the names of the sizes, [G].
        full: their numbers of units, float64 [G].
        constant: a, float64 [P, D].
        slopes: A, float64 [P, D, G].
    """

    names: tuple[str, ...]
    full: Tensor
    constant: Tensor
    slopes: Tensor

    def units(self, name: str) -> float:
        """The number of units of the size ``name``."""
        return float(self.full[self.names.index(name)])

    def of(self, names: Sequence[str], units: Sequence[int]) -> Polynomial:
        """The cost of the sizes ``names``, counted in components of so many ``units``; other sizes stay full."""
        at = [self.names.index(name) for name in names]
        scale = torch.tensor(units, dtype=torch.float64)
        rest = self.full.clone()
        rest[at] = 0
        constant = self.constant + self.slopes @ rest
        return Polynomial(tuple(names), self.full[at] / scale, constant, self.slopes[..., at] * scale)

    def __call__(self, n: Tensor) -> tuple[Tensor, Tensor]:
        """C, float64 [...], and dC/dn, [..., G], at the sizes n, float64 [..., G]."""
        lengths = self.constant + torch.einsum("pdg,...g->...pd", self.slopes, n)
        others = [
            lengths[..., [e for e in range(lengths.shape[-1]) if e != d]].prod(-1) for d in range(lengths.shape[-1])
        ]
        return lengths.prod(-1).sum(-1), torch.einsum("...pd,pdg->...g", torch.stack(others, -1), self.slopes)


def polynomial(terms: Sequence[Sequence[Dim]], sizes: Mapping[Leaf, str]) -> Polynomial | None:
    """The sum of the products of lengths in ``terms``; None if a length is not affine in the ``sizes``."""
    columns = {leaf: number for number, leaf in enumerate(sizes)}
    rows: list[list[Tensor]] = []
    for term in terms:
        factors = [_affine(dim, columns) for dim in term]
        if any(factor is None for factor in factors):
            return None
        known = [factor for factor in factors if factor is not None]
        varying = [factor for factor in known if bool(factor[:-1].any())]
        number = torch.zeros(len(columns) + 1, dtype=torch.float64)
        number[-1] = torch.stack(
            [factor[-1] for factor in known if not bool(factor[:-1].any())] or [torch.ones(())]
        ).prod()
        rows.append([number, *varying])
    one = torch.zeros(len(columns) + 1, dtype=torch.float64)
    one[-1] = 1
    most = max(map(len, rows), default=1)
    table = (
        torch.stack([torch.stack([*row, *[one] * (most - len(row))]) for row in rows])
        if rows
        else one.view(1, 1, -1) * 0
    )
    full = torch.tensor([leaf.size for leaf in columns], dtype=torch.float64)
    return Polynomial(tuple(sizes.values()), full, table[..., -1], table[..., :-1])


def _affine(dim: Dim, columns: Mapping[Leaf, int]) -> Tensor | None:
    """The length of ``dim`` as the coefficients of the sizes and a constant, [G + 1]; None if it is not affine."""
    dim = resolved(dim)
    total = torch.zeros(len(columns) + 1, dtype=torch.float64)
    if isinstance(dim, Leaf):
        total[columns.get(dim, -1)] = 1.0 if dim in columns else dim.size
        return total
    if not isinstance(dim, Product):
        parts = [_affine(term, columns) for term in dim.terms]
        return None if any(part is None for part in parts) else sum((p for p in parts if p is not None), total)
    total[-1] = 1.0
    for part in (_affine(factor, columns) for factor in dim.factors):
        if part is None or (bool(part[:-1].any()) and bool(total[:-1].any())):
            return None
        total = part * total[-1] if bool(part[:-1].any()) else total * part[-1]
    return total
