"""Learned decay and normalisation: the ingredients of AWNN inside the count gate. Each has its own switch.

    learn_r:    w_k = r^k with a learned r = sigmoid(rho), instead of a fixed r
    boundary:   y = sum_k w_k g_k(t) f_k with NGN's gates, price and snapping. Without it: g_k = 1, no price, and the
                deployed prefix is the smallest that holds a fraction q of the weight, (1 - r^D) / (1 - r^K) >= q
    normalise:  f_k / sqrt(mean f_k^2 + eps) over the batch, instead of f_k. (AWNN normalises the importances and the
                initialisation, not the activations.)

Truncation keeps the weights w_k of retained blocks and, with ``normalise``, the rms of the training batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.methods.gates.awnn import rounded_up
from ngn.gate import ordering_weights, prefix
from ngn.methods.base import Mode, Scalar, setting
from ngn.methods.ngn import CountGate


class DecayGate(CountGate):
    """The count gate with a learned decay; boundary and normalisation are optional.

    Args:
        K: candidate components.
        learn_r, boundary, normalise: the switches described in this module.
        quantile: q, used without a boundary.
        eps: added to the mean square in the normalisation.
        settings: arguments of :class:`CountGate`; ``r`` is the initial value of a learned decay.

    Raises:
        ValueError: if nothing is learned, or a learned decay does not start between 0 and 1.

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
            raise ValueError("learn_r=False with boundary=False learns nothing: set one of them to True")
        self.register_buffer("quantile", setting(quantile, self.replicas), persistent=False)
        self.quantile: Tensor
        self.has_boundary, self.rms_eps = boundary, eps if normalise else None
        if not boundary:
            self.tau.requires_grad_(False)
            self.commit_at(None)
        self.rho: nn.Parameter | None = None
        if learn_r:
            if self.order.kind != "geometric":
                raise ValueError(f"learn_r=True needs the geometric order r^k, not {self.order.kind}")
            if not bool(((self.r > 0) & (self.r < 1)).all()):
                raise ValueError("learn_r=True needs an initial r between 0 and 1")
            self.rho = nn.Parameter(torch.logit(self.r))

    def controllers(self) -> list[nn.Parameter]:
        """Return tau only.

        rho trains at the body's learning rate: at 5e-2, r reaches 1 in 300 steps of the 1D study.
        """
        return [self.tau]

    def decay(self) -> Tensor:
        """Return r, [*R]."""
        return self.r if self.rho is None else torch.sigmoid(self.rho)

    def gates(self, mode: Mode) -> Tensor:
        """Return the gates of :class:`CountGate`.

        Without a boundary, all are 1, and truncation cuts at the quantile.
        """
        if self.has_boundary:
            return super().gates(mode)
        open_ = torch.ones_like(self.w)
        return open_ if mode == "soft" else open_ * prefix(self.count(), self.K)

    def weights(self) -> Tensor:
        return ordering_weights(self.decay(), self.K)

    def penalty(self) -> Tensor:
        return super().penalty() if self.has_boundary else torch.zeros_like(self.r)

    def size(self) -> Tensor:
        """Return t; without a boundary, the width ln(1 - q (1 - r^K)) / ln r that holds a fraction q of the weight."""
        if self.has_boundary:
            return super().size()
        r = self.decay().detach()
        return torch.log1p(-self.quantile * (1 - r**self.K)) / torch.log(r)

    def count(self) -> Tensor:
        if self.has_boundary:
            return super().count()
        return rounded_up(self.size(), self.K)
