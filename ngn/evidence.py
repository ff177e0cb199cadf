"""A running mean and its standard error."""

from __future__ import annotations

import torch
from torch import Tensor, nn

AVERAGE = 50
"""Steps over which values are averaged."""


class BenefitMoments(nn.Module):
    """Decayed sums of values, [*R, G], from which follow their mean and its standard error.

        mean     sum_i w_i x_i / sum_i w_i, w_i = (1 - 1 / AVERAGE)^(age of value i)
        error    sqrt(variance / (effective number - 1)), effective number (sum_i w_i)^2 / sum_i w_i^2

    >>> evidence = BenefitMoments(torch.Size([1]))
    >>> for step in range(100):
    ...     evidence.add(torch.tensor([1.0 + (-1) ** step], dtype=torch.float64), torch.ones((), dtype=torch.float64))
    >>> round(float(evidence.standard_errors()), 1)
    8.6
    """

    moments: Tensor
    """Decayed sums of values and of their squares: float64 [2, *R, G]."""
    weights: Tensor
    """Sums of the weights and of their squares: float64 [2, *R]."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.register_buffer("moments", torch.zeros(2, *shape, dtype=torch.float64))
        self.register_buffer("weights", torch.zeros(2, *shape[:-1], dtype=torch.float64))

    def clear(self) -> None:
        """Forget everything: a new training begins."""
        self.moments.zero_()
        self.weights.zero_()

    def add(self, values: Tensor, counts: Tensor) -> None:
        """Add ``values``, float64 [*R, G], where ``counts``, float64 [*R], is 1; those with 0 change nothing."""
        left = 1.0 - counts / AVERAGE
        values = values * counts.unsqueeze(-1)
        self.moments.mul_(left.unsqueeze(-1)).add_(torch.stack([values, values**2]))
        self.weights.mul_(torch.stack([left, left**2])).add_(counts)

    def standard_errors(self) -> Tensor:
        """The mean in units of its standard error: float64 [*R, G]; 0 if unknown."""
        (total, squares), (weight, of_squares) = self.moments, self.weights.unsqueeze(-1)
        mean = total / weight.clamp(min=1.0)
        effective = (weight**2 / of_squares.clamp(min=1e-300) - 1.0).clamp(min=1.0)
        error = ((squares / weight.clamp(min=1.0) - mean**2).clamp(min=0.0) / effective).sqrt()
        return torch.where((weight > 1.0) & (error > 0.0), mean / error.clamp(min=1e-300), 0.0)
