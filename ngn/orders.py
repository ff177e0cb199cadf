"""Orders: what makes earlier components count for more.

A random cut C leaves the components k < C. An order is its law w_k = P(C > k), with w_0 = 1 and never rising in k, and
whether components are multiplied by the mean of the mask or by the mask itself (``p`` is training progress, in [0, 1]):

    geometric       w_k = r^k                                  kept by truncation; the paper's
    power           w_k = (k + 1)^-a                           kept
    annealed        w_k = r^(k (1 - p))                        kept: 1 at the end
    matryoshka      w_k = |{m in M: m > k}| / |M|              deployed with 1; M are target ranks
    nested_dropout  1[u < w_k], u ~ U(0, 1) once a step        deployed with 1; w of geometric, or of matryoshka

matryoshka is the mean over M of the outputs of nested prefixes (Modoranu et al., "MatryoshkaLoRA", arXiv 2605.07850);
from a commit on it has the weights that it is deployed with. nested_dropout is the law of Rippel, Gelbart and Adams
(ICML 2014); with ranks its loss is in expectation the mean over M of the losses of nested prefixes, as in Matryoshka
representations (Kusupati et al., arXiv 2205.13147) and FjORD's ordered dropout (Horvath et al., arXiv 2102.13451).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ngn.gate import ordering_weights
from ngn.streams import generator

OrderKind = Literal["geometric", "power", "annealed", "matryoshka", "nested_dropout"]


@dataclass(frozen=True)
class Order:
    """How much earlier components count for more; see :mod:`ngn.orders`.

    Attributes:
        kind: which order.
        exponent: a, of a power.
        ranks: M, of matryoshka and nested dropout. None: 1, 2, 4, ..., K of matryoshka, the law r^k of nested dropout.
        seeds: one, or one per replica, from which cuts are drawn; all groups of a model are cut by the same u.

    Raises:
        ValueError: if there is no such kind, or a number is out of its range.

    >>> import ngn
    >>> ngn.CountGate(4, order=ngn.Order("power"), t0=9.0).weights().tolist()
    [1.0, 0.5, 0.3333333333333333, 0.25]
    """

    kind: OrderKind = "geometric"
    exponent: float = 1.0
    ranks: tuple[int, ...] | None = None
    seeds: int | Sequence[int] = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(OrderKind):
            raise ValueError(f"an order is one of {', '.join(get_args(OrderKind))}, not {self.kind!r}")
        if not self.exponent > 0:
            raise ValueError(f"the exponent of an order is positive, not {self.exponent}")
        if self.ranks is not None and (not isinstance(self.ranks, (tuple, list)) or min(self.ranks, default=0) < 1):
            raise ValueError(f"ranks are numbers of components, 1 or more, such as (1, 2, 4), not {self.ranks}")

    @property
    def kept(self) -> bool:
        """Whether truncation keeps the weights; else they are 1 in what is deployed."""
        return self.kind not in ("matryoshka", "nested_dropout")

    @property
    def drawn(self) -> bool:
        """Whether a prefix is drawn in every step."""
        return self.kind == "nested_dropout"

    @property
    def by_ratio(self) -> bool:
        """Whether the weights follow from a ratio r."""
        return self.kind in ("geometric", "annealed") or (self.drawn and not self.ranks)

    @property
    def constant(self) -> bool:
        """Whether the weights are the same numbers throughout."""
        return self.kind in ("geometric", "power")

    def weights(self, r: Tensor, K: int, progress: float = 0.0) -> Tensor:
        """w_k at ``progress``. r: [*R]; returns float64 [*R, K]."""
        k = torch.arange(K, dtype=torch.float64, device=r.device)
        if self.kind == "power":
            return ((k + 1) ** -self.exponent).expand(*r.shape, K)
        if self.kind == "matryoshka" or (self.drawn and self.ranks):
            doubled = [*(2**i for i in range(K.bit_length()) if 2**i < K), max(K, 1)]
            ranks = torch.tensor(self.ranks or doubled, device=k.device)
            return (ranks > k.unsqueeze(-1)).double().mean(-1).expand(*r.shape, K)
        return ordering_weights(r ** (1.0 - progress) if self.kind == "annealed" else r, K)

    def uniform(self, step: int) -> Tensor:
        """u of one step: float64, one number or one per seed."""
        each = [self.seeds] if isinstance(self.seeds, int) else self.seeds
        drawn = [torch.rand((), dtype=torch.float64, generator=generator(seed, "order", step)) for seed in each]
        return drawn[0] if isinstance(self.seeds, int) else torch.stack(drawn)
