"""MNIST and CIFAR-10. The uint8 images stay on the device; each batch is converted to floats."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.core.config import Config
from experiments.core.task import CapacityOf, Seeds
from experiments.data import cifar10, mnist, synthetic
from experiments.data.source import data_root
from experiments.models.conv import ConvBank
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel, StackedLinear
from experiments.tasks.base import Classification
from experiments.tasks.images import Cifar10, ConvComponent, Mnist
from experiments.tasks.settings import MLPComponent
from ngn.components.base import OrderedSum
from ngn.train.batches import Split

CLASSES = 10
STATISTICS = {
    "mnist": ([0.1307], [0.3081]),
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
}
"""Mean and standard deviation of the training pixels per channel, after division by 255."""


class ImageTask(Classification[MLPComponent | ConvComponent]):
    """Ten classes. MLP blocks take pixels / 255 and share a linear head; convolutions take standardised images."""

    def __init__(self, settings: Mnist | Cifar10, config: Config, device: torch.device) -> None:
        smoke, self.shape = config.profile == "smoke", settings.inputs
        read = mnist.load_data if settings.name == "mnist" else cifar10.load_data
        data = synthetic.images(self.shape) if smoke else read(data_root(config.data_root))
        self.info = data.info
        train = (torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels))
        held = (torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels))
        if settings.split == "validation":
            keep = len(train[1]) - (len(train[1]) // 4 if smoke else settings.held_out)
            train, held = (train[0][:keep], train[1][:keep]), (train[0][keep:], train[1][keep:])
        self.train = Split(train[0].to(device), train[1].to(device))
        self.held = Split(held[0].to(device), held[1].to(device))
        self.flat = isinstance(config.gate, MLPComponent)
        self.mean, self.deviation = (torch.tensor(s, device=device).view(-1, 1, 1) for s in STATISTICS[settings.name])

    def prepare(self, inputs: Tensor) -> Tensor:
        """Convert uint8 [*R, N, C, H, W] to float32.

        The result is [*R, N, pixels] in [0, 1] for MLP blocks, else standardised [*R, N, C, H, W].
        """
        scaled = inputs.float() / 255.0
        return scaled.flatten(-3) if self.flat else (scaled - self.mean) / self.deviation

    def model(self, gate: MLPComponent | ConvComponent, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        size = capacity(0)
        if isinstance(gate, MLPComponent):
            pixels = self.shape[0] * self.shape[1] * self.shape[2]
            out = gate.features or CLASSES
            bank = MLPBank([pixels, *[gate.width] * gate.hidden_layers, out], size.K, seeds)
            head = None if gate.features is None else StackedLinear(out, CLASSES, seeds)
            return ParallelModel(OrderedSum(bank, size), head)
        return ParallelModel(OrderedSum(ConvBank(self.shape, gate.channels, CLASSES, size.K, seeds), size))
