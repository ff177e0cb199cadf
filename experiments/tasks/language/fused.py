"""One linear map for queries, keys and values, as in GPT-NeoX, taken apart: each then takes low-rank terms of its own.

Rows of the fused map: head after head, and within a head those of q, of k and of v.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ngn.components.low_rank import LowRankLinear, replace
from ngn.cut.truncation import deploy
from ngn.methods.fixed import FixedCount

FUSED = "query_key_value"
"""Name of the fused map in a layer of GPT-NeoX."""
KINDS = ("q", "k", "v")


class SplitMap(nn.Module):
    """Three linear maps whose outputs are put together as the fused map gives them: [..., in] → [..., out]."""

    def __init__(self, fused: nn.Linear, heads: int) -> None:
        super().__init__()
        self.heads, self.out_features = heads, fused.out_features
        for kind, rows in zip(KINDS, self.rows(), strict=True):
            like: dict[str, Any] = {"device": fused.weight.device, "dtype": fused.weight.dtype}
            part = nn.utils.skip_init(nn.Linear, fused.in_features, len(rows), fused.bias is not None, **like)
            for own, whole in zip(part.parameters(), fused.parameters(), strict=True):
                own.data = whole.data[rows.to(whole.device)]
            self.add_module(kind, part.requires_grad_(fused.weight.requires_grad))

    def rows(self) -> Tensor:
        """Return the rows of q, k and v in the fused map: int64 [3, out / 3]."""
        return torch.arange(self.out_features).view(self.heads, len(KINDS), -1).transpose(0, 1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.get_submodule(kind)(x).unflatten(-1, (self.heads, -1)) for kind in KINDS]
        return torch.stack(parts, -2).flatten(-3)

    def joined(self) -> nn.Module:
        """Return the fused map, with the terms of all three as terms of it."""
        kinds: list[Any] = [self.get_submodule(kind) for kind in KINDS]
        parts = [part.base if isinstance(part, LowRankLinear) else part for part in kinds]
        like: dict[str, Any] = {"device": parts[0].weight.device, "dtype": parts[0].weight.dtype}
        whole = nn.utils.skip_init(
            nn.Linear, parts[0].in_features, self.out_features, parts[0].bias is not None, **like
        )
        downs, ups = [], []
        for kind, part, rows in zip(kinds, parts, self.rows(), strict=True):
            for own, all_rows in zip(part.parameters(), whole.parameters(), strict=True):
                all_rows.data[rows.to(own.device)] = own.data
            if isinstance(kind, LowRankLinear):
                up = kind.up.new_zeros(self.out_features, kind.up.shape[1])
                up[rows.to(up.device)] = kind.up.detach()
                downs.append(kind.down.detach())
                ups.append(up)
        whole.requires_grad_(parts[0].weight.requires_grad)
        if not ups:
            return whole
        terms = LowRankLinear(whole, FixedCount(sum(map(len, downs)), r=1.0), seed=0, name=FUSED)
        terms.down.data, terms.up.data = torch.cat(downs), torch.cat(ups, 1)
        return deploy(terms, share_frozen=True)


def split_maps(model: nn.Module, heads: int) -> nn.Module:
    """Take the fused maps of ``model`` apart, in place."""
    for name in [name for name, _ in model.named_modules() if name.endswith(f".{FUSED}")]:
        replace(model, name, lambda fused: SplitMap(fused, heads))
    return model


def join_maps(model: nn.Module) -> nn.Module:
    """Undo :func:`split_maps`, in place."""
    for name in [name for name, part in model.named_modules() if isinstance(part, SplitMap)]:
        replace(model, name, SplitMap.joined)
    return model
