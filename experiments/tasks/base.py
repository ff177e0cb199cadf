"""A task: data on a device, a model around its ordered components, a loss and metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.config.schema import Config, Train
from experiments.data.source import DataInfo
from ngn.methods.base import CapacityFactory
from ngn.train.batches import Batches, FullBatches, MiniBatches, Split

Seeds = int | Sequence[int]


def replicas_of(seeds: Seeds) -> int | None:
    """The length of the replica axis: None for one seed."""
    return None if isinstance(seeds, int) else len(seeds)


class Task(ABC):
    """What the trainer and the phases need to know of a task.

    Attributes:
        train, held: the training data, and the data that scores are computed on.
        info: name, digest and provenance of the data, for the record.
        timed_samples: samples of the forward pass whose cost a record holds; None where that says nothing.
    """

    train: Split
    held: Split
    info: DataInfo
    chunk = 2000
    """Samples evaluated at once."""
    timed_samples: int | None = None

    @abstractmethod
    def model(self, config: Config, K: int | None, seeds: Seeds, capacity: CapacityFactory) -> nn.Module:
        """The model with K candidates (None: as many as it comes to need) for one seed, or for a stack of seeds."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean loss of each model, [*R]."""

    @abstractmethod
    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Named scores of each model, [*R]."""

    def describe(self, deployed: nn.Module) -> dict[str, int]:
        """What else the record of a phase says of the truncated model, by the names of the record's schema."""
        return {}

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


def _shared_rows(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Output [*R, N, C] and target [N] or [*R, N] as one long batch, and *R."""
    lead = output.shape[:-2]
    return output.flatten(0, -2), target.expand(*lead, output.shape[-2]).flatten(), tuple(lead)


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of each model, nats. output [*R, N, C], target [N] or [*R, N]; returns [*R]."""
    rows, labels, lead = _shared_rows(output.float(), target)
    return F.cross_entropy(rows, labels, reduction="none").view(*lead, -1).mean(-1)


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """Per cent of samples whose largest logit is the target's, [*R]."""
    return (output.argmax(-1) == target).to(torch.float64).mean(-1) * 100.0


class Classification(Task):
    """Cross-entropy and accuracy."""

    timed_samples = 128

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"accuracy": accuracy(output, target), "loss": cross_entropy(output, target)}
