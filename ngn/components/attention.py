"""Attention with any number of heads, as a replacement of torch's."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` whose heads need not add up to the embedding size.

    Arguments and results are those of torch. Attention weights, if asked for, are the mean over the existing heads;
    while the number of heads is learned, each is weighted by its coefficient.

    >>> import torch
    >>> from ngn.components.attention import Attention
    >>> attention, x = torch.nn.MultiheadAttention(8, 4).eval(), torch.randn(5, 2, 8)
    >>> before, _ = attention(x, x, x)
    >>> attention.__class__ = Attention
    >>> torch.allclose(attention(x, x, x)[0], before, atol=1e-6)
    True
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if is_causal and attn_mask is None:
            raise ValueError("is_causal needs the mask itself, too: pass attn_mask=")
        packed = self.in_proj_weight is not None
        weights = (
            self.in_proj_weight.chunk(3) if packed else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        )
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        single = query.dim() == 2
        parts = []
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True):
            x = x.unsqueeze(0) if single else x if self.batch_first else x.transpose(0, 1)
            parts.append(F.linear(x, weight, bias).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2))
        q, k, v = parts
        mask = _added(attn_mask, q)
        if mask is not None and mask.dim() == 3:
            if len(mask) != q.shape[0] * self.num_heads:
                raise ValueError(
                    f"a mask per head needs batch x heads = {q.shape[0]} x {self.num_heads} matrices, not {len(mask)}"
                )
            mask = mask.view(q.shape[0], -1, *mask.shape[1:])
        padding = _added(key_padding_mask, q)
        if padding is not None:
            padding = padding.view(q.shape[0], 1, 1, -1)
            mask = padding if mask is None else mask + padding
        p = self.dropout if self.training else 0.0
        attended: Tensor | None = None
        if need_weights:
            scores = q @ k.mT / math.sqrt(self.head_dim)
            attended = F.dropout((scores if mask is None else scores + mask).softmax(-1), p)
            h = attended @ v
            attended = self._mean(attended) if average_attn_weights else attended
        else:
            h = F.scaled_dot_product_attention(q, k, v, mask, p)
        y = self.out_proj(h.transpose(1, 2).flatten(2))
        if single:
            return y[0], None if attended is None else attended[0]
        return y if self.batch_first else y.transpose(0, 1), attended

    def _mean(self, attended: Tensor) -> Tensor:
        """[B, heads, L, S] → [B, L, S]"""
        axis = getattr(self.out_proj, "size", None)
        c = None if axis is None else axis.coefficients()
        return attended.mean(1) if c is None else (attended * (c / c.sum()).to(attended).view(-1, 1, 1)).sum(1)


def _added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Convert a boolean mask (true: left out) to one that is added to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
