"""Cora: classify papers by their words and citations, with full batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from experiments.core.config import Config
from experiments.core.task import CapacityOf, Seeds
from experiments.data import cora, data_root, synthetic
from experiments.models.gcn import GCNBank, GraphInput
from experiments.models.parallel import ParallelModel
from experiments.tasks.base import Classification
from experiments.tasks.cora import Cora, GCNComponent
from ngn.components.base import OrderedSum
from ngn.streams import generator
from ngn.train.batches import Split


class CoraTask(Classification[GCNComponent]):
    """Training on 140 nodes; scores on the 1,000 test nodes or the 500 validation nodes."""

    def __init__(self, settings: Cora, config: Config, device: torch.device) -> None:
        data = synthetic.graph() if config.profile == "smoke" else cora.load_data(data_root(config.data_root))
        if settings.nodes == "random":
            order = torch.randperm(len(data.labels), generator=generator(config.seed.value, "split"))
            data = cora.split_by(data, order.numpy())
        self.info = data.info
        features, edges = torch.from_numpy(data.features), torch.from_numpy(data.edge_index)
        labels = torch.from_numpy(data.labels)
        held = data.test if settings.split == "test" else data.validation

        def split(nodes: Tensor) -> Split:
            return Split(GraphInput.of(features, edges, nodes).to(device), labels[nodes].to(device))

        self.train, self.held = split(torch.from_numpy(data.train)), split(torch.from_numpy(held))
        self.features, self.classes = features.shape[1], int(labels.max()) + 1

    def held_parts(self) -> list[tuple[Any, Tensor]]:
        return [(self.held.inputs, self.held.targets)]

    def timed_batch(self) -> tuple[Any, int]:
        """Return the whole graph, since a forward pass needs the neighbours of every held node."""
        return self.held.inputs, len(self.held)

    def model(self, gate: GCNComponent, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        size = capacity(0)
        return ParallelModel(OrderedSum(GCNBank(self.features, gate.width, self.classes, size.K, seeds), size))
