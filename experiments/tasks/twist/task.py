"""Learned depth for the iterated 2D twist T(x) = r (cos(theta + 3 gamma r), sin(theta + 3 gamma r))."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from experiments.core.config import Config
from experiments.core.task import CapacityOf, DataInfo, Seeds
from experiments.models.depth import ChainBank, LayerStack, TanhBank
from experiments.models.parallel import ParallelModel
from experiments.tasks.base import SupervisedTask
from experiments.tasks.twist import ChainComponent, LayersComponent, Twist
from ngn.components.base import OrderedSum
from ngn.losses import Supervised, mean_squared_error
from ngn.streams import generator
from ngn.train.batches import Split

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
