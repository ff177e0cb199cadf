"""Straight-through count: NGN's boundary and objective, with the hard prefix in the forward pass.

    forward:   h_k = 1[k <= round(t)]                      (delta = 1/2; 1[k < round(t)] for delta = -1/2)
    backward:  dh_k/dt = beta s_k (1 - s_k),  s_k = sigmoid(beta (t - k + delta))

This is the straight-through estimator of Bengio, Leonard and Courville (2013), as in the paper's comparison. Closed
blocks have a coefficient of zero, so their weights get no gradient. They still contribute to dJ/dt through dh_k/dt.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ngn.gate import gates, prefix
from ngn.methods.base import Mode, active_components, on_host
from ngn.methods.ngn import CountGate


class StraightThrough(CountGate):
    """A count gate with hard gates in the forward pass. It takes the arguments of :class:`CountGate`.

    The paper uses a constant beta of 2.

    >>> import ngn
    >>> StraightThrough(4, t0=2.3, beta=(2.0, 2.0)).gates("soft").tolist()
    [1.0, 1.0, 1.0, 0.0]
    """

    def gates(self, mode: Mode) -> Tensor:
        """Return h_k in every mode. The soft mode has the derivative of the sigmoid."""
        if self.committed:
            return super().gates(mode)
        t = self.t()
        if mode != "soft":
            return prefix(self.count(), self.K).to(torch.float64)
        k = active_components(t.detach(), self.K, self.beta, self.delta) if on_host(t) else self.K
        s = gates(t, k, self.beta, self.delta)
        # s - s.detach() is exactly zero, so the forward pass equals the hard prefix bit by bit.
        return prefix(self.count(), k) + (s - s.detach())
