"""A small language model: token and position embeddings, pre-norm layers, and an output tied to the embedding."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.state_space import MambaBlock
from experiments.models.transformer import HeadBank, SliceBank
from experiments.tasks.tinystories import LayerComponent
from ngn.components.base import Bank, OrderedSum
from ngn.methods.base import Capacity
from ngn.streams import generator


def _embedding(count: int, width: int, seed: int, name: str) -> nn.Parameter:
    """Initialise from N(0, 0.02^2), as GPT-2 does."""
    return nn.Parameter(0.02 * torch.randn(count, width, generator=generator(seed, "init", name)))


class LanguageModel(nn.Module):
    """A model of next-token logits. Every part of a layer computes h + part(norm(h)).

    A Transformer layer is attention, then a feed-forward part. A Mamba layer is a single block, and the model has no
    position embedding. The output shares the weights of the token embedding.
    """

    def __init__(
        self, vocabulary: int, context: int, gate: LayerComponent, seed: int, capacity: Callable[[int], Capacity]
    ) -> None:
        super().__init__()
        self.context, d = context, gate.width
        self.tokens = _embedding(vocabulary, d, seed, "tokens")
        mamba = "states" in gate.group_kinds
        self.positions = None if mamba else _embedding(context, d, seed, "positions")
        group = 0
        parts: list[nn.Module] = []
        for layer in range(gate.layers):
            for kind in ("states",) if mamba else ("heads", "slices"):
                name, size = f"{kind}{layer}", None
                if kind in gate.group_kinds:
                    size, group = capacity(group), group + 1
                if size is not None and kind == "states":
                    parts.append(MambaBlock(d, size, seed, name))
                    continue
                bank: Bank = (
                    HeadBank(d, d // gate.heads, gate.heads if size is None else size.K, seed, name)
                    if kind == "heads"
                    else SliceBank(d, 4 * d // gate.slices, gate.slices if size is None else size.K, seed, name)
                )
                parts.append(OrderedSum(bank, size))
        self.parts = nn.ModuleList(parts)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in parts)
        self.norm = nn.LayerNorm(d)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits [B, L, vocabulary] of tokens [B, L]; L is at most the context."""
        h = F.embedding(tokens, self.tokens)
        if self.positions is not None:
            h = h + self.positions[: tokens.shape[1]]
        for norm, part in zip(self.norms, self.parts, strict=True):
            h = h + part(norm(h))
        return F.linear(self.norm(h), self.tokens)


@torch.no_grad()
def continued(model: nn.Module, start: Tensor, length: int, context: int, source: torch.Generator) -> Tensor:
    """Append ``length`` sampled tokens to ``start`` [L]; the model sees the last ``context`` tokens each time."""
    tokens = start
    for _ in range(length):
        chances = model(tokens[None, -context:])[0, -1].float().softmax(-1).cpu()
        tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=source).to(tokens)])
    return tokens
