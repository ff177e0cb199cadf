"""A plain model of a given size: the control that every learned size is compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from ngn.gate import prefix
from ngn.methods.base import Mode, Scalar, Weighted
from ngn.methods.orders import Order


class FixedCount(Weighted):
    """Use all ``count`` components, with ordering weights w_k = r^k; learn nothing.

    Args:
        count: number of components; 0 is the empty model.
        r: ratio of the ordering weights, one number or one per replica.
        order: an order other than r^k.
        replicas: None for one model, else the length of the replica axis.

    Raises:
        ValueError: if the count is negative.

    >>> import ngn
    >>> from ngn.methods.fixed import FixedCount
    >>> FixedCount(3).coefficients("soft").tolist()
    [1.0, 0.5, 0.25]
    """

    def __init__(self, count: int, *, r: Scalar = 0.5, order: Order | None = None, replicas: int | None = None) -> None:
        super().__init__()
        if count < 0:
            raise ValueError(f"a count must be 0 or more, not {count}")
        self.K, self.replicas = count, replicas
        self.put_in_order(order, r)

    def gates(self, mode: Mode) -> Tensor:
        return torch.ones_like(self.w)

    def penalty(self) -> Tensor:
        return self.w.new_zeros(self.w.shape[:-1])

    def count(self) -> Tensor:
        return torch.full(self.w.shape[:-1], self.K, dtype=torch.int64, device=self.w.device)

    def size(self) -> Tensor:
        """The boundary at which a gate with delta = 1/2 has this count: count - 1."""
        return self.count().to(torch.float64) - 1.0


class Retained(FixedCount):
    """Train all K components, and let truncation keep the first ``left``, a buffer that you can set later."""

    takes_bounds = True  # the user has chosen the count
    left: Tensor

    def __init__(self, K: int, left: int | None = None, *, r: Scalar = 1.0) -> None:
        super().__init__(K, r=r)
        self.register_buffer("left", torch.tensor(K if left is None else left))

    def gates(self, mode: Mode) -> Tensor:
        return torch.ones_like(self.w) if mode == "soft" else prefix(self.left, self.K).to(torch.float64)

    def count(self) -> Tensor:
        return self.left.clone()

    def size(self) -> Tensor:
        """The count."""
        return self.count().double()


class Opened(Retained):
    """Open the first components, as many as :meth:`open` says, in every mode: the size of a member of a front.

    A module in ``eval()`` mode has all components, unless ``forced``.
    """

    forced = False
    """Whether the count also applies in ``eval()`` mode."""
    sliced = False
    """Whether the tensors have no closed components in this pass, so that there is nothing to multiply."""
    whole = True

    def __init__(self, K: int) -> None:
        super().__init__(K)
        self.register_buffer("left", torch.tensor(K), persistent=False)

    def open(self, count: int, forced: bool = False) -> None:
        """Open the first ``count`` components."""
        self.left.fill_(count)
        self.whole, self.forced = count == self.K, forced

    @property
    def all_open(self) -> bool:  # type: ignore[override]
        """Whether no component is closed by a coefficient."""
        return self.sliced or self.whole or not (self.training or self.forced)

    def gates(self, mode: Mode) -> Tensor:
        return torch.ones_like(self.w) if self.all_open else prefix(self.left, self.K).to(torch.float64)

    def count(self) -> Tensor:
        return self.left.clone() if self.training or self.forced else torch.full_like(self.left, self.K)
