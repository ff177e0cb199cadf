"""``task=sine``: two sums of MLP blocks in sequence, each with its own boundary, learn y = sin 3x."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from experiments.blocks import Count
from experiments.contract.config import Component, TaskSettings

if TYPE_CHECKING:
    import torch

    from experiments.contract.config import Config
    from experiments.contract.task import Task


class TwoSums(Component):
    """Blocks of the given width. The two sums may differ in K, r, t0, delta and lambda0."""

    group_kinds: ClassVar[tuple[str, ...]] = ("inner", "outer")

    component: Literal["two_sums"]
    width: Count

    @property
    def groups(self) -> int:
        return 2


class Sine(TaskSettings):
    """y = sin 3x on [-1, 1]."""

    components = (TwoSums,)

    name: Literal["sine"]
    points: Count = 64

    def make(self, config: Config, device: torch.device) -> Task[TwoSums]:
        import torch  # imported here, because planning runs needs no torch

        from experiments.data.source import DataInfo
        from experiments.models.mlp import MLPBank
        from experiments.tasks.base import SupervisedTask
        from ngn.components.base import OrderedSum
        from ngn.train.batches import Split
        from ngn.train.losses import Supervised, mean_squared_error

        x = torch.linspace(-1.0, 1.0, self.points).unsqueeze(-1)

        class SineTask(SupervisedTask[TwoSums]):
            info = DataInfo("sine", hashlib.sha256(x.numpy().tobytes()).hexdigest(), f"generated: {len(x)} points")
            train = held = Split(x.to(device), torch.sin(3 * x).to(device))
            loss = Supervised(mean_squared_error)

            def model(self, gate: TwoSums, seeds: Any, capacity: Any) -> torch.nn.Module:
                layers = []
                for group, outputs in enumerate((4, 1)):
                    size = capacity(group)
                    inputs = 1 if group == 0 else 4
                    bank = MLPBank([inputs, gate.width, outputs], size.K, seeds, group)
                    layers.append(OrderedSum(bank, size))
                return torch.nn.Sequential(*layers)

            def metrics(self, output: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
                return {"mse": mean_squared_error(output.double(), target.double())}

        return SineTask()
