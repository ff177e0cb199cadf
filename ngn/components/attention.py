"""Attention with any number of heads, as a replacement of torch's."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear


class Attention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` whose heads need not add up to the embedding size.

    Arguments and results are those of torch. Attention weights, if asked for, are the mean over the existing heads;
    while the number of heads is learned, each is weighted by its coefficient.
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
        bq: Tensor | None = None
        bk: Tensor | None = None
        bv: Tensor | None = None
        if self.in_proj_bias is not None:
            bq, bk, bv = self.in_proj_bias.chunk(3)
        if self.in_proj_weight is not None:
            wq, wk, wv = self.in_proj_weight.chunk(3)
        else:
            wq, wk, wv = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        q, k, v = self._heads(query, wq, bq), self._heads(key, wk, bk), self._heads(value, wv, bv)
        mask = _added(attn_mask, q)
        if mask is not None and mask.dim() == 3:
            if len(mask) != q.shape[0] * self.num_heads:
                raise ValueError(
                    f"a mask per head needs batch x heads = {q.shape[0]} x {self.num_heads} matrices, not {len(mask)}"
                )
            mask = mask.view(q.shape[0], -1, mask.shape[1], mask.shape[2])
        padding = _added(key_padding_mask, q)
        if padding is not None:
            padding = padding.view(q.shape[0], 1, 1, -1)
            mask = padding if mask is None else mask + padding
        p = self.dropout if self.training else 0.0
        attended: Tensor | None = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
            weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), p)
            h = weights @ v
            attended = self._mean(weights) if average_attn_weights else weights
        else:
            h = F.scaled_dot_product_attention(q, k, v, mask, p)
        y = self.out_proj(h.transpose(1, 2).flatten(2))
        if query.dim() == 2:
            return y[0], None if attended is None else attended[0]
        return y if self.batch_first else y.transpose(0, 1), attended

    def _heads(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[B, L, E], in the layout of the arguments → [B, heads, L, head_dim]"""
        x = x.unsqueeze(0) if x.dim() == 2 else x if self.batch_first else x.transpose(0, 1)
        return F.linear(x, weight, bias).unflatten(-1, [self.num_heads, self.head_dim]).transpose(1, 2)

    def _mean(self, attended: Tensor) -> Tensor:
        """[B, heads, L, S] → [B, L, S]"""
        if torch.jit.is_scripting():  # what is deployed has no coefficients
            return attended.mean(1)
        axis = getattr(self.out_proj, "size", None)
        c = None if axis is None else axis.coefficients()
        return attended.mean(1) if c is None else (attended * (c / c.sum()).to(attended).view(-1, 1, 1)).sum(1)


def _added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Convert a boolean mask (true: left out) to one that is added to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)


def use_cuttable_attention(modules: Iterable[nn.Module]) -> list[tuple[nn.MultiheadAttention, bool]]:
    """Give torch's attention among ``modules`` that forward pass; return what changed, to undo it."""
    changed = []
    for module in dict.fromkeys(modules):
        # an extra key would belong to no head
        if type(module) is nn.MultiheadAttention and module.bias_k is None and not module.add_zero_attn:
            changed.append((module, module._qkv_same_embed_dim))
            module.__class__, module._qkv_same_embed_dim = Attention, False  # False: disables torch's fast path
    return changed


def with_stock_attention(model: nn.Module) -> nn.Module:
    """``model``, whose attention is torch's again where all heads are left and nothing hooks its output map."""
    for module in model.modules():
        if type(module) is not Attention or module.num_heads * module.head_dim != module.embed_dim:
            continue
        out = module.out_proj
        stock = type(out) is NonDynamicallyQuantizableLinear and out.out_features == module.embed_dim
        if stock and not (out._forward_pre_hooks or out._forward_hooks):
            module._qkv_same_embed_dim = module.in_proj_weight is not None
            module.__class__ = nn.MultiheadAttention  # type: ignore[assignment]
    return model
