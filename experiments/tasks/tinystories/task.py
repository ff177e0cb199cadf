"""TinyStories: predict the next characters of short stories; the score is bits per character.

One model has ordered components; the other is a plain Transformer to make smaller: its heads and hidden units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ngn
from experiments.core.config import Config
from experiments.core.task import CapacityOf, DataInfo, ModuleTask, Seeds, Task
from experiments.core.training import Train
from experiments.data import DataError, data_root, synthetic, texts
from experiments.data.tinystories import START, Characters, split_stories
from experiments.models.state_space import MambaBlock, scan_package
from experiments.models.transformer import HeadBank, SliceBank
from experiments.tasks.base import TokenBatches
from experiments.tasks.tinystories import LayerComponent, TinyStories, UnitsComponent
from ngn.budget import evidence
from ngn.components.base import Bank, OrderedSum
from ngn.methods.base import Capacity
from ngn.streams import generator
from ngn.train.batches import Batches, HeldOutParts, Split


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


PARTS = ("train", "valid")
"""Words in the names of the files, in every layout."""
WHOLE = 2_000_000
"""Least number of training stories in the whole corpus."""
HELD_OUT = 20
"""``task.split=validation`` holds out every twentieth story of the training text."""
SAMPLE = 160
"""Characters of sampled text in each record; fewer in smoke runs."""


def _stories(settings: TinyStories, root: Path) -> tuple[list[str], list[str], DataInfo]:
    """Return the training stories, the validation stories, and the origin of the data."""
    data = texts.TINYSTORIES.load_data(root)
    train, valid = (list(split_stories(next(t for name, t in data.parts.items() if part in name))) for part in PARTS)
    if settings.corpus == "whole" and len(train) < WHOLE:
        raise DataError(
            f"task.corpus=whole: {root / 'tinystories'} has {len(train):,} stories, the whole {WHOLE:,} or more; "
            "move it away and type python scripts/fetch_data.py tinystories, or task.corpus=any"
        )
    return train, valid, data.info


class StoriesTask(Task[LayerComponent]):
    """Characters as tokens, a start token before every story, windows of ``context`` tokens."""

    timed_samples = 8
    prefix_score: str | None = "bits_per_character"

    def __init__(self, settings: TinyStories, config: Config, device: torch.device) -> None:
        self.settings, self.device, self.evaluations = settings, device, settings.evaluations
        self.scan = scan_package(device) if "states" in config.gate.group_kinds else None
        smoke, root = config.profile == "smoke", data_root(config.data_root)
        train, held, self.info = synthetic.stories() if smoke else _stories(settings, root)
        self.sampled = 20 if smoke else SAMPLE
        self.characters = Characters(train)
        self.apart = train[::HELD_OUT]
        if settings.split == "validation":
            held = self.apart
        if settings.split == "validation" or config.gate.given:
            train = [story for at, story in enumerate(train) if at % HELD_OUT]
        self.train, self.held = self.characters.mapped(train), self.characters.mapped(held)
        self.held = self.held[: settings.held]

    def model(self, gate: LayerComponent, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        assert isinstance(seeds, int)
        return LanguageModel(len(self.characters), self.settings.context, gate, seeds, capacity)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean cross-entropy in nats per token."""
        tokens, following = batch
        return F.cross_entropy(model(tokens).flatten(0, 1).float(), following.flatten())

    def evaluate(self, model: nn.Module) -> dict[str, Tensor]:
        return {"bits_per_character": self.bits(model, self.held)}

    def curve(self, model: nn.Module) -> Tensor:
        """Return the bits per character of the first ``curve_held`` characters of the held-out text."""
        return self.bits(model, self.held[: self.settings.curve_held])

    def bits(self, model: nn.Module, tokens: np.ndarray) -> Tensor:
        """Return the bits per character of a text, in float64.

        Windows do not overlap, and the context of a token begins at its window's start. The score is the sum of all
        nats (start tokens included), divided by ln 2 and by the number of characters.
        """
        nats, characters = torch.zeros((), dtype=torch.float64, device=self.device), 0
        for x, y in self._windows(tokens):
            nats = nats + F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten(), reduction="none").double().sum()
            characters += int((y != START).sum())
        return nats / (math.log(2) * characters)

    def _windows(self, tokens: np.ndarray, batch: int = 32) -> Any:
        """Yield (tokens, next tokens), [batch, context] each; the last pair is shorter."""
        context = self.settings.context
        full = (len(tokens) - 1) // context * context
        at = torch.from_numpy(tokens.astype(np.int64)).to(self.device)
        if full:
            yield from zip(
                at[:full].view(-1, context).split(batch), at[1 : full + 1].view(-1, context).split(batch), strict=True
            )
        if full + 1 < len(at):
            yield at[None, full:-1], at[None, full + 1 :]

    def batches(self, train: Train, seeds: Seeds) -> Batches:
        assert train.batch is not None
        assert isinstance(seeds, int)
        return TokenBatches(self.train, self.settings.context, train.batch, seeds, self.device)

    def samples(self, train: Train) -> int:
        """Return the number of windows in an epoch."""
        return (len(self.train) - self.settings.context) // self.settings.context

    def timed_batch(self) -> tuple[Any, int]:
        x, _ = next(islice(self._windows(self.held, self.timed_samples), 1))
        return x, len(x)

    def sample(self, model: nn.Module) -> str:
        """Return a text sampled from the start of a story, by the same random draws for every model."""
        start = torch.tensor([START], device=self.device)
        tokens = continued(model, start, self.sampled, self.settings.context, generator(0, "sample"))
        return self.characters.decode(tokens[1:].cpu().numpy())


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
        parts = evidence.PARTS * max(1, batch // 2)
        x, y = next(self._windows(self.characters.mapped(self.apart), parts))
        self.held_out = HeldOutParts(Split(x, y), evidence.PARTS)

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
