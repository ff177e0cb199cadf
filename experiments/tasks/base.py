"""Tasks whose data are inputs and targets, and the scores that several of them share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from experiments.contract.task import Gate, Seeds, Task
from experiments.contract.training import Train
from ngn.train.batches import Batches, FullBatches, MiniBatches, Split
from ngn.train.losses import Supervised, cross_entropy


class SupervisedTask(Task[Gate]):
    """Inputs and targets that lie on the device.

    Attributes:
        train, held: the training data, and the data that scores are computed on.
    """

    train: Split
    held: Split
    chunk = 2000
    """Samples evaluated at once."""

    @abstractmethod
    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Named means over samples, of each model: [*R]."""

    def evaluate(self, model: nn.Module) -> dict[str, Tensor]:
        """The metrics of ``model(x)`` on the held data, averaged by sample."""
        total: dict[str, Tensor] = {}
        for x, target in self.held_parts():
            for name, value in self.metrics(model(x), target).items():
                weighted = value.double() * len(target)
                total[name] = weighted if name not in total else total[name] + weighted
        return {name: value / len(self.held) for name, value in total.items()}

    def samples(self, train: Train) -> int:
        """Training samples, by which an epoch is counted and a prior is spread."""
        return len(self.train)

    def prepare(self, inputs: Any) -> Any:
        """Stored inputs → what the model takes."""
        return inputs

    def batches(self, train: Train, seeds: Seeds) -> Batches:
        """The training stream."""
        if train.batch is None:
            return FullBatches(Split(self.prepare(self.train.inputs), self.train.targets))
        return MiniBatches(self.train, train.batch, seeds, self.prepare)

    def held_parts(self) -> list[tuple[Any, Tensor]]:
        """The data that scores are computed on, in parts that fit in memory."""
        x, y = self.held.inputs, self.held.targets
        return [(self.prepare(x[i : i + self.chunk]), y[i : i + self.chunk]) for i in range(0, len(y), self.chunk)]

    def timed_batch(self) -> tuple[Any, int]:
        """The batch whose forward pass is timed, and how many samples it has."""
        x = self.held.inputs[: self.timed_samples]
        return self.prepare(x), len(x)


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Per cent of samples whose largest logit is the target's, [*R]."""
    return (output.argmax(-1) == target).to(torch.float64).mean(-1) * 100.0


class Classification(SupervisedTask[Gate]):
    """Cross-entropy and accuracy."""

    timed_samples = 128
    prefix_score = "accuracy"
    loss = Supervised(cross_entropy)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"accuracy": accuracy(output, target), "loss": cross_entropy(output, target)}
