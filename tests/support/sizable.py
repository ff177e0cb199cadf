"""Small modules with learnable sizes."""

from __future__ import annotations

from torch import nn


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(8, 24), nn.Linear(24, 8), nn.Linear(8, 24)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Fused(nn.Module):
    """Attention of vision transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj, self.head_dim = nn.Linear(8, 24), nn.Linear(8, 8), 2

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, 2)).movedim(2, 0).transpose(2, 3)
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Adding(nn.Linear):
    """A residual layer."""

    def forward(self, x):
        return x + super().forward(x).tanh()


class Plus(nn.Module):
    """A residual layer around a module."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x):
        return x + self.mlp(x)


class Layers(nn.Module):
    """Layers, one after the other."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def chain(*parts: int | nn.Module) -> nn.Sequential:
    """Chain linear maps of these sizes, with an activation or a given module between two."""
    sizes, layers = [part for part in parts if isinstance(part, int)], []
    for number, part in enumerate(parts[1:], 1):
        if isinstance(part, int):
            before = next(size for size in reversed(parts[:number]) if isinstance(size, int))
            layers += [nn.Linear(before, part), nn.Tanh()]
        else:
            layers.append(part)
    return nn.Sequential(*layers[:-1]) if len(sizes) > 2 else nn.Sequential(*layers)


def convs(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 1), *middle)
