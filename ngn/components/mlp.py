"""tanh MLP blocks: f_k(x) = W_3k tanh(W_2k tanh(W_1k x + b_1k) + b_2k) + b_3k."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ngn.components.base import Bank, Seeds, uniform


class MLPBank(Bank):
    """K tanh MLPs of the layer sizes ``sizes`` (input, hidden, ..., output), computed as batched matrix products.

    Input: [N, in], or [R, N, in] where every replica has samples of its own. Weights are stored as [*R, K, in, out].
    """

    def __init__(self, sizes: Sequence[int], K: int, seeds: Seeds, name: str | int = 0) -> None:
        if len(sizes) < 2:
            raise ValueError(f"an MLP needs an input and an output size, not {list(sizes)}")
        self.sizes = tuple(sizes)
        super().__init__(K, seeds, name)

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        drawn: dict[str, Tensor] = {}
        layers = list(zip(self.sizes, self.sizes[1:], strict=False))
        for i, (fan_in, fan_out) in enumerate(layers, 1):
            if i < len(layers):
                drawn[f"W{i}"] = uniform((fan_in, fan_out), fan_in, source)
                drawn[f"b{i}"] = uniform((fan_out,), fan_in, source)
            else:
                drawn[f"W{i}"], drawn[f"b{i}"] = torch.zeros(fan_in, fan_out), torch.zeros(fan_out)
        return drawn

    def _hidden(self, x: Tensor, k: int) -> Tensor:
        """The last hidden activations of the k leading blocks: [*R, k, N, h]."""
        a = x.unsqueeze(-3)
        for i in range(1, len(self.sizes) - 1):
            W = getattr(self, f"W{i}").narrow(-3, 0, k)
            b = getattr(self, f"b{i}").narrow(-2, 0, k).unsqueeze(-2)
            if i == 1 and x.dim() == 3:
                # A batched product would copy each replica's samples k times; one wide product a replica does not.
                wide = torch.movedim(W, -3, -2).flatten(-2)
                a = torch.tanh(torch.movedim((x @ wide).unflatten(-1, (k, W.shape[-1])), -2, -3) + b)
                continue
            # A product with one input is an outer product, which a broadcast multiplication does faster than a matmul.
            z = torch.addcmul(b, a, W) if W.shape[-2] == 1 else a @ W + b
            a = torch.tanh(z)
        return a

    def forward(self, x: Tensor, coefficients: Tensor) -> Tensor:
        k = coefficients.shape[-1]
        last = len(self.sizes) - 1
        W, b = getattr(self, f"W{last}"), getattr(self, f"b{last}")
        c = coefficients.to(W.dtype).unsqueeze(-1)
        # The coefficient goes into the last map, which is small, rather than over the outputs of every sample.
        W = W.narrow(-3, 0, k) * c.unsqueeze(-1)
        b = (b.narrow(-2, 0, k) * c).sum(-2)
        return (self._hidden(x, k) @ W).sum(-3) + b.unsqueeze(-2)

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        k, last = self.K if count is None else count, len(self.sizes) - 1
        W, b = getattr(self, f"W{last}").narrow(-3, 0, k), getattr(self, f"b{last}").narrow(-2, 0, k)
        return self._hidden(x, k) @ W + b.unsqueeze(-2)

    def truncated(self, kept: Tensor, weights: Tensor, replica: int | None) -> nn.Module:
        return ParallelMLP(self, kept, weights, replica)


class ParallelMLP(nn.Module):
    """The sum of the kept tanh MLPs, as it is deployed: no gates, no candidates, weights folded into the last maps."""

    def __init__(self, bank: MLPBank, kept: Tensor, weights: Tensor, replica: int | None) -> None:
        super().__init__()
        self.layers = len(bank.sizes) - 1
        for i in range(1, self.layers + 1):
            W, b = bank.parameter(f"W{i}", replica, kept), bank.parameter(f"b{i}", replica, kept)
            if i == self.layers:
                folded = weights.detach().to(W.dtype)
                W, b = W * folded[:, None, None], (b * folded[:, None]).sum(0)
            self.register_parameter(f"W{i}", nn.Parameter(W))
            self.register_parameter(f"b{i}", nn.Parameter(b))

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] → [N, out]"""
        a = x.unsqueeze(-3)
        for i in range(1, self.layers):
            a = torch.tanh(a @ getattr(self, f"W{i}") + getattr(self, f"b{i}").unsqueeze(-2))
        y: Tensor = (a @ getattr(self, f"W{self.layers}")).sum(-3) + getattr(self, f"b{self.layers}")
        return y
