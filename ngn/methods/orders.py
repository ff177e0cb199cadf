"""Orders: rules that make earlier components count for more.

A random cut C leaves the components k < C. An order is defined by w_k = P(C > k), with w_0 = 1 and not increasing in k.
It multiplies components by this mean of the mask, or by the mask itself (``p`` is training progress, in [0, 1]):

    geometric       w_k = r^k                                  kept by truncation; the paper's
    power           w_k = (k + 1)^-a                           kept
    annealed        w_k = r^(k (1 - p))                        kept: 1 at the end
    matryoshka      w_k = |{m in M: m > k}| / |M|              deployed with 1; M are target ranks
    nested_dropout  1[u < w_k], u ~ U(0, 1) once a step        deployed with 1; w of geometric, or of matryoshka

matryoshka is the mean over M of the outputs of nested prefixes (Modoranu et al., "MatryoshkaLoRA", arXiv 2605.07850).
After a commit it has the weights of the deployed model.

nested_dropout follows Rippel, Gelbart and Adams (ICML 2014). With ranks, its expected loss is the mean over M of the
losses of nested prefixes. Matryoshka representations (Kusupati et al., arXiv 2205.13147) and FjORD's ordered dropout
(Horvath et al., arXiv 2102.13451) do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from ngn.gate import ordering_weights
from ngn.streams import generator, of_seeds

OrderKind = Literal["geometric", "power", "annealed", "matryoshka", "nested_dropout"]
KINDS: tuple[OrderKind, ...] = get_args(OrderKind)
"""A state holds the place of its order in this list: append to it only."""


@dataclass(frozen=True)
class Order:
    """Choose the rule by which earlier components count for more; see :mod:`ngn.methods.orders`.

    Attributes:
        kind: the order.
        exponent: a, for power.
        ranks: M, for matryoshka and nested dropout. None: 1, 2, 4, ..., K for matryoshka, w_k = r^k for nested dropout.
        seeds: one seed, or one per replica, for the random cuts; all axes of a model use the same u.

    Raises:
        ValueError: if the kind is unknown, or a number is out of range.

    >>> import ngn
    >>> from ngn.methods.orders import Order
    >>> ngn.CountGate(4, order=Order("power"), t0=9.0).weights().tolist()
    [1.0, 0.5, 0.3333333333333333, 0.25]
    """

    kind: OrderKind = "geometric"
    exponent: float = 1.0
    ranks: tuple[int, ...] | None = None
    seeds: int | Sequence[int] = 0
    kept: bool = field(init=False, repr=False, compare=False)
    """Whether truncation keeps the weights; else the deployed model has weights of 1."""
    drawn: bool = field(init=False, repr=False, compare=False)
    """Whether each step draws a random prefix."""
    constant: bool = field(init=False, repr=False, compare=False)
    """Whether the weights stay the same during training."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"an order must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if not self.exponent > 0:
            raise ValueError(f"the exponent of an order must be positive, not {self.exponent}")
        if self.ranks is not None and (not isinstance(self.ranks, (tuple, list)) or min(self.ranks, default=0) < 1):
            raise ValueError(f"ranks must be numbers of components, 1 or more, such as (1, 2, 4), not {self.ranks}")
        vars(self)["kept"] = self.kind not in ("matryoshka", "nested_dropout")
        vars(self)["drawn"] = self.kind == "nested_dropout"
        vars(self)["constant"] = self.kind in ("geometric", "power")

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
        """u for one step: float64, one number, or one per seed."""
        return of_seeds(
            self.seeds, lambda seed: torch.rand((), dtype=torch.float64, generator=generator(seed, "order", step))
        )
