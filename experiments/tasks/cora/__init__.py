"""``task=cora``: node classification in a citation graph."""

from __future__ import annotations

from typing import Literal

from experiments.core.blocks import Count
from experiments.core.config import Component, TaskSettings
from experiments.tasks.settings import Benchmark


class GCNComponent(Component):
    """Two-hop graph convolution branches with ``width`` hidden units."""

    stacks = True

    component: Literal["gcn"]
    width: Count

    def widths(self, task: TaskSettings) -> list[int]:
        return [*task.inputs, self.width, task.outputs]


class Cora(Benchmark):
    """Citation graph of 2,708 nodes: 140 for training, 500 for validation, 1,000 for testing."""

    made_by = "task.CoraTask"
    numerics = 2
    components = (GCNComponent,)
    packages = ("torch_geometric",)
    inputs = (1433,)
    outputs = 7

    name: Literal["cora"]
    nodes: Literal["planetoid", "random"] = "planetoid"
    """The standard split of the nodes, or for each seed a random split of the same sizes."""

    @property
    def data_of_seed(self) -> bool:
        return self.nodes == "random"
