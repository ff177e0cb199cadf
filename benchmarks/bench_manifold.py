"""Training steps of the manifold study's autoencoder at the size of the paper: batches of 1,024, layers of width 64.

    python benchmarks/bench_manifold.py [--quick]

One thread, one seed, new points and new noise at every step. The first variant is what one would write without this
suite: plain modules, with the gated posterior by hand.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_models import Variants, fitted, show

from experiments.config.compose import compose
from ngn.train.kernels import AutoencoderTrainer
from ngn.train.kernels.kernel import compiled
from ngn.train.trainer import Trainer

STEPS = 50
"""Training steps of one call, so that setting up does not count."""


class Plain(nn.Module):
    """Encoder, ten rank-one terms with a gated posterior, decoder."""

    def __init__(self, inputs: int = 16, width: int = 64, K: int = 10) -> None:
        super().__init__()
        self.tau = nn.Parameter(torch.tensor(-9.0, dtype=torch.float64))
        sizes = [inputs, width, width, width, width]
        pairs = list(itertools.pairwise(sizes))
        self.encoder = nn.Sequential(*(part for a, b in pairs for part in (nn.Linear(a, b), nn.GELU())))
        layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.GELU())]
        self.decoder = nn.Sequential(*layers, nn.Linear(width, inputs))
        self.A, self.B = nn.Linear(width, K, bias=False), nn.Linear(K, width, bias=False)
        self.log_variance = nn.Parameter(torch.zeros(K))
        self.w = 0.5 ** torch.arange(K)

    def loss(self, x: Tensor) -> Tensor:
        """Squared error, divergence and price of one batch [N, inputs]."""
        t = nn.functional.softplus(self.tau)
        g = torch.sigmoid(4 * (t - torch.arange(len(self.w)) + 0.5)).float()
        mean, variance = g * self.A(self.encoder(x)), g**2 * self.log_variance.exp() + 1 - g**2
        y = self.decoder(self.B(self.w * (mean + variance.sqrt() * torch.randn_like(mean))))
        kl = 0.5 * (mean**2 + variance - 1 - variance.log()).sum(-1).mean()
        total: Tensor = (y - x).square().sum(-1).mean() + 1e-4 * kl + 2e-3 * t
        return total


def variants() -> Variants:
    """Name → (run, models trained at once)."""
    config = compose({"task": "manifold", "gate": "latent"}, {})
    plain = Plain()
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3)
    rotation = torch.linalg.qr(torch.randn(16, 16))[0]

    def plainly(steps: int) -> None:
        for _ in range(STEPS * steps):
            x = torch.tanh(0.8 * (torch.rand(1024, 4) * 2 - 1) @ rotation[:4])
            loss = plain.loss(x)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimizer.step()

    found: Variants = {"modules by hand": (plainly, 1), "this suite, torch engine": (fitted(config, Trainer, STEPS), 1)}
    if compiled("autoencoder") is not None:
        found["this suite, compiled gradients"] = (fitted(config, AutoencoderTrainer, STEPS), 1)
    return found


GROUPS: dict[str, Callable[[], Variants]] = {f"manifold autoencoder: {STEPS} training steps": variants}


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    show("Training steps of the manifold study's autoencoder, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
