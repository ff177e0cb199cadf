"""Time training steps of learned depth at the paper's size: 4,096 points, 10 layers of 10 maps, 16 links.

    python benchmarks/bench_depth.py [--quick]

One thread, one seed. The first variant is a plain program without this suite: one module per map, with gates by hand.
The boundaries are fixed so that all candidates are computed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_models import Variants, fitted, show

from experiments.config.compose import compose
from experiments.models.kernels.libraries import library
from experiments.models.kernels.trainer import KernelTrainer
from experiments.tasks import make_task
from ngn.train.trainer import Trainer

STEPS = 20
"""Training steps per call; many, so that the setup does not count."""


class Layers(nn.Module):
    """Ten layers of nine maps and an identity (ten maps in the last), with one boundary per layer."""

    def __init__(self, count: int = 10, K: int = 10) -> None:
        super().__init__()
        self.K = K
        self.tau = nn.ParameterList(nn.Parameter(torch.tensor(float(K), dtype=torch.float64)) for _ in range(count))
        self.maps = nn.ModuleList(
            nn.ModuleList(nn.Linear(2, 2) for _ in range(K - (i < count - 1))) for i in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, 2]"""
        maps: Any  # a ModuleList only knows its items as modules
        for tau, maps in zip(self.tau, self.maps, strict=True):
            t = nn.functional.softplus(tau)
            c = (torch.sigmoid(4 * (t - torch.arange(self.K) + 0.5)) * 0.5 ** torch.arange(self.K)).float()
            bare = self.K - len(maps)
            parts = [c[k + bare] * torch.tanh(one(x)) for k, one in enumerate(maps)]
            x = torch.stack([c[0] * x, *parts] if bare else parts).sum(0)
        return x


class Chain(nn.Module):
    """A chain of sixteen updates of width 32 under one boundary."""

    def __init__(self, K: int = 16, width: int = 32) -> None:
        super().__init__()
        self.K = K
        self.tau = nn.ParameterList([nn.Parameter(torch.tensor(float(K), dtype=torch.float64))])
        self.links = nn.ModuleList(
            nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2), nn.Tanh()) for _ in range(K)
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, 2]"""
        c = torch.sigmoid(4 * (nn.functional.softplus(self.tau[0]) - torch.arange(self.K) + 0.5)).float()
        u, y = torch.zeros_like(x), torch.zeros_like(x)
        for k, link in enumerate(self.links):
            u = link(x + u)
            y = y + c[k] * u
        return y


def variants(gate: str, by_hand: Callable[[], Layers | Chain]) -> Variants:
    """Name → (run, models trained at once)."""
    config = compose({"task": "twist", "gate": gate}, {"train.lr": 1e-6, "train.lr_boundary": 1e-12, "gate.t0": 9.0})
    task = make_task(config, torch.device("cpu"))
    batches = task.batches(config.train, 0)
    x, y = batches.at(0)
    plain = by_hand()
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-6)

    def plainly(steps: int) -> None:
        for _ in range(STEPS * steps):
            loss = (plain(x) - y).square().mean() + 1e-4 * sum(nn.functional.softplus(tau) for tau in plain.tau)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimizer.step()

    found: Variants = {"modules by hand": (plainly, 1), "this suite, torch engine": (fitted(config, Trainer, STEPS), 1)}
    if library("planar") is not None:
        found["this suite, compiled kernel"] = (fitted(config, KernelTrainer, STEPS), 1)
    return found


GROUPS: dict[str, Callable[[], Variants]] = {
    f"depth, a boundary per layer: {STEPS} training steps": lambda: variants("layers", Layers),
    f"depth, one chain: {STEPS} training steps": lambda: variants("chain", Chain),
}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    show("Training steps of the models of learned depth, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
