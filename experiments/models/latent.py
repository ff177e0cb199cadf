"""A bottleneck of rank-one terms f_k(x) = B_k A_k x, and the gated posterior that makes it a latent code."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.components.base import Bank, OrderedSum, Seeds, uniform
from ngn.methods.base import Capacity
from ngn.streams import generator, of_seeds


class RankOneBank(Bank):
    """K rank-one maps from ``inputs`` to ``out`` entries: A [*R, K, inputs] without bias, and B [*R, K, out].

    B starts at zero.

    >>> import torch, ngn
    >>> bank = RankOneBank(4, out=3, K=2, seeds=0).take(A=torch.eye(2, 4), B=torch.ones(2, 3))
    >>> bank(torch.tensor([[1.0, 2.0, 0.0, 0.0]]), None).tolist()
    [[3.0, 3.0, 3.0]]
    """

    def __init__(self, inputs: int, out: int, K: int, seeds: Seeds, name: str | int = 0) -> None:
        self.inputs, self.out = inputs, out
        super().__init__(K, seeds, name)

    last = ("B",)
    A: Tensor
    B: Tensor

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        return {"A": uniform((self.inputs,), self.inputs, source), "B": torch.zeros(self.out)}

    def latents(self, x: Tensor, count: int) -> Tensor:
        """Return A_k x of the ``count`` leading terms. x: [*R, N, inputs]; returns [*R, N, count]."""
        return x @ self.A.narrow(-2, 0, count).mT

    def decode(self, z: Tensor, coefficients: Tensor | None) -> Tensor:
        """Return sum_k c_k z_k B_k. z: [*R, N, k], coefficients: [*R, k] or None for ones; returns [*R, N, out]."""
        if coefficients is None:
            return z @ self.B
        c = coefficients.to(self.B.dtype).unsqueeze(-1)
        return z @ (self.B.narrow(-2, 0, z.shape[-1]) * c)

    def forward(self, x: Tensor, coefficients: Tensor | None) -> Tensor:
        return self.decode(self.latents(x, self.K if coefficients is None else coefficients.shape[-1]), coefficients)

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        k = self.K if count is None else count
        return self.latents(x, k).mT.unsqueeze(-1) * self.B.narrow(-2, 0, k).unsqueeze(-2)

    @torch.no_grad()
    def rank(self, threshold: float) -> int:
        """Return how many singular values of sum_k B_k A_k exceed ``threshold`` times the largest, in float64."""
        values = torch.linalg.svdvals(self.B.double().T @ self.A.double())
        return int((values > threshold * values[0]).sum())


class GatedBottleneck(OrderedSum):
    """An ordered sum of rank-one terms whose latent scalars z_k are sampled in training.

    With mu_k = A_k x, gate g_k, ordering weight w_k and one learned log variance l_k per term:

        q_k(z_k | x) = N(g_k mu_k, g_k^2 exp(l_k) + 1 - g_k^2)
        y = sum_k w_k z_k B_k                                       g_k acts only in the posterior
        divergence = kl sum_k KL(q_k || N(0, 1)), averaged over the batch

    The equations are from the paper's appendix on the manifold dimension. A closed gate leaves unit Gaussian noise, so
    a decoder cannot recover a hidden coordinate by amplifying it. Outside training steps, z_k is the posterior mean.

    Args:
        bank: the rank-one terms.
        capacity: their capacity. It needs a preset K, because closed terms carry noise and so must exist.
        kl: weight of the divergence, per nat.

    Raises:
        ValueError: if the capacity allocates components as it grows, or normalises them.
    """

    bank: RankOneBank
    cuttable = False

    def __init__(self, bank: RankOneBank, capacity: Capacity, kl: float = 1e-4) -> None:
        super().__init__(bank, capacity)
        if capacity.growing or capacity.rms_eps is not None:
            raise ValueError("a gated posterior needs a capacity with a preset K and without normalisation")
        self.kl = kl
        lead = () if bank.replicas is None else (bank.replicas,)
        self.log_variance: nn.Parameter | None = nn.Parameter(torch.zeros(*lead, bank.K))
        self._step: int | None = None
        self._part = 0
        self._divergence: Tensor | None = None

    def before_step(self, step: int | None) -> None:
        super().before_step(step)
        self._step, self._part, self._divergence = step, 0, None

    def variance(self) -> tuple[Tensor, Tensor]:
        """Return gates g and excess variances d = g^2 (exp(l) - 1), both [*R, K]; d is float64.

        The variance is 1 + d.
        """
        assert self.log_variance is not None
        g = self.capacity.gates(self.mode)
        g = F.pad(g, (0, self.bank.K - g.shape[-1]))
        return g, g.square() * torch.expm1(self.log_variance.double())

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean, [*R, N, K], and the excess variance, float64 [*R, K]."""
        g, excess = self.variance()
        mu = self.bank.latents(x, self.bank.K)
        return mu * g.to(mu.dtype).unsqueeze(-2), excess

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum, [*R, N, out]. Within a training step, the latent scalars are sampled."""
        if self.capacity is None or self._step is None or self.mode != "soft" or self.bank.K == 0:
            return super().forward(x)
        mean, excess = self.posterior(x)
        self._divergence = divergence(mean, excess)
        deviation = (1.0 + excess).sqrt().to(mean.dtype).unsqueeze(-2)
        return self.bank.decode(mean + deviation * self.noise(mean, mean.shape[-2]), self.capacity.weights())

    def closed(self, scale: Tensor | None) -> None:
        super().closed(scale)
        self.log_variance = None

    def divergence(self) -> Tensor | None:
        """The weighted divergence of the last forward pass, [*R]; None outside training steps."""
        return None if self._divergence is None else self.kl * self._divergence

    def noise(self, like: Tensor, samples: int) -> Tensor:
        """Draw standard normal noise [*R, samples, K] in the dtype of ``like``.

        Seed, step, group and micro-batch determine it.
        """
        K, address = self.bank.K, ("posterior", self._step or 0, self.bank.name, self._part)
        self._part += 1
        return of_seeds(self.bank.seeds, lambda s: torch.randn(samples, K, generator=generator(s, *address))).to(like)


def divergence(mean: Tensor, excess: Tensor) -> Tensor:
    """Return sum_k KL(N(m_k, 1 + d_k) || N(0, 1)) = sum_k (m_k^2 + d_k - ln(1 + d_k)) / 2, averaged over samples, [*R].

    Args:
        mean: m, [*R, N, K].
        excess: d, the variance minus one, [*R, K]. In this form, a closed gate gives exactly zero.
    """
    spread = (excess - torch.log1p(excess)).sum(-1)
    return 0.5 * (mean.square().sum(-1).mean(-1) + spread.to(mean.dtype))
