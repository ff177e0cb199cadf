"""Learned decay and normalisation: the ingredients of AWNN inside the count gate, each with a switch of its own.

    learn_r:    w_k = r^k with r = sigmoid(rho) learned, instead of a fixed r
    boundary:   y = sum_k w_k g_k(t) f_k with NGN's gates, price and snapping; without it g_k = 1 and no price is paid,
                and the deployed prefix is the smallest with a part q of the finite mass, (1 - r^D) / (1 - r^K) >= q
    normalise:  f_k / sqrt(mean f_k^2 + eps) over the batch instead of f_k (AWNN itself normalises the importances and
                the initialisation, not the activations)

Retained blocks keep their weights w_k in truncation; with ``normalise`` they also keep the rms of the training batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ngn.gate import ordering_weights, prefix, rounded_up
from ngn.methods.base import Mode, Scalar, setting
from ngn.methods.ngn import CountGate


class DecayGate(CountGate):
    """The count gate with a learned decay, with or without its boundary, over normalised functions or not.

    Args:
        K: candidate components.
        learn_r, boundary, normalise: the switches above.
        quantile: q, used without a boundary.
        eps: of the normalisation.
        settings: as of :class:`CountGate`; ``r`` is where a learned decay starts.

    Raises:
        ValueError: if there is nothing to learn, or a learned decay starts at 0 or 1.

    >>> import ngn
    >>> gate = DecayGate(4, t0=1.2, r=0.6)
    >>> gate.count().item(), round(gate.decay().item(), 6)
    (2, 0.6)
    """

    def __init__(
        self,
        K: int,
        *,
        learn_r: bool = True,
        boundary: bool = True,
        normalise: bool = False,
        quantile: Scalar = 0.9,
        eps: float = 1e-8,
        **settings: object,
    ) -> None:
        super().__init__(K, **settings)  # type: ignore[arg-type]
        if not (learn_r or boundary):
            raise ValueError("without a learned decay and a boundary there is nothing to learn")
        self.register_buffer("quantile", setting(quantile, self.replicas), persistent=False)
        self.quantile: Tensor
        self.has_boundary, self.rms_eps = boundary, eps if normalise else None
        if not boundary:
            self.tau.requires_grad_(False)
            self.commit_at(None)
        self.rho: nn.Parameter | None = None
        if learn_r:
            if self.order.kind != "geometric":
                raise ValueError("a decay is learned of the order r^k alone")
            if not bool(((self.r > 0) & (self.r < 1)).all()):
                raise ValueError("a learned decay must start between 0 and 1")
            self.rho = nn.Parameter(torch.logit(self.r))

    def controllers(self) -> list[nn.Parameter]:
        """tau alone. rho is trained at the body's rate: at 5e-2 r runs to 1 within 300 steps of the 1D study."""
        return [self.tau]

    def decay(self) -> Tensor:
        """r, [*R]."""
        return self.r if self.rho is None else torch.sigmoid(self.rho)

    def gates(self, mode: Mode) -> Tensor:
        """As of :class:`CountGate`; without a boundary all gates are 1, and truncation cuts at the quantile."""
        if self.has_boundary:
            return super().gates(mode)
        open_ = torch.ones_like(self.w)
        return open_ if mode == "soft" else open_ * prefix(self.count(), self.K)

    def weights(self) -> Tensor:
        return ordering_weights(self.decay(), self.K)

    def penalty(self) -> Tensor:
        return super().penalty() if self.has_boundary else torch.zeros_like(self.r)

    def size(self) -> Tensor:
        """t; without a boundary the width ln(1 - q (1 - r^K)) / ln r that holds a part q of the mass."""
        if self.has_boundary:
            return super().size()
        r = self.decay().detach()
        return torch.log1p(-self.quantile * (1 - r**self.K)) / torch.log(r)

    def count(self) -> Tensor:
        if self.has_boundary:
            return super().count()
        return rounded_up(self.size(), self.K)
