"""Small networks of many kinds, whose sizes are known by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """A block of ResNet: two convolutions, and a projection where the channels change."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.project = nn.Conv2d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x):
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + self.project(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.layers = nn.Sequential(Residual(8, 8), Residual(8, 12), Residual(12, 12))
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.layers(F.relu(self.bn(self.stem(x)))).mean((2, 3)))


class DenseNet(nn.Module):
    """Every layer reads the concatenation of all that came before."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8 + 4 * n) for n in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(8 + 4 * n, 4, 3, padding=1) for n in range(3))
        self.last, self.head = nn.BatchNorm2d(20), nn.Linear(20, 5)

    def forward(self, x):
        parts = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            parts.append(conv(F.relu(norm(torch.cat(parts, 1)))))
        return self.head(F.relu(self.last(torch.cat(parts, 1))).mean((2, 3)))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class InvertedResidual(nn.Module):
    def __init__(self, channels: int, wide: int) -> None:
        super().__init__()
        self.up, self.bn1 = nn.Conv2d(channels, wide, 1), nn.BatchNorm2d(wide)
        self.depthwise, self.bn2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.BatchNorm2d(wide)
        self.se = SqueezeExcite(wide, 4)
        self.down, self.bn3 = nn.Conv2d(wide, channels, 1), nn.BatchNorm2d(channels)

    def forward(self, x):
        h = F.hardswish(self.bn1(self.up(x)))
        return x + self.bn3(self.down(self.se(F.hardswish(self.bn2(self.depthwise(h))))))


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(InvertedResidual(8, 16), InvertedResidual(8, 24))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class ShuffleUnit(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            nn.Conv2d(half, half, 3, padding=1, groups=half),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1),
            nn.BatchNorm2d(half),
        )

    def forward(self, x):
        kept, changed = x.chunk(2, 1)
        x = torch.cat([kept, self.branch(changed)], 1)
        batch, channels, *places = x.shape
        return x.view(batch, 2, channels // 2, *places).transpose(1, 2).reshape(batch, channels, *places)


class ShuffleNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.units, self.head = nn.Conv2d(3, 16, 3), ShuffleUnit(16), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.units(self.stem(x)).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.middle, self.up = nn.Conv2d(16, 16, 3, padding=1), nn.ConvTranspose2d(16, 12, 2, stride=2)
        self.merge, self.head = nn.Conv2d(20, 8, 3, padding=1), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        first = F.relu(self.down1(x))
        deep = F.relu(self.middle(F.relu(self.down2(F.max_pool2d(first, 2)))))
        return self.head(F.relu(self.merge(torch.cat([first, self.up(deep)], 1))))


class Inception(nn.Module):
    """Two blocks of GoogLeNet: branches of unequal length and width, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.Conv2d(into, 6, 1),
                    nn.Sequential(nn.Conv2d(into, 5, 1), nn.ReLU(), nn.Conv2d(5, 20, 3, padding=1)),
                    nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(into, 4, 1)),
                ]
            )
            for into in (3, 30)
        )
        self.norm, self.head = nn.BatchNorm2d(30), nn.Linear(30, 5)

    def forward(self, x):
        for branches in self.blocks:
            x = F.relu(torch.cat([branch(x) for branch in branches], 1))
        return self.head(self.norm(x).mean((2, 3)))


class WindowAttention(nn.Module):
    """Attention of Swin within shifted windows of 2 x 2, with a bias per head and relative position."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.randn(9, heads))
        self.register_buffer("index", torch.randint(0, 9, (16,)))

    def forward(self, x):  # [B, H, W, C]
        b, h, w, c = x.shape
        x = x.roll((-1, -1), (1, 2)).view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        q, k, v = self.qkv(x).reshape(len(x), 4, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index].view(4, 4, -1).permute(2, 0, 1)
        attended = ((self.scale * q) @ k.transpose(-2, -1) + bias).softmax(-1)
        x = self.proj((attended @ v).transpose(1, 2).flatten(2))
        return x.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c).roll((1, 1), (1, 2))


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm1, self.norm2 = nn.Conv2d(3, 12, 2, stride=2), nn.LayerNorm(12), nn.LayerNorm(12)
        self.attn, self.mlp = WindowAttention(12, 3), nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12))
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        x = x + self.attn(self.norm1(x))
        return self.head((x + self.mlp(self.norm2(x))).mean((1, 2)))


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.wide, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 24, 3), nn.Conv2d(6, 3, 3)

    def forward(self, x):
        return self.last(F.pixel_shuffle(self.wide(self.conv(x)).relu(), 2))


class Experts(nn.Module):
    """A mixture of experts in a loop, with stacked weights that no layer owns."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.up = nn.Linear(8, 3), nn.Parameter(torch.randn(3, 12, 8) / 3)
        self.down = nn.Parameter(torch.randn(3, 8, 12) / 3)

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        y = torch.zeros_like(x)
        for n in range(3):
            y = y + weights[..., n : n + 1] * F.linear(F.silu(F.linear(x, self.up[n])), self.down[n])
        return y


SIZES = """\
ResNet stem 8 channels stem bn layers.0.conv2 layers.0.bn2 > layers.0.conv1 layers.1.conv1 layers.1.project
ResNet layers.0.conv1 8 channels layers.0.conv1 layers.0.bn1 > layers.0.conv2
ResNet layers.1.conv1 12 channels layers.1.conv1 layers.1.bn1 > layers.1.conv2
ResNet layers 12 channels layers.1.conv2 layers.1.bn2 layers.1.project layers.2.conv2 layers.2.bn2 > layers.2.conv1 head
ResNet layers.2.conv1 12 channels layers.2.conv1 layers.2.bn1 > layers.2.conv2
DenseNet stem 8 channels stem norms.0 norms.1 norms.2 last > convs.0 convs.1 convs.2 head
DenseNet convs.0 4 channels norms.1 norms.2 convs.0 last > convs.1 convs.2 head
DenseNet convs.1 4 channels norms.2 convs.1 last > convs.2 head
DenseNet convs.2 4 channels convs.2 last > head
MobileNet stem 8 channels stem blocks.0.down blocks.0.bn3 blocks.1.down blocks.1.bn3 > blocks.0.up blocks.1.up head
MobileNet blocks.0 16 channels blocks.0.up blocks.0.bn1 blocks.0.depthwise blocks.0.bn2 blocks.0.se.expand
    > blocks.0.se.reduce blocks.0.down
MobileNet blocks.0.se.reduce 4 channels blocks.0.se.reduce > blocks.0.se.expand
MobileNet blocks.1 24 channels blocks.1.up blocks.1.bn1 blocks.1.depthwise blocks.1.bn2 blocks.1.se.expand
    > blocks.1.se.reduce blocks.1.down
MobileNet blocks.1.se.reduce 4 channels blocks.1.se.reduce > blocks.1.se.expand
ShuffleNet stem 8 channels stem units.branch.5 units.branch.6 > units.branch.0 head
ShuffleNet units.branch 8 channels units.branch.0 units.branch.1 units.branch.3 units.branch.4 > units.branch.5
UNet down1 8 channels down1 > down2 merge
UNet down2 16 channels down2 > middle
UNet middle 16 channels middle > up
UNet up 12 channels up > merge
UNet merge 8 channels merge > head
Swin attn 3 heads attn attn.qkv > attn.proj
Swin mlp.0 20 units mlp.0 > mlp.2
SuperResolution conv 8 channels conv > wide
SuperResolution wide 6 channels wide > last
Experts up 12 units > model"""
"""Each size: class of its network, name, length, unit, and the modules with it, behind ">" those that read it.

A unit of ``SuperResolution.wide`` is four channels.
"""
NETWORKS: dict[type[nn.Module], dict[str, tuple[int, str, str]]] = {}
for _line in SIZES.replace("\n    ", " ").split("\n"):
    _kind, _name, _length, _unit, _modules = _line.split(" ", 4)
    NETWORKS.setdefault(globals()[_kind], {})[_name] = int(_length), _unit, _modules


def example_of(kind: type[nn.Module]) -> torch.Tensor:
    """An input of one of :data:`NETWORKS`."""
    shape = (4, 8) if kind is Experts else (2, 3, 8, 8)
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def network(kind: type[nn.Module]) -> nn.Module:
    """One of :data:`NETWORKS` whose norms do not map zero to zero."""
    torch.manual_seed(0)
    model = kind().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.normal_(module.bias)
    return model
