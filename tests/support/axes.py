"""Small ordinary models of which one axis is ordered: what a size is learned along when there is no bank."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.axis import Cut, OrderedAxis, inputs, outputs
from ngn.methods.base import Capacity

K = 4
X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Heads(nn.Module):
    """Causal attention with grouped queries: each of K key-value heads serves two query heads; one fused projection."""

    def __init__(self, capacity: Capacity, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.width, self.fused = K, 3, fused
        q, kv = 2 * self.width, self.width
        if fused:
            self.qkv = nn.Linear(8, K * (q + 2 * kv))
            spans = [*outputs(self.qkv, q), *outputs(self.qkv, kv, K * q), *outputs(self.qkv, kv, K * (q + kv))]
        else:
            self.q, self.k, self.v = nn.Linear(8, K * q), nn.Linear(8, K * kv), nn.Linear(8, K * kv)
            spans = [*outputs(self.q, q), *outputs(self.k, kv), *outputs(self.v, kv)]
        self.out = nn.Linear(K * q, 8)
        self.axis = OrderedAxis(capacity, [*spans, *inputs(self.out, q)], counts=[(self, "heads")])

    def forward(self, x: Tensor) -> Tensor:
        H, w = self.heads, self.width
        q, k, v = self.qkv(x).split([2 * H * w, H * w, H * w], -1) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = (part.unflatten(-1, (-1, w)).transpose(-2, -3) for part in (q, k, v))
        k, v = (part.repeat_interleave(2, -3) for part in (k, v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-2, -3).flatten(-2)
        return self.out(self.axis(h))


class Slices(nn.Module):
    """A feed-forward layer in K slices of three units, gated or not, with biases."""

    def __init__(self, capacity: Capacity, gated: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 3 * K), nn.Linear(3 * K, 8)
        self.gate = nn.Linear(8, 3 * K) if gated else None
        maps = [self.up] if self.gate is None else [self.up, self.gate]
        self.axis = OrderedAxis(capacity, [cut for m in maps for cut in outputs(m, 3)] + inputs(self.down, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.up(x)) if self.gate is None else self.up(x) * F.silu(self.gate(x))
        return self.down(self.axis(h))


class LowRank(nn.Module):
    """A frozen linear map and K learned terms beside it."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.A, self.B = nn.Linear(8, K, bias=False), nn.Linear(K, 8, bias=False)
        self.axis = OrderedAxis(capacity, [*outputs(self.A), *inputs(self.B)])

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.B(self.axis(self.A(x)))


class Adapter(nn.Module):
    """A residual bottleneck behind a frozen map."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2 * K), nn.Linear(2 * K, 8)
        self.axis = OrderedAxis(capacity, [*outputs(self.down, 2), *inputs(self.up, 2)])

    def forward(self, x: Tensor) -> Tensor:
        h = self.frozen(x)
        return h + self.up(self.axis(torch.relu(self.down(h))))


class States(nn.Module):
    """A selective state space with K state coordinates: x_proj gives delta, B and C, of which B and C have the axis."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self.x_proj, self.dt_proj = nn.Linear(8, 2 + 2 * K, bias=False), nn.Linear(2, 8)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, K + 1)).repeat(8, 1))
        self.states = K
        self.axis = OrderedAxis(
            capacity,
            [
                Cut(self.x_proj, "weight", 0, start=2),
                Cut(self.x_proj, "weight", 0, start=2 + K, fold=True),
                Cut(self, "A_log", 1),
            ],
            counts=[(self, "states")],
        )

    def forward(self, x: Tensor) -> Tensor:
        delta, B, C = self.x_proj(x).split([2, self.states, self.states], -1)
        delta, C = F.softplus(self.dt_proj(delta)), self.axis(C)
        state, ys = x.new_zeros(len(x), 8, self.states), []
        for t in range(x.shape[1]):
            d = delta[:, t, :, None]
            state = torch.exp(-d * torch.exp(self.A_log)) * state + d * B[:, t, None] * x[:, t, :, None]
            ys.append((state * C[:, t, None]).sum(-1))
        return torch.stack(ys, 1)


class Channels(nn.Module):
    """Channels between two convolutions that exist, with their normalisation and a depthwise convolution."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(5, 2 * K, 3, padding=1), nn.BatchNorm1d(2 * K)
        self.each, self.last = nn.Conv1d(2 * K, 2 * K, 3, padding=1, groups=2 * K), nn.Conv1d(2 * K, 5, 1)
        cuts = [cut for module in (self.first, self.norm, self.each) for cut in outputs(module, 2)]
        self.axis = OrderedAxis(capacity, cuts + inputs(self.last, 2), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.axis(torch.relu(self.each(self.norm(self.first(x))))))


class Residuals(nn.Module):
    """K residual layers in a row, of which later ones count less."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(K))
        self.axis = OrderedAxis(capacity, [Cut(self, "layers", 0)])

    def forward(self, x: Tensor) -> Tensor:
        c = self.axis.coefficients()
        for k, layer in enumerate(self.layers):
            x = x + (1.0 if c is None else c[k].to(x.dtype)) * layer(x)
        return x


def neurons(capacity: Capacity) -> nn.Module:
    """Neurons between two linear maps that exist."""
    up, down = nn.Linear(8, 2 * K), nn.Linear(2 * K, 8)
    return nn.Sequential(up, nn.Tanh(), OrderedAxis(capacity, [*outputs(up, 2), *inputs(down, 2)]), down)


MODELS: dict[str, Callable[[Capacity], nn.Module]] = {
    "heads": Heads,
    "heads-fused": lambda capacity: Heads(capacity, fused=True),
    "slices": lambda capacity: Slices(capacity, gated=False),
    "slices-gated": lambda capacity: Slices(capacity, gated=True),
    "low-rank": LowRank,
    "adapter": Adapter,
    "states": States,
    "channels": Channels,
    "residuals": Residuals,
    "neurons": neurons,
}


def model_of(name: str, capacity: Capacity) -> nn.Module:
    """One of the models, drawn from a fixed seed, in float64; in eval mode, for what BatchNorm does."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return MODELS[name](capacity).double().eval()
