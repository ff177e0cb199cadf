"""``task=cora``: a citation graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from experiments.blocks import Count
from experiments.tasks.settings import Benchmark, Component, TaskSettings

if TYPE_CHECKING:
    import torch

    from experiments.config.schema import Config
    from experiments.tasks.cora.task import CoraTask


class GCNComponent(Component):
    """Two-hop graph convolution branches of the given hidden width."""

    stacks: ClassVar[bool] = True

    component: Literal["gcn"]
    width: Count

    def widths(self, task: TaskSettings) -> list[int]:
        return [*task.inputs, self.width, task.outputs]


class Cora(Benchmark):
    """Citation graph, 2,708 nodes, the standard Planetoid split."""

    numerics: ClassVar[int] = 2
    components = (GCNComponent,)
    inputs: ClassVar[tuple[int, ...]] = (1433,)
    outputs: ClassVar[int] = 7

    name: Literal["cora"]

    def make(self, config: Config, device: torch.device) -> CoraTask:
        from experiments.tasks.cora.task import CoraTask

        return CoraTask(config, device)
