"""The bank of ``gate=waves``: f_k(x) = a_k sin(w_k x + b_k)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ngn import Bank


class WaveBank(Bank):
    """K waves. Parameters: [K], or [R, K] in a stack of R models.

    Args:
        highest: the largest frequency |w_k| at the start.
    """

    last = ("a",)  # zero at the start; truncation multiplies it by what is left of the coefficients

    def __init__(self, highest: float, K: int, seeds: int | Sequence[int]) -> None:
        self.highest = highest
        super().__init__(K, seeds)

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        """Draw one wave: a = 0, w in [-highest, highest], b in [-pi, pi]."""
        w, b = 2 * torch.rand(2, generator=source) - 1
        return {"a": torch.zeros(()), "w": self.highest * w, "b": torch.pi * b}

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        """The leading ``count`` waves at x, [N, 1] or [R, N, 1]: [count, N, 1] or [R, count, N, 1]."""
        a, w, b = (parameter[..., :count, None, None] for parameter in (self.a, self.w, self.b))
        return a * torch.sin(w * x.unsqueeze(-3) + b)
