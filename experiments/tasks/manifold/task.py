"""An autoencoder of a manifold of known intrinsic dimension D: x = tanh(0.8 R [z; 0]), z uniform on [-1, 1]^D."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.core.config import Config
from experiments.core.task import CapacityOf, DataInfo, Seeds
from experiments.core.training import Train
from experiments.models.latent import GatedBottleneck, RankOneBank
from experiments.models.parallel import StackedLinear
from experiments.tasks.base import SupervisedTask
from experiments.tasks.manifold import LatentComponent, Manifold
from ngn.losses import Supervised
from ngn.streams import generator, of_seeds
from ngn.train.batches import Batches, Split

RANK_THRESHOLD = 1e-3
"""The numerical rank counts the singular values above this fraction of the largest."""


def rotation(task: Manifold) -> Tensor:
    """Return R, a random orthogonal matrix, the same for all seeds and dimensions: float64 [ambient, ambient]."""
    gaussian = torch.randn(
        task.ambient, task.ambient, dtype=torch.float64, generator=generator(task.draw, "manifold", "rotation")
    )
    Q, triangle = torch.linalg.qr(gaussian)
    return Q * torch.sign(torch.diagonal(triangle))  # makes the decomposition unique


def latents(samples: int, D: int, source: torch.Generator) -> Tensor:
    """Draw latents uniformly from [-1, 1]^D: float32 [samples, D]."""
    return torch.rand(samples, D, generator=source) * 2.0 - 1.0


class FreshBatches:
    """New points at every step, which depend on the seed and the step only. Input and target are the same points.

    Args:
        seeds: one seed (points [N, ambient]) or one per replica ([R, N, ambient]).
        size: N.
        D: intrinsic dimension.
        embed: maps latents [*R, N, D] to points.
    """

    def __init__(self, seeds: int | Sequence[int], size: int, D: int, embed: Any) -> None:
        self.seeds, self.size, self.D, self.embed = seeds, size, D, embed

    def at(self, index: int) -> tuple[Tensor, Tensor]:
        x = self.embed(of_seeds(self.seeds, lambda seed: latents(self.size, self.D, generator(seed, "data", index))))
        return x, x


class Autoencoder(nn.Module):
    """Encoder, gated bottleneck, decoder, and a linear map to the input's size.

    Encoder and decoder have ``gate.hidden_layers`` GELU layers each.
    """

    def __init__(self, inputs: int, gate: LatentComponent, bottleneck: GatedBottleneck, seeds: Seeds) -> None:
        super().__init__()
        wide = [gate.width] * gate.hidden_layers
        self.encoder = nn.Sequential(*_gelu_layers([inputs, *wide], seeds, "encoder"))
        self.bottleneck = bottleneck
        self.decoder = nn.Sequential(
            *_gelu_layers([gate.width, *wide], seeds, "decoder"), StackedLinear(gate.width, inputs, seeds, "output")
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the reconstruction, [*R, N, inputs]."""
        y: Tensor = self.decoder(self.bottleneck(self.encoder(x)))
        return y


def _gelu_layers(sizes: Sequence[int], seeds: Seeds, name: str) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for i, (inputs, out) in enumerate(itertools.pairwise(sizes)):
        layers += [StackedLinear(inputs, out, seeds, f"{name}{i}"), nn.GELU()]
    return layers


def squared_distance(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared distance of points [*R, N, C]: [*R]."""
    return (output - target).square().sum(-1).mean(-1)


class ManifoldTask(SupervisedTask[LatentComponent]):
    """Training on the squared distance; score: NMSE on fixed held-out points, as in the paper."""

    def __init__(self, settings: Manifold, config: Config, device: torch.device) -> None:
        self.settings, self.device = settings, device
        R = rotation(settings)
        self.embedding = (0.8 * R[:, : settings.D].T).float().to(device)
        z = latents(settings.held, settings.D, generator(settings.draw, "manifold", "held"))
        held = self.embed(z)
        self.held = Split(held, held)
        self.power = held.double().square().sum(-1).mean()
        # Rounded: linear algebra libraries differ in the last bits of R, which must not make the data different.
        content = (R * 1e6).round().long().numpy().tobytes() + z.numpy().tobytes()
        size = f"{settings.held} held-out points, D = {settings.D} in {settings.ambient}"
        self.info = DataInfo("manifold", hashlib.sha256(content).hexdigest(), f"generated: {size}")

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The squared distance and, in a training step, the divergence of each bottleneck: [*R]."""
        value = Supervised(squared_distance)(model, batch)
        parts = [part.divergence() for part in model.modules() if isinstance(part, GatedBottleneck)]
        return sum((part for part in parts if part is not None), value)

    def embed(self, z: Tensor) -> Tensor:
        """Return tanh(0.8 R [z; 0]): [..., D] → [..., ambient]."""
        return torch.tanh(z.to(self.device) @ self.embedding)

    def batches(self, train: Train, seeds: Seeds) -> Batches:
        return FreshBatches(seeds, self.samples(train), self.settings.D, self.embed)

    def samples(self, train: Train) -> int:
        """Return the points in a batch: there is no training set, since every batch is new."""
        assert train.batch is not None
        return train.batch

    def model(self, gate: LatentComponent, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        size = capacity(0)
        bank = RankOneBank(gate.width, gate.width, size.K, seeds)
        return Autoencoder(self.settings.ambient, gate, GatedBottleneck(bank, size, self.settings.kl), seeds)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"nmse": squared_distance(output.double(), target.double()) / self.power}

    def describe(self, deployed: nn.Module) -> dict[str, int]:
        """Return the numerical rank of the deployed bottleneck."""
        assert isinstance(deployed, Autoencoder)
        return {"rank": deployed.bottleneck.bank.rank(RANK_THRESHOLD)}
