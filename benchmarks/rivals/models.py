"""The two dense models to shrink: ResNet-20 and a small Transformer, with a width that scales all sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEADS = 4


class Block(nn.Module):
    """Two 3 x 3 convolutions with a shortcut, which is a map if the shapes differ."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(h + self.shortcut(x))


class ResNet20(nn.Module):
    """He et al., "Deep residual learning for image recognition", 2016, section 4.2, with maps as shortcuts.

    [N, 3, 32, 32] to [N, 10]; ``width`` scales the 16, 32 and 64 channels.
    """

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        sizes = [max(1, int(width * c)) for c in (16, 32, 64)]
        self.conv, self.bn, self.relu = nn.Conv2d(3, sizes[0], 3, 1, 1, bias=False), nn.BatchNorm2d(sizes[0]), nn.ReLU()
        before = [sizes[0]] * 4 + [sizes[1]] * 3 + [sizes[2]] * 2
        after = [size for size in sizes for _ in range(3)]
        self.blocks = nn.Sequential(
            *(Block(c, out, 2 if n in (3, 6) else 1) for n, (c, out) in enumerate(zip(before, after, strict=True)))
        )
        self.fc = nn.Linear(sizes[2], 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.blocks(self.relu(self.bn(self.conv(x)))).mean((2, 3)))


class CausalAttention(nn.Module):
    """Causal attention; the shapes of the maps give the number of heads."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.head_dim = d // HEADS
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        maps = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (part(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in maps)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


class PreNormLayer(nn.Module):
    """A pre-norm layer: attention, then a feed-forward part of four times the width."""

    def __init__(self, d: int, units: int) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(d), CausalAttention(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, units), nn.GELU(), nn.Linear(units, d))

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attn(self.norm1(h))
        return h + self.mlp(self.norm2(h))


class Transformer(nn.Module):
    """Predict next tokens, [N, context] to [N, context, vocabulary]; ``width`` scales the 64 entries and 256 units."""

    def __init__(self, vocabulary: int, context: int, width: float = 1.0) -> None:
        super().__init__()
        d, units = HEADS * max(1, int(width * 16)), max(1, int(width * 256))
        self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(context, d)
        self.layers = nn.Sequential(*(PreNormLayer(d, units) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.layers(h)))
