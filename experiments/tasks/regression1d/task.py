"""The controlled study: y*(x) = sin 3x + 0.6 sin 7x + 0.3 sin 13x on [-pi, pi]."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from experiments.core.config import Config
from experiments.core.task import CapacityOf, DataInfo, Seeds
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from experiments.tasks.base import SupervisedTask
from experiments.tasks.regression1d import Regression1D
from experiments.tasks.settings import MLPComponent
from ngn.components.base import OrderedSum
from ngn.losses import Supervised, mean_squared_error
from ngn.streams import generator
from ngn.train.batches import Split


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
