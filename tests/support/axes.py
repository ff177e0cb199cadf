"""Small ordinary models with one ordered axis, for learned sizes without a bank.

``forward`` is ordinary code with the axis in its place, and :func:`plain` the reference of each. Where code of the
library or of the suite computes components, it sums them one by one with the coefficients c_k.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.adapter import Adapter
from experiments.models.transformer import HeadBank, SliceBank
from ngn.axis import OrderedAxis
from ngn.components.base import Bank, OrderedSum
from ngn.components.low_rank import Bottleneck, LowRankLinear
from ngn.cuts import Cut, inputs, outputs
from ngn.methods.base import Capacity
from ngn.methods.fixed import FixedCount

K = 4
X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class GroupedHeads(nn.Module):
    """Causal attention with grouped queries in one map: component k is a key-value head with its two query heads."""

    def __init__(self, capacity: Capacity | None, K: int = K) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = K, nn.Linear(8, K * 12), nn.Linear(K * 6, 8)
        cuts = [*outputs(self.qkv, 6), *outputs(self.qkv, 3, K * 6), *outputs(self.qkv, 3, K * 9), *inputs(self.out, 6)]
        self.axis = OrderedAxis(capacity, cuts, counts=[(self, "heads")])

    def forward(self, x: Tensor) -> Tensor:
        parts = zip(self.qkv(x).split([self.heads * size for size in (6, 3, 3)], -1), (6, 3, 3), strict=True)
        q, k, v = (part.unflatten(-1, (self.heads, size)) for part, size in parts)
        q, k, v = q.unflatten(-1, (2, 3)).flatten(-3, -2), k.repeat_interleave(2, -2), v.repeat_interleave(2, -2)
        q, k, v = (part.transpose(-2, -3) for part in (q, k, v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-2, -3).flatten(-2)
        return self.out(self.axis(h))


class Slices(nn.Module):
    """A gated feed-forward layer (SwiGLU) in K slices of three units."""

    def __init__(self, capacity: Capacity | None, K: int = K) -> None:
        super().__init__()
        self.up, self.gate = (nn.Linear(8, 3 * K, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * K, 8, bias=False)
        self.axis = OrderedAxis(capacity, [*outputs(self.up, 3), *outputs(self.gate, 3), *inputs(self.down, 3)])

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.axis(self.up(x) * F.silu(self.gate(x))))


def awake(model: Bottleneck) -> None:
    """Fill the zero last map, so that outputs depend on every component."""
    nn.init.normal_(model.up, std=0.5)


class LowRank(LowRankLinear):
    """A frozen linear map with K learned low-rank terms."""

    def __init__(self, capacity: Capacity | None, K: int = K) -> None:
        super().__init__(nn.Linear(8, 8).requires_grad_(False), capacity or FixedCount(K, r=1.0), seed=0, name="q")
        awake(self)

    def plain(self, x: Tensor, c: Tensor) -> Tensor:
        terms = (c[n] * (x @ self.down[n])[..., None] * self.up[:, n] for n in range(len(c)))
        return x @ self.base.weight.T + self.base.bias + sum(terms)


class Behind(Adapter):
    """An adapter after a frozen map, two units per component."""

    def __init__(self, capacity: Capacity | None, K: int = K) -> None:
        super().__init__(
            nn.Linear(8, 8).requires_grad_(False), 8, capacity or FixedCount(K, r=1.0), seed=0, name="0", width=2
        )
        awake(self)

    def plain(self, x: Tensor, c: Tensor) -> Tensor:
        h = x @ self.base.weight.T + self.base.bias
        y = h
        for n in range(len(c)):
            a = h @ self.down[2 * n : 2 * n + 2].T
            y = y + c[n] * (0.5 * a * (1 + torch.erf(a / 2**0.5)) @ self.up[:, 2 * n : 2 * n + 2].T)
        return y


class States(nn.Module):
    """A selective state space with K state coordinates: of x_proj's outputs delta, B and C, B and C have the axis."""

    def __init__(self, capacity: Capacity | None, K: int = K) -> None:
        super().__init__()
        self.x_proj, self.dt_proj = nn.Linear(8, 2 + 2 * K, bias=False), nn.Linear(2, 8)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, K + 1)).repeat(8, 1))
        self.states = K
        cuts = [*outputs(self.x_proj, start=2), *outputs(self.x_proj, start=2 + K, fold=True), Cut(self, "A_log", 1)]
        self.axis = OrderedAxis(capacity, cuts, counts=[(self, "states")])

    def forward(self, x: Tensor) -> Tensor:
        delta, B, C = self.x_proj(x).split([2, self.states, self.states], -1)
        delta, C = F.softplus(self.dt_proj(delta)), self.axis(C)
        state, ys = x.new_zeros(x.shape[0], 8, self.states), []
        for t in range(x.shape[1]):
            d = delta[:, t, :, None]
            state = torch.exp(-d * torch.exp(self.A_log)) * state + d * B[:, t, None] * x[:, t, :, None]
            ys.append((state * C[:, t, None]).sum(-1))
        return torch.stack(ys, 1)


class ConvChannels(nn.Module):
    """Channels between two existing convolutions, with their normalisation and a depthwise convolution."""

    def __init__(self, capacity: Capacity | None, K: int = K) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(5, 2 * K, 3, padding=1), nn.BatchNorm1d(2 * K)
        self.each, self.last = nn.Conv1d(2 * K, 2 * K, 3, padding=1, groups=2 * K), nn.Conv1d(2 * K, 5, 1)
        with torch.no_grad():  # statistics that differ from their initial values
            self.norm.running_mean.copy_(torch.linspace(-1, 1, 2 * K))
            self.norm.running_var.copy_(torch.linspace(0.5, 2, 2 * K))
        cuts = [cut for module in (self.first, self.norm, self.each) for cut in outputs(module, 2)]
        self.axis = OrderedAxis(capacity, cuts + inputs(self.last, 2), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.axis(torch.relu(self.each(self.norm(self.first(x))))))


class Residuals(nn.Module):
    """K residual layers in sequence, with pre-normalisation; later layers have smaller weights."""

    def __init__(self, capacity: Capacity | None, K: int = K) -> None:
        super().__init__()
        layers = (nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh()) for _ in range(K))
        self.layers = nn.ModuleList(layers)
        self.axis = OrderedAxis(capacity, [Cut(self, "layers", 0)])

    def forward(self, x: Tensor) -> Tensor:
        c = self.axis.coefficients()
        for k, layer in enumerate(self.layers):
            x = x + (1.0 if c is None else c[k].to(x.dtype)) * layer(x)
        return x

    def plain(self, x: Tensor, c: Tensor) -> Tensor:
        for n, (norm, linear, _) in enumerate(self.layers):
            centred = x - x.mean(-1, keepdim=True)
            h = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + norm.eps) * norm.weight + norm.bias
            x = x + c[n] * torch.tanh(h @ linear.weight.T + linear.bias)
        return x


class Neurons(nn.Sequential):
    """Neurons between two existing linear maps, two per component."""

    def __init__(self, capacity: Capacity | None, K: int = K) -> None:
        up, down = nn.Linear(8, 2 * K), nn.Linear(2 * K, 8)
        super().__init__(up, nn.Tanh(), OrderedAxis(capacity, [*outputs(up, 2), *inputs(down, 2)]), down)


class Sum(nn.Module):
    """The sum of a bank of the suite."""

    def __init__(
        self, capacity: Capacity | None, K: int = K, *, bank: Callable[[int], Bank], naive: Callable[..., Tensor]
    ) -> None:
        super().__init__()
        self.sum, self.naive = OrderedSum(bank(K), capacity), naive
        nn.init.normal_(self.sum.bank.get_parameter(self.sum.bank.last[0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(x)

    def plain(self, x: Tensor, c: Tensor) -> Tensor:
        return self.naive(self.sum.bank, x, c)


def _heads(bank: HeadBank, x: Tensor, c: Tensor) -> Tensor:
    later, y = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1), torch.zeros_like(x)
    for n in range(len(c)):
        q, k, v = (x @ part.T for part in bank.qkv[n].split(3))
        y = y + c[n] * ((q @ k.mT / 3**0.5).masked_fill(later, -torch.inf).softmax(-1) @ v @ bank.O[n])
    return y


def _slices(bank: SliceBank, x: Tensor, c: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    for n in range(len(c)):
        y = y + c[n] * (F.gelu(x @ bank.up[n].T + bank.bias[n]) @ bank.down[n])
    return y


MODELS: dict[str, Callable[..., nn.Module]] = {
    "heads": GroupedHeads,
    "slices": Slices,
    "low-rank": LowRank,
    "adapter": Behind,
    "states": States,
    "channels": ConvChannels,
    "residuals": Residuals,
    "neurons": Neurons,
    "head-bank": partial(Sum, bank=lambda K: HeadBank(8, 3, K, 0, "heads"), naive=_heads),
    "slice-bank": partial(Sum, bank=lambda K: SliceBank(8, 3, K, 0, "slices"), naive=_slices),
}
LAST = {
    "heads": ("out.weight", 1, 6, 0), "slices": ("down.weight", 1, 3, 0),
    "states": ("x_proj.weight", 0, 1, 2 + K),
    "channels": ("last.weight", 1, 2, 0), "neurons": ("3.weight", 1, 2, 0),
}  # fmt: skip
"""Of ordinary models, the map that only multiplies each component's part: its dimension, their width, their start."""


def plain(name: str, model: nn.Module, x: Tensor, c: Tensor) -> Tensor:
    """The reference of a model of K components: without an axis, from sums or from a last map times c."""
    if name not in LAST:
        summed: Tensor = model.plain(x, c)
        return summed
    last, dim, width, start = LAST[name]
    bare, p = model_of(name, None), dict(model.named_parameters())
    factors = torch.cat([c.new_ones(start), c.repeat_interleave(width)])
    scaled = p[last] * factors.view([-1 if n == dim else 1 for n in range(p[last].dim())])
    kept = {own: p[own] for own, _ in bare.named_parameters()}
    computed: Tensor = torch.func.functional_call(bare, kept | {last: scaled}, (x,))
    return computed


def model_of(name: str, capacity: Capacity | None, size: int = K) -> nn.Module:
    """Draw one of the models from a fixed seed, in float64 and, because of BatchNorm, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return MODELS[name](capacity, size).double().eval()
