"""The data, the model, the loss and the score of ``task=sine``."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from experiments.core.task import DataInfo
from experiments.tasks.base import SupervisedTask
from experiments.tasks.sine.bank import WaveBank
from ngn import OrderedSum
from ngn.losses import Supervised, mean_squared_error
from ngn.train.batches import Split

if TYPE_CHECKING:
    from experiments.core.config import Config
    from experiments.core.task import CapacityOf, Seeds
    from experiments.tasks.sine import Sine, Waves

SMOKE_POINTS = 16


class SineTask(SupervisedTask["Waves"]):
    """Mean squared error on the training points."""

    loss = Supervised(mean_squared_error)

    def __init__(self, settings: Sine, config: Config, device: torch.device) -> None:
        points = SMOKE_POINTS if config.profile == "smoke" else settings.points
        x = torch.linspace(-1.0, 1.0, points).unsqueeze(-1)
        y = torch.sin(3 * x) + torch.sin(9 * x) / 2
        digest = hashlib.sha256(x.numpy().tobytes()).hexdigest()
        self.info = DataInfo("sine", digest, f"generated: {points} points")  # what the record says of the data
        self.train = self.held = Split(x.to(device), y.to(device))

    def model(self, gate: Waves, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        """One sum of waves. ``capacity(0)`` is the learned size of ordered group 0."""
        size = capacity(0)
        return OrderedSum(WaveBank(gate.highest, size.K, seeds), size)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """The scores of a record, by name."""
        return {"mse": mean_squared_error(output.double(), target.double())}
