"""The two ordered sums of a Transformer layer: attention heads, and slices of the feed-forward layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ngn.components.base import Bank, uniform


class SequenceBank(Bank):
    """Components on B sequences of L positions, [B, L, d] → [B, L, d], without a replica axis.

    Args:
        d, width: entries of a position, and of a component.

    Raises:
        ValueError: for several seeds. Such models are not faster in a stack.
    """

    def __init__(self, d: int, width: int, K: int, seed: int, name: str | int = 0) -> None:
        if not isinstance(seed, int):
            raise ValueError("banks of sequence models have no replica axis: give one seed")
        self.d, self.width = d, width
        super().__init__(K, seed, name)


class HeadBank(SequenceBank):
    """K heads of causal attention, f_k(H) = softmax(H Q_k (H K_k)^T / sqrt(w)) H V_k O_k (the paper's Attn sum).

    All heads in use take one product with ``qkv`` [K, 3w, d], one call of torch's attention, and one product with ``O``
    [K, w, d]. Coefficients multiply ``O``. So all terms are summed within a product, which accumulates in float32, and
    bf16 does not lose small w_k.

    Args:
        d: entries of the residual stream.
        width: w, entries of a head's queries, keys and values.

    >>> import torch, ngn
    >>> HeadBank(8, width=4, K=3, seed=0)(torch.ones(2, 5, 8), None).shape
    torch.Size([2, 5, 8])
    """

    last = ("O",)
    qkv: Tensor
    O: Tensor  # noqa: E741 (its name in the equation)

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        return {"qkv": uniform((3 * self.width, self.d), self.d, source), "O": torch.zeros(self.width, self.d)}

    def _values(self, x: Tensor, k: int) -> Tensor:
        """Return the attended values of the k leading heads, [B, k, L, w]."""
        parts = F.linear(x, self.qkv[:k].flatten(0, 1)).unflatten(-1, (k, 3 * self.width)).transpose(1, 2)
        queries, keys, values = parts.split(self.width, -1)
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)

    def forward(self, x: Tensor, coefficients: Tensor | None) -> Tensor:
        k, out = (self.K, self.O) if coefficients is None else _weighted(self.O, coefficients)
        return self._values(x, k).transpose(1, 2).flatten(-2) @ out.flatten(0, 1)

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        k = self.K if count is None else count
        return torch.einsum("bklw,kwd->kbld", self._values(x, k), self.O[:k])


class SliceBank(SequenceBank):
    """K slices of a feed-forward layer, f_k(h) = W2_k gelu(W1_k h + b_k) (the paper's FFN sum).

    Args:
        d: entries of the residual stream.
        width: hidden units of a slice; ``up`` and ``down`` are [K, width, d].

    >>> import torch, ngn
    >>> SliceBank(8, width=4, K=3, seed=0)(torch.ones(2, 5, 8), None).shape
    torch.Size([2, 5, 8])
    """

    last = ("down",)
    up: Tensor
    bias: Tensor
    down: Tensor

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        return {
            "up": uniform((self.width, self.d), self.d, source),
            "bias": uniform((self.width,), self.d, source),
            "down": torch.zeros(self.width, self.d),
        }

    def _hidden(self, x: Tensor, k: int) -> Tensor:
        """Return the hidden units of the k leading slices, [B, L, k width]."""
        return F.gelu(F.linear(x, self.up[:k].flatten(0, 1), self.bias[:k].flatten()))

    def forward(self, x: Tensor, coefficients: Tensor | None) -> Tensor:
        k, down = (self.K, self.down) if coefficients is None else _weighted(self.down, coefficients)
        return self._hidden(x, k) @ down.flatten(0, 1)

    def components(self, x: Tensor, count: int | None = None) -> Tensor:
        k = self.K if count is None else count
        return torch.einsum("blkw,kwd->kbld", self._hidden(x, k).unflatten(-1, (k, self.width)), self.down[:k])


def _weighted(last: Tensor, coefficients: Tensor) -> tuple[int, Tensor]:
    """Return the number k of components in use, and their last maps [k, width, d] times their coefficients [k]."""
    k = len(coefficients)
    return k, last[:k] * coefficients.to(last.dtype)[:, None, None]
