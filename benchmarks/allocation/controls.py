"""Tasks whose right sizes are known to be uneven: a small model, its learnable sizes and samples for each."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

import ngn
from ngn.sizes.base import Size

Samples = tuple[Tensor, Tensor]
FREQUENCIES = (0.5, 1.0, 2.0, 4.0)
RANKS, FEATURES = (1, 2, 4, 20), 32
TOKENS, STREAM, HEAD, OUTPUTS = 12, 16, 4, 10
"""Positions of a sequence, entries of the residual stream and of a head, and positions that the target asks for."""


@dataclass(frozen=True)
class Control:
    """One task.

    Attributes:
        title: what the table calls it.
        model: makes the model of these counts.
        sizes: makes the learnable sizes, by the names of modules, in the order of the counts.
        most: counts of the largest model.
        share: the budget, a share of the parameters of the largest model.
        by_hand: counts within the budget that suit the task.
        samples: draws inputs and targets; noise: the standard deviation of the targets' noise.
        rows: training samples.
        batch: samples of a step; None for all.
        steps, lr: steps and rate of every training.
    """

    title: str
    model: Callable[[Sequence[int]], nn.Module]
    sizes: Callable[[], dict[str, Size]]
    most: tuple[int, ...]
    share: str
    by_hand: tuple[int, ...]
    samples: Callable[[int, Generator], Samples]
    noise: float
    rows: int
    batch: int | None
    steps: int
    lr: float


class Sum(nn.Module):
    """A sum of parts, each on its own columns of the input."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        columns = x.chunk(len(self.parts), -1)
        return torch.stack([part(own) for part, own in zip(self.parts, columns, strict=True)]).sum(0)


def spread(linear: nn.Linear, weight: float, bias: float) -> nn.Linear:
    """Draw the weights anew, so that the units of a first layer bend in different places."""
    nn.init.normal_(linear.weight, 0.0, weight)
    nn.init.uniform_(linear.bias, -bias, bias)
    return linear


def branches(widths: Sequence[int]) -> nn.Module:
    return Sum(
        [nn.Sequential(spread(nn.Linear(1, n), 4.0, 4.0), nn.Tanh(), nn.Linear(n, 1, bias=False)) for n in widths]
    )


def waves(count: int, source: Generator) -> Samples:
    x = 2.0 * torch.rand(count, len(FREQUENCIES), generator=source) - 1.0
    each = [torch.sin(f * math.pi * x[:, i : i + 1] + i) for i, f in enumerate(FREQUENCIES)]
    return x, torch.cat(each, 1).sum(1, keepdim=True)


def layers(widths: Sequence[int]) -> nn.Module:
    """Three hidden layers."""
    a, b, c = widths
    first = nn.Sequential(spread(nn.Linear(2, a), 4.0, 3.0), nn.Tanh(), nn.Linear(a, b))
    second = nn.Sequential(first, nn.Tanh(), nn.Linear(b, c))
    return nn.Sequential(nn.Sequential(second, nn.Tanh(), nn.Linear(c, 1)))


def ripples(count: int, source: Generator) -> Samples:
    x = 2.0 * torch.rand(count, 2, generator=source) - 1.0
    a, b = x[:, :1], x[:, 1:]
    return x, torch.sin(4 * math.pi * a) * torch.cos(3 * math.pi * b) + torch.sin(5 * a * b)


class Attention(nn.Module):
    """The last position asks all positions."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(STREAM, heads * HEAD) for _ in range(3))
        self.out = nn.Linear(heads * HEAD, STREAM)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(h).unflatten(-1, (-1, HEAD)).transpose(1, 2) for m, h in
                   ((self.q, x[:, -1:]), (self.k, x), (self.v, x)))  # fmt: skip
        mixed: Tensor = ((q @ k.transpose(2, 3)) / math.sqrt(HEAD)).softmax(-1) @ v
        answer: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return answer


class Block(nn.Module):
    """Attention, then a feed-forward layer."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        heads, units = sizes
        self.embedding, self.positions = nn.Linear(4, STREAM), nn.Parameter(0.5 * torch.randn(TOKENS, STREAM))
        self.before, self.attention = nn.LayerNorm(STREAM), Attention(heads)
        self.between = nn.LayerNorm(STREAM)
        self.mlp = nn.Sequential(nn.Linear(STREAM, units), nn.GELU(), nn.Linear(units, STREAM))
        self.head = nn.Linear(STREAM, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x) + self.positions
        last = h[:, -1] + self.attention(self.before(h))[:, 0]
        scores: Tensor = self.head(last + self.mlp(self.between(last)))
        return scores


def recall(count: int, source: Generator) -> Samples:
    x = torch.randn(count, TOKENS, 4, generator=source)
    return x, torch.stack([x[:, p, p % 4] for p in range(OUTPUTS)], 1)


def maps(ranks: Sequence[int]) -> nn.Module:
    wide = FEATURES
    return Sum([nn.Sequential(nn.Linear(wide, n, bias=False), nn.Linear(n, wide, bias=False)) for n in ranks])


@functools.cache
def truth() -> tuple[Tensor, ...]:
    """Four maps [FEATURES, FEATURES] of the ranks, with singular values of one."""
    source = torch.Generator().manual_seed(78)

    def basis(rank: int) -> Tensor:
        return torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=source))[0][:, :rank]

    return tuple(basis(rank) @ basis(rank).T for rank in RANKS)


def mapped(count: int, source: Generator) -> Samples:
    x = torch.randn(count, len(RANKS) * FEATURES, generator=source)
    return x, torch.stack([own @ w for own, w in zip(x.chunk(len(RANKS), -1), truth(), strict=True)]).sum(0)


def parts() -> dict[str, Size]:
    return {f"parts.{i}": ngn.Width() for i in range(4)}


CONTROLS = {
    "branches": Control(
        "Four branches, sines of frequencies 1 : 2 : 4 : 8", branches, parts, (48,) * 4, "12.5%", (2, 3, 6, 13),
        waves, 0.1, rows=512, batch=None, steps=1500, lr=1e-2,
    ),
    "layers": Control(
        "Three layers behind one another", layers,
        lambda: dict.fromkeys(("0.0.0.0", "0.0.0.2", "0.0.2"), ngn.Width()),
        (48,) * 3, "25%", (48, 16, 10), ripples, 0.05, rows=1024, batch=None, steps=1500, lr=5e-3,
    ),
    "heads": Control(
        "Heads beside units: ten positions to recall", Block,
        lambda: {"attention": ngn.Heads(), "mlp": ngn.Width()},
        (16, 64), "45%", (9, 5), recall, 0.05, rows=4096, batch=128, steps=500, lr=5e-3,
    ),
    "maps": Control(
        "Four linear maps of ranks 1, 2, 4, 20", maps, parts, (32,) * 4, "25%", (1, 2, 4, 25),
        mapped, 0.3, rows=4096, batch=128, steps=800, lr=5e-3,
    ),
}  # fmt: skip
