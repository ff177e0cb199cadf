"""Tasks on generated data: a manifold, a function of one variable, and a twist of the plane.

- An autoencoder of a manifold of known intrinsic dimension D: x = tanh(0.8 R [z; 0]), z uniform on [-1, 1]^D.
- The controlled study: y*(x) = sin 3x + 0.6 sin 7x + 0.3 sin 13x on [-pi, pi].
- Learned depth for the iterated 2D twist T(x) = r (cos(theta + 3 gamma r), sin(theta + 3 gamma r)).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from experiments.core.config import Config
from experiments.core.task import CapacityOf, DataInfo, Seeds
from experiments.core.training import Train
from experiments.models.depth import ChainBank, LayerStack, TanhBank
from experiments.models.latent import GatedBottleneck, RankOneBank
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel, StackedLinear
from experiments.tasks.base import SupervisedTask
from experiments.tasks.generated import ChainComponent, LatentComponent, LayersComponent, Manifold, Regression1D, Twist
from experiments.tasks.settings import MLPComponent
from ngn.components.base import OrderedSum
from ngn.losses import Supervised, mean_squared_error
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


def target(x: Tensor) -> Tensor:
    """Return sin 3x + 0.6 sin 7x + 0.3 sin 13x."""
    return torch.sin(3 * x) + 0.6 * torch.sin(7 * x) + 0.3 * torch.sin(13 * x)


def inputs(task: Regression1D) -> Tensor:
    """Return the training inputs, float64 [points, 1]: evenly spaced, or a uniform draw, the same for all seeds."""
    if task.layout == "even":
        return torch.linspace(-math.pi, math.pi, task.points, dtype=torch.float64).unsqueeze(-1)
    source = generator(task.draw, "regression1d", "inputs")
    x = torch.empty(task.points, dtype=torch.float64).uniform_(-math.pi, math.pi, generator=source)
    return x.sort().values.unsqueeze(-1)


class RegressionTask(SupervisedTask[MLPComponent]):
    """Training and score: mean squared error on the training points, as in the paper."""

    loss = Supervised(mean_squared_error)
    component_norms = True
    prefix_score = "mse"

    def __init__(self, settings: Regression1D, config: Config, device: torch.device) -> None:
        smoke = config.profile == "smoke"
        points = settings.model_copy(update={"points": 64}) if smoke else settings
        x = inputs(points)
        digest = hashlib.sha256(x.numpy().tobytes()).hexdigest()
        self.info = DataInfo("regression1d", digest, f"generated: {points.points} points, {points.layout}")
        self.train = self.held = Split(x.float().to(device), target(x).float().to(device))

    def model(self, gate: MLPComponent, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        size = capacity(0)
        bank = MLPBank([1, *[gate.width] * gate.hidden_layers, 1], size.K, seeds)
        return ParallelModel(OrderedSum(bank, size))

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"mse": mean_squared_error(output.double(), target.double())}


STEPS = 3
"""Number of rotations that the teacher composes."""


def twist(x: Tensor, gamma: float) -> Tensor:
    """Rotate each point [..., 2] by three times gamma times its radius."""
    radius = torch.linalg.vector_norm(x, dim=-1)
    angle = torch.atan2(x[..., 1], x[..., 0]) + STEPS * gamma * radius
    return radius.unsqueeze(-1) * torch.stack([torch.cos(angle), torch.sin(angle)], -1)


class TwistTask(SupervisedTask[ChainComponent | LayersComponent]):
    """Training and score: mean squared error to the standardised targets of the training points, as in the paper."""

    loss = Supervised(mean_squared_error)

    def __init__(self, settings: Twist, config: Config, device: torch.device) -> None:
        points = 64 if config.profile == "smoke" else settings.points
        x = torch.randn(points, 2, dtype=torch.float64, generator=generator(settings.draw, "twist", "inputs"))
        y = twist(x, settings.gamma)
        y = (y - y.mean(0)) / y.std(0, correction=0)
        # Rounded: processors differ in the last bits of normal draws, which must not make the data different.
        digest = hashlib.sha256((x * 1e6).round().long().numpy().tobytes()).hexdigest()
        self.info = DataInfo("twist", digest, f"generated: {points} points, gamma = {settings.gamma:g}")
        self.train = self.held = Split(x.float().to(device), y.float().to(device))

    def model(self, gate: ChainComponent | LayersComponent, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        if isinstance(gate, ChainComponent):
            size = capacity(0)
            return ParallelModel(OrderedSum(ChainBank(2, gate.width, size.K, seeds), size))
        layers = []
        for number in range(gate.layers):
            size = capacity(number)
            # no identity in the last layer, so at least one layer always counts
            bank = TanhBank(2, size.K, seeds, number, identity=number < gate.layers - 1)
            layers.append(OrderedSum(bank, size))
        return LayerStack(layers)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"mse": mean_squared_error(output.double(), target.double())}

    def describe(self, deployed: nn.Module) -> dict[str, int]:
        """Return the number of layers, or of links of the chain, after truncation."""
        if isinstance(deployed, LayerStack):
            return {"depth": deployed.depth}
        assert isinstance(deployed, ParallelModel)
        return {"depth": deployed.group.K}
