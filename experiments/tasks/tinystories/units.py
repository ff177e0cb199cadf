"""A small Transformer on characters to make smaller: the heads and the hidden units of its layers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ngn
from experiments.core.config import Config
from experiments.core.task import ModuleTask
from experiments.tasks.tinystories import TinyStories, UnitsComponent
from experiments.tasks.tinystories.task import StoriesTask
from ngn.budget.evidence import PARTS
from ngn.train.batches import HeldOutParts, Split


class CausalAttention(nn.Module):
    """Causal attention; the shapes of the maps give the number of heads."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.head_dim = d // heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        maps = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (part(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in maps)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


class PreNormLayer(nn.Module):
    """A pre-norm layer: attention, then a feed-forward part."""

    def __init__(self, d: int, heads: int, units: int) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(d), CausalAttention(d, heads), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, units), nn.GELU(), nn.Linear(units, d))

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attn(self.norm1(h))
        return h + self.mlp(self.norm2(h))


class Transformer(nn.Module):
    """Predict next tokens, [N, context] to [N, context, vocabulary].

    Args:
        features: entries of the residual stream; a layer has four times as many hidden units.
        width: factor on the features of a head and on the units.
    """

    def __init__(
        self, vocabulary: int, context: int, features: int = 64, heads: int = 4, layers: int = 2, width: float = 1.0
    ) -> None:
        super().__init__()
        d, units = heads * max(1, int(width * (features // heads))), max(1, int(width * 4 * features))
        self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(context, d)
        self.layers = nn.Sequential(*(PreNormLayer(d, heads, units) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.layers(h)))


class UnitsTask(ModuleTask[UnitsComponent], StoriesTask):  # type: ignore[misc]
    """Characters as tokens. Every twentieth training story is held out, whatever the split: NGN judges sizes on it."""

    prefix_score = None
    uncut = ("head",)

    def __init__(self, settings: TinyStories, config: Config, device: torch.device) -> None:
        assert isinstance(config.gate, UnitsComponent)
        super().__init__(settings, config, device)
        self.gate = config.gate
        batch = config.train.batch or 1
        parts = PARTS * max(1, batch // 2)
        x, y = next(self._windows(self.characters.mapped(self.apart), parts))
        self.held_out = HeldOutParts(Split(x, y), PARTS)

    def module(self, seed: int, width: float = 1.0) -> nn.Module:
        gate, context = self.gate, self.settings.context
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return Transformer(len(self.characters), context, gate.width, gate.heads, gate.layers, width)

    def sizes(self, module: nn.Module, K: int | None, order: Any = None) -> dict[str, ngn.Width | ngn.Heads]:
        return {"layers.*.mlp": ngn.Width(K, order), "layers.*.attn": ngn.Heads(order)}

    def counts(self, module: nn.Module) -> list[int]:
        layers: Any = module.layers
        each = [(layer.mlp[0].out_features, layer.attn.q_proj.out_features // layer.attn.head_dim) for layer in layers]
        return [n for pair in each for n in pair]
