"""Time language models from scratch: training against a plain loop, truncated models, and the selective scan.

    python benchmarks/bench_tinystories.py [--quick]

One thread; 4,096 characters per step, so tokens per second are 4,096,000 over the milliseconds. The plain loop follows
nanoGPT: a Transformer of the same size without gates. The suite's boundaries are fixed so that all components are
computed, as at the start of a training. The scan is a whole Mamba block, forward and backward. If transformers is
installed, its slow path is the first variant.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_models import Variants, show

from experiments.language.windows import TokenBatches
from experiments.models import state_space
from experiments.tasks.tinystories import HeadsSlicesComponent
from experiments.tasks.tinystories.model import LanguageModel
from ngn.learner import CapacityLearner
from ngn.methods.base import Capacity
from ngn.methods.fixed import FixedCount
from ngn.methods.ngn import CountGate
from ngn.train.fit import fit
from ngn.train.plan import TrainPlan

VOCABULARY, CONTEXT, BATCH, D = 69, 128, 32, 128
STEPS = 5
"""Training steps per call; many, so that the setup does not count."""
SMALL = {"heads": 2, "slices": 4}


class PlainLayer(nn.Module):
    """A pre-norm layer with eight heads and a feed-forward part of four times the width."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.qkv(self.norm1(h)).split(D, -1))
        h = h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return h + self.down(F.gelu(self.up(self.norm2(h))))


class PlainModel(nn.Module):
    """The plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, D), nn.Embedding(CONTEXT, D)
        self.layers, self.norm = nn.Sequential(PlainLayer(), PlainLayer()), nn.LayerNorm(D)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.layers(h)), self.tokens.weight)


def text() -> TokenBatches:
    """Random characters."""
    tokens = torch.randint(VOCABULARY, (200_000,), generator=torch.Generator().manual_seed(0))
    return TokenBatches(tokens.numpy(), CONTEXT, BATCH, seed=0)


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Nats per character."""
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def plain_loop(steps: int) -> None:
    """Training as in nanoGPT."""
    model, batches = PlainModel(), text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(STEPS * steps):
        optimizer.zero_grad(set_to_none=True)
        loss(model, batches.at(step)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def learner(make: Callable[[str, int], Capacity]) -> CapacityLearner:
    """Build the suite's model; ``make(kind, count)`` returns the capacity for a kind of components."""
    gate = HeadsSlicesComponent.model_validate({"component": "heads_slices", "K": 16})
    sizes = {"heads": gate.heads, "slices": gate.slices}

    def capacity(group: int) -> Capacity:
        kind = gate.group_kinds[group % 2]
        return make(kind, sizes[kind])

    return CapacityLearner(LanguageModel(VOCABULARY, CONTEXT, gate, 0, capacity))


def trained(make: Callable[[str, int], Capacity]) -> Callable[[int], None]:
    """Return a function that trains with the suite's trainer."""

    def run(steps: int) -> None:
        plan = TrainPlan(steps=STEPS * steps, lr_boundary=1e-12, clip=1.0, optimizer="adamw")
        fit(learner(make), text(), None, loss, plan, progress="never")

    return run


def forward(model: nn.Module) -> Callable[[int], None]:
    """Forward passes."""
    x, _ = text().at(0)

    def run(steps: int) -> None:
        with torch.no_grad():
            for _ in range(STEPS * steps):
                model(x)

    return run


def unbound(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Compute the scan as a loop over time under autograd."""
    a, b = torch.exp(delta[..., None, :] * A), (delta * u)[..., None, :] * B[..., None]
    h, states = torch.zeros_like(a[:, 0]), []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        h = a_t * h + b_t
        states.append(h)
    return (torch.stack(states, 1) * C[..., None]).sum(2)


def block(model: nn.Module, scan: Callable[..., Tensor] = state_space.selective_scan) -> Callable[[int], None]:
    """Return a function that runs forward and backward passes of one block."""
    x = torch.randn(16, CONTEXT, D, generator=torch.Generator().manual_seed(0))

    def run(steps: int) -> None:
        with mock.patch.object(state_space, "selective_scan", scan):
            for _ in range(steps):
                model(x).sum().backward()

    return run


def scans() -> Variants:
    """Return variants of a Mamba block with 16 state coordinates, and with two."""
    variants: Variants = {}
    if importlib.util.find_spec("transformers") is not None:
        from transformers import MambaConfig
        from transformers.models.mamba.modeling_mamba import MambaMixer

        mixer = MambaMixer(MambaConfig(hidden_size=D, state_size=16, num_hidden_layers=1), layer_idx=0)
        variants["transformers, slow path"] = (block(mixer), 1)
    ours = state_space.MambaBlock(D, FixedCount(16, r=1.0), 0)
    variants["loop over unbind, autograd"] = (block(ours, unbound), 1)
    variants["ours"] = (block(ours), 1)
    variants["ours, two coordinates"] = (block(state_space.MambaBlock(D, FixedCount(2), 0)), 1)
    return variants


GROUPS: dict[str, Callable[[], Variants]] = {
    "heads and slices, 4,096 characters a step: training": lambda: {
        "plain loop": (plain_loop, STEPS),
        "fixed, all components": (trained(lambda kind, K: FixedCount(K)), STEPS),
        "NGN, all components": (trained(lambda kind, K: CountGate(K, t0=float(K))), STEPS),
    },
    "the same: forward passes": lambda: {
        "candidate": (forward(learner(lambda kind, K: CountGate(K, t0=float(K)))), STEPS),
        "truncated to 2 heads, 4 slices": (
            forward(learner(lambda kind, K: CountGate(K, t0=SMALL[kind] - 1.0)).deploy()),
            STEPS,
        ),
        "fixed, 2 heads and 4 slices": (forward(learner(lambda kind, K: FixedCount(SMALL[kind]))), STEPS),
    },
    "a Mamba block, batch 16 of 128 characters: forward and backward": scans,
}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    show("Training steps of small language models, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
