"""Hard-concrete L0 gates (Louizos, Welling and Kingma, "Learning sparse neural networks through L0 regularization",
ICLR 2018): one independent gate per component, without ordering weights.

    u_k ~ U(0, 1);  s_k = sigmoid((ln u_k - ln(1 - u_k) + a_k) / tau)
    z_k = clip(s_k (zeta - gamma) + gamma, 0, 1)                              in training
    P(z_k > 0) = sigmoid(a_k - tau ln(-gamma / zeta));  penalty lambda sum_k P(z_k > 0)
    z_k = clip(sigmoid(a_k) (zeta - gamma) + gamma, 0, 1)                     when evaluated and deployed

The price is not divided by the number of samples: with the mean squared error, dividing would leave every gate open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ngn.methods.base import Capacity, Mode, Scalar, setting
from ngn.streams import generator, of_seeds

EDGE = 1e-6
"""Distance of uniform draws from 0 and 1, where the logistic noise is infinite."""
SPREAD = 0.01
"""Standard deviation of the initial a_k around the logit of the open probability."""
LIMIT = math.log(100.0)
"""Bound on |a_k| after every step, as in the authors' release; the paper's equations have none.

The evaluated gate is exactly 0 or 1 from |a| = 2.4 on, with the default stretch, so the bound does not change it. With
the bound, a closed gate can open again, and an open gate stays noisy: at temperature 2/3, a gate at the bound is drawn
below 1 in 4.7 % of the steps."""


class HardConcrete(Capacity):
    """K independent hard-concrete gates.

    Args:
        K: components.
        seeds: one seed, or one per replica; they determine the initial a_k and the noise of every step.
        price: lambda, which multiplies the expected number of open gates.
        temperature: tau.
        open_probability: sigmoid of the mean initial a_k.
        stretch: gamma < 0 and zeta > 1.
        limit: bound on |a_k|.
        name: name of the group, if a model has several.

    Raises:
        ValueError: if K < 1, the stretch does not contain [0, 1], or the limit is not positive.

    >>> import ngn
    >>> gate = HardConcrete(4, seeds=0, open_probability=0.9)
    >>> gate.before_step(0)  # draws the noise
    >>> gate.gates("soft").shape, gate.count().item()
    (torch.Size([4]), 4)
    """

    def __init__(
        self,
        K: int,
        seeds: int | Sequence[int],
        *,
        price: Scalar = 1e-2,
        temperature: Scalar = 2 / 3,
        open_probability: Scalar = 0.9,
        stretch: tuple[float, float] = (-0.1, 1.1),
        limit: float = LIMIT,
        name: str | int = 0,
    ) -> None:
        super().__init__()
        if K < 1:
            raise ValueError(f"K must be at least 1, not {K}")
        if not stretch[0] < 0 < 1 < stretch[1]:
            raise ValueError(f"stretch must be (below 0, above 1), not {stretch}")
        if not limit > 0:
            raise ValueError(f"limit, the bound on |a_k|, must be positive, not {limit}")
        self.K, self.seeds, self.stretch, self.limit, self.name = K, seeds, stretch, limit, name
        self.replicas = None if isinstance(seeds, int) else len(seeds)
        for key, value in (("price", price), ("temperature", temperature)):
            self.register_buffer(key, setting(value, self.replicas), persistent=False)
        self.price: Tensor
        self.temperature: Tensor

        # One generator per component, so that the start of component k does not depend on K.
        def jitter(seed: int) -> Tensor:
            sources = [generator(seed, "init", "gate", name, k) for k in range(K)]
            return torch.cat([torch.randn(1, dtype=torch.float64, generator=source) for source in sources])

        start = torch.logit(setting(open_probability, self.replicas)).unsqueeze(-1)
        self.log_alpha = nn.Parameter(start + SPREAD * of_seeds(seeds, jitter))
        self.noise: Tensor | None = None

    def before_step(self, step: int | None) -> None:
        """Draw the noise ln u - ln(1 - u) of this step; ``step=None`` makes the gates deterministic."""
        if step is None:
            self.noise = None
            return
        at = "noise", step, self.name
        u = of_seeds(self.seeds, lambda s: torch.rand(self.K, dtype=torch.float64, generator=generator(s, *at)))
        self.noise = torch.logit(u * (1 - 2 * EDGE) + EDGE).to(self.log_alpha.device)

    def _stretched(self, s: Tensor) -> Tensor:
        gamma, zeta = self.stretch
        return (s * (zeta - gamma) + gamma).clamp(0.0, 1.0)

    def gates(self, mode: Mode) -> Tensor:
        """Return sampled gates for the soft mode within a training step, and deterministic gates otherwise."""
        if self.noise is None or mode != "soft":
            return self._stretched(torch.sigmoid(self.log_alpha))
        return self._stretched(torch.sigmoid((self.noise + self.log_alpha) / self.temperature.unsqueeze(-1)))

    def weights(self) -> Tensor:
        """Return ones: the gates are independent, not ordered."""
        return torch.ones_like(self.log_alpha, requires_grad=False)

    def kept(self) -> Tensor:
        """Return which components have a deterministic gate above 0, bool [*R, K]. They need not be a prefix."""
        return self.gates("hard").detach() > 0

    def open_probabilities(self) -> Tensor:
        """Return P(z_k > 0), [*R, K]."""
        gamma, zeta = self.stretch
        return torch.sigmoid(self.log_alpha - self.temperature.unsqueeze(-1) * math.log(-gamma / zeta))

    def penalty(self) -> Tensor:
        """Return lambda times the expected number of open gates, [*R]."""
        return self.price * self.open_probabilities().sum(-1)

    @torch.no_grad()
    def after_step(self) -> None:
        self.log_alpha.clamp_(-self.limit, self.limit)

    def count(self) -> Tensor:
        return self.kept().sum(-1)

    def size(self) -> Tensor:
        """Return the expected number of open gates, [*R]."""
        return self.open_probabilities().detach().sum(-1)
