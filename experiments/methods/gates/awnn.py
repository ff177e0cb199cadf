"""AWNN on blocks (Errica et al., "Adaptive Width Neural Networks", arXiv 2501.15889), from the paper's equations.

A learned importance distribution over the blocks determines the width:

    nu = softplus(rho),  r = exp(-nu)                        rate, and ratio of successive importances
    p_k = exp(-nu k) - exp(-nu (k + 1)) = (1 - r) r^k        discretised exponential distribution
    D = ceil(ln(1 - q) / ln r)                               the smallest D with 1 - r^D >= q
    y = sum_{k < D} (1 - r) r^k f_k(x)                       hard cut also in training; D has no gradient
    J = loss + ||theta_live||^2 / (2 sigma^2 n)              Gaussian prior on the live blocks, n samples

The weights are not renormalised over the prefix. Dividing by (1 - r^D) would stop rho from moving, so the width would
keep its initial value. Evaluation and deployment use the same weights as training.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.gate import ordering_weights, prefix, softplus_inverse
from ngn.learner import Learner
from ngn.methods.base import Capacity, Mode, Scalar, on_host, setting


def rounded_up(width: Tensor, K: int) -> Tensor:
    """Round a width up to a count from 1 to K: int64.

    An excess of 1e-9 is ignored, so that an initial width of 16 stays 16 in spite of rounding errors.
    """
    return torch.ceil((width - 1e-9).clamp(1, K)).to(torch.int64)


class AdaptiveWidth(Capacity):
    """A live prefix of K blocks whose width follows from a learned exponential importance.

    Args:
        K: largest width.
        samples: n, the number of training samples; it divides the prior.
        quantile: q, the fraction of the mass that the live prefix holds.
        width: initial D.
        prior_sd: sigma, standard deviation of the Gaussian prior on the blocks' parameters.
        replicas: length of the replica axis; None for one model without that axis.

    Raises:
        ValueError: if K or samples is below 1.

    >>> import ngn
    >>> width = AdaptiveWidth(8, samples=100, width=2.5)
    >>> width.count().item(), width.gates("soft").tolist()
    (3, [1.0, 1.0, 1.0])
    """

    def __init__(
        self,
        K: int,
        samples: int,
        *,
        quantile: Scalar = 0.9,
        width: Scalar = 16.0,
        prior_sd: Scalar = 10.0,
        replicas: int | None = None,
    ) -> None:
        super().__init__()
        if K < 1 or samples < 1:
            raise ValueError(f"K and samples must be at least 1, not {K} and {samples}")
        self.K, self.samples, self.replicas = K, samples, replicas
        for name, value in (("quantile", quantile), ("prior_sd", prior_sd)):
            self.register_buffer(name, setting(value, replicas), persistent=False)
        self.quantile: Tensor
        self.prior_sd: Tensor
        self.rho = nn.Parameter(softplus_inverse(-torch.log1p(-self.quantile) / setting(width, replicas)))

    def rate(self) -> Tensor:
        """Return nu = softplus(rho), [*R]."""
        return F.softplus(self.rho, threshold=700.0)

    def gates(self, mode: Mode) -> Tensor:
        """Return 1 on the live prefix and 0 elsewhere, in every mode."""
        live = self.count()
        k = int(live.max()) if on_host(live) else self.K
        return prefix(live, k).to(torch.float64)

    def weights(self) -> Tensor:
        """Return the importances (1 - r) r^k, [*R, K]."""
        return -torch.expm1(-self.rate()).unsqueeze(-1) * ordering_weights(torch.exp(-self.rate()), self.K)

    def penalty(self) -> Tensor:
        """Return zero: the loss and the prior move the width, and :class:`PriorLearner` adds the prior."""
        return torch.zeros_like(self.rho, requires_grad=False)

    def prior(self, parameters: Iterable[Tensor]) -> Tensor:
        """Return ||theta||^2 / (2 sigma^2 n) over the live blocks, [*R].

        Args:
            parameters: tensors of shape [*R, K, ...].
        """
        live = prefix(self.count(), self.K)
        axis = self.rho.dim()
        squares = []
        for p in parameters:
            each = p.double().square()
            each = each.flatten(axis + 1).sum(-1) if each.dim() > axis + 1 else each
            # Leading components without parameters (an identity) are not stored.
            squares.append(F.pad(each, (self.K - each.shape[-1], 0)))
        return (torch.stack(squares).sum(0) * live).sum(-1) / (2.0 * self.prior_sd**2 * self.samples)

    def count(self) -> Tensor:
        return rounded_up(self.size(), self.K)

    def size(self) -> Tensor:
        """Return the width before rounding up, ln(1 - q) / ln r, [*R]."""
        return -torch.log1p(-self.quantile) / self.rate().detach()


class PriorLearner(Learner):
    """Learn widths under a Gaussian prior on the parameters of the live blocks.

    Args:
        model: a model whose axes have :class:`AdaptiveWidth` capacities.

    >>> import ngn
    >>> from experiments.models.mlp import MLPBank
    >>> bank = MLPBank([1, 4, 1], 8, seeds=0)
    >>> learner = PriorLearner(ngn.OrderedSum(bank, AdaptiveWidth(8, samples=100, width=2.5)))
    >>> bool(learner.penalty() > 0)
    True
    """

    def penalty(self) -> Tensor:
        """Return the sum of the capacities' penalties and of the priors of all axes, [*R]."""
        priors = [axis.capacity.prior(axis.component_parameters()) for axis in self.axes]  # type: ignore[operator]
        return super().penalty() + torch.stack(priors).sum(0)
