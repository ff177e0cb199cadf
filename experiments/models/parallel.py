"""y(x) = h(sum_k w_k g_k f_k(x)): one ordered group and an optional task head h."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ngn.components.base import OrderedSum, Seeds, uniform
from ngn.cuts import Stacked
from ngn.streams import generator


class StackedLinear(Stacked):
    """A linear map with an optional replica axis: weight [*R, in, out], bias [*R, out].

    It has torch's default initialisation; each seed and ``name`` determine it.
    """

    def __init__(self, inputs: int, out: int, seeds: Seeds, name: str = "head") -> None:
        super().__init__()
        self.replicas = None if isinstance(seeds, int) else len(seeds)
        each = [seeds] if isinstance(seeds, int) else list(seeds)
        drawn = []
        for seed in each:
            source = generator(seed, "init", name)
            drawn.append((uniform((inputs, out), inputs, source), uniform((out,), inputs, source)))
        weight, bias = (torch.stack(part) for part in zip(*drawn, strict=True))
        self.weight = nn.Parameter(weight[0] if isinstance(seeds, int) else weight)
        self.bias = nn.Parameter(bias[0] if isinstance(seeds, int) else bias)

    def forward(self, x: Tensor) -> Tensor:
        """[*R, N, in] → [*R, N, out]"""
        return x @ self.weight + self.bias.unsqueeze(-2)


class ParallelModel(nn.Module):
    """One ordered group and an optional head.

    >>> import torch, ngn
    >>> from ngn.methods.fixed import FixedCount
    >>> from experiments.models.mlp import MLPBank
    >>> group = ngn.OrderedSum(MLPBank([2, 5, 3], K=4, seeds=0), FixedCount(4))
    >>> ParallelModel(group)(torch.ones(7, 2)).shape
    torch.Size([7, 3])
    """

    def __init__(self, group: OrderedSum, head: StackedLinear | None = None) -> None:
        super().__init__()
        self.group, self.head = group, head

    def forward(self, x: Any) -> Tensor:
        """Return y, [*R, N, out]."""
        y: Tensor = self.group(x)
        return y if self.head is None else self.head(y)
