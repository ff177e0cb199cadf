"""tanh MLP blocks: f_k(x) = W_3k tanh(W_2k tanh(W_1k x + b_1k) + b_2k) + b_3k."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ngn.components.base import Bank, Seeds, uniform


class MLPBank(Bank):
    """K tanh MLPs with layer sizes ``sizes`` (input, hidden, ..., output), computed as batched matrix products.

    Input: [N, in], or [R, N, in] if every replica has its own samples. Weights have the shape [*R, K, in, out].

    >>> import torch, ngn
    >>> bank = MLPBank([2, 5, 3], K=4, seeds=[0, 1])  # two models in a stack
    >>> bank(torch.ones(7, 2), None).shape, bank.components(torch.ones(7, 2)).shape
    (torch.Size([2, 7, 3]), torch.Size([2, 4, 7, 3]))
    """

    def __init__(self, sizes: Sequence[int], K: int, seeds: Seeds, name: str | int = 0) -> None:
        if len(sizes) < 2:
            raise ValueError(f"an MLP needs an input and an output size, not {list(sizes)}")
        self.sizes = tuple(sizes)
        self.last = (f"W{len(sizes) - 1}", f"b{len(sizes) - 1}")
        self.shared_biases = self.last[1:]
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
        """Return the last hidden activations of the k leading blocks, [*R, k, N, h]."""
        a = x.unsqueeze(-3)
        for i in range(1, len(self.sizes) - 1):
            W = getattr(self, f"W{i}").narrow(-3, 0, k)
            b = getattr(self, f"b{i}").narrow(-2, 0, k).unsqueeze(-2)
            if i == 1 and x.dim() == 3:
                # A batched product would copy each replica's samples k times; one wide product per replica does not.
                wide = torch.movedim(W, -3, -2).flatten(-2)
                a = torch.tanh(torch.movedim((x @ wide).unflatten(-1, (k, W.shape[-1])), -2, -3) + b)
                continue
            # A product with one input is an outer product; a broadcast multiplication is faster than a matmul.
            z = torch.addcmul(b, a, W) if W.shape[-2] == 1 else a @ W + b
            a = torch.tanh(z)
        return a

    def forward(self, x: Tensor, coefficients: Tensor | None) -> Tensor:
        W, b = (getattr(self, name) for name in self.last)
        if coefficients is None:
            return (self._hidden(x, self.K) @ W).sum(-3) + b.sum(-2).unsqueeze(-2)
        k = coefficients.shape[-1]
        c = coefficients.to(W.dtype).unsqueeze(-1)
        # Multiply the coefficients into the last map, which is small, instead of into the outputs of every sample.
        W = W.narrow(-3, 0, k) * c.unsqueeze(-1)
        b = (b.narrow(-2, 0, k) * c).sum(-2)
        return (self._hidden(x, k) @ W).sum(-3) + b.unsqueeze(-2)

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        k = self.K if count is None else count
        W, b = (getattr(self, name) for name in self.last)
        W, b = W.narrow(-3, 0, k), b.narrow(-2, 0, k)
        return self._hidden(x, k) @ W + b.unsqueeze(-2)
