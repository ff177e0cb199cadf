"""Hard-concrete L0 gates (Louizos, Welling and Kingma, "Learning sparse neural networks through L0 regularization",
ICLR 2018), one independent gate a component and no ordering weights.

    u_k ~ U(0, 1);  s_k = sigmoid((ln u_k - ln(1 - u_k) + a_k) / tau)
    z_k = clip(s_k (zeta - gamma) + gamma, 0, 1)                              in training
    P(z_k > 0) = sigmoid(a_k - tau ln(-gamma / zeta));  penalty lambda sum_k P(z_k > 0)
    z_k = clip(sigmoid(a_k) (zeta - gamma) + gamma, 0, 1)                     when evaluated and deployed

The price is not divided by the number of samples: with the mean squared error that leaves every gate open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ngn.methods.base import Capacity, Mode, Scalar, setting
from ngn.streams import generator

EDGE = 1e-6
"""Uniform draws stay this far from 0 and 1, where the logistic noise is infinite."""
SPREAD = 0.01
"""Standard deviation of the initial a_k around the logit of the open probability."""
LIMIT = math.log(100.0)
"""What |a_k| is held below after every step, as the authors' release does; not in the paper's equations. The evaluated
gate is exactly 0 or 1 well inside (from |a| = 2.4 with the usual stretch). It keeps a closed gate revivable, and an
open one noisy: at temperature 2/3 one at the limit is drawn below 1 in 4.7 % of the steps."""


class HardConcrete(Capacity):
    """K independent hard-concrete gates.

    Args:
        K: components.
        seeds: one seed, or one per replica, from which the initial a_k and the noise of every step are drawn.
        price: lambda, for each component that is expected to be open.
        temperature: tau.
        open_probability: sigmoid of the mean initial a_k.
        stretch: gamma < 0 and zeta > 1.
        limit: what |a_k| is held below.
        name: of the group, where a model has several.

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
            raise ValueError(f"the stretch limits must lie below 0 and above 1, not {stretch}")
        if not limit > 0:
            raise ValueError(f"the limit of |a_k| must be positive, not {limit}")
        self.K, self.seeds, self.stretch, self.limit, self.name = K, seeds, stretch, limit, name
        self.replicas = None if isinstance(seeds, int) else len(seeds)
        for key, value in (("price", price), ("temperature", temperature)):
            self.register_buffer(key, setting(value, self.replicas), persistent=False)
        self.price: Tensor
        self.temperature: Tensor
        # One draw a component, so that component k starts the same however many there are.
        jitter = self._per_seed(
            lambda seed: torch.cat(
                [
                    torch.randn(1, dtype=torch.float64, generator=generator(seed, "init", "gate", name, k))
                    for k in range(K)
                ]
            )
        )
        start = torch.logit(setting(open_probability, self.replicas)).unsqueeze(-1)
        self.log_alpha = nn.Parameter(start + SPREAD * jitter)
        self.noise: Tensor | None = None

    def _per_seed(self, draw: Callable[[int], Tensor]) -> Tensor:
        each = [self.seeds] if isinstance(self.seeds, int) else list(self.seeds)
        drawn = [draw(seed) for seed in each]
        return drawn[0] if self.replicas is None else torch.stack(drawn)

    def before_step(self, step: int | None) -> None:
        """Draw ln u - ln(1 - u) of this step; None makes the gates deterministic."""
        if step is None:
            self.noise = None
            return
        u = self._per_seed(
            lambda seed: torch.rand(self.K, dtype=torch.float64, generator=generator(seed, "noise", step, self.name))
        )
        self.noise = torch.logit(u * (1 - 2 * EDGE) + EDGE).to(self.log_alpha.device)

    def _stretched(self, s: Tensor) -> Tensor:
        gamma, zeta = self.stretch
        return (s * (zeta - gamma) + gamma).clamp(0.0, 1.0)

    def gates(self, mode: Mode) -> Tensor:
        """The sampled gates within a step, the deterministic ones otherwise and in every mode but the soft one."""
        if self.noise is None or mode != "soft":
            return self._stretched(torch.sigmoid(self.log_alpha))
        return self._stretched(torch.sigmoid((self.noise + self.log_alpha) / self.temperature.unsqueeze(-1)))

    def weights(self) -> Tensor:
        """Ones: the gates are independent of one another, not ordered."""
        return torch.ones_like(self.log_alpha, requires_grad=False)

    def kept(self) -> Tensor:
        """The components whose deterministic gate is not exactly closed; they need not be a prefix."""
        return self.gates("hard").detach() > 0

    def open_probabilities(self) -> Tensor:
        """P(z_k > 0), [*R, K]."""
        gamma, zeta = self.stretch
        return torch.sigmoid(self.log_alpha - self.temperature.unsqueeze(-1) * math.log(-gamma / zeta))

    def penalty(self) -> Tensor:
        """lambda times the expected number of open gates."""
        return self.price * self.open_probabilities().sum(-1)

    @torch.no_grad()
    def after_step(self) -> None:
        self.log_alpha.clamp_(-self.limit, self.limit)

    def count(self) -> Tensor:
        return self.kept().sum(-1)

    def size(self) -> Tensor:
        """The expected number of open gates."""
        return self.open_probabilities().detach().sum(-1)
