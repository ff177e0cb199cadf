"""Batches of training data, each addressed by its index, so that a resumed training needs no state of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Samples on the device: inputs [N, ...] and targets [N, ...]. Inputs may also be one object, such as a graph."""

    inputs: Any
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


class Batches(Protocol):
    """A stream of batches."""

    def at(self, index: int) -> Any:
        """Return micro-batch ``index`` for the loss: tensors [N, ...], or [R, N, ...] if replicas differ."""
        ...


class FullBatches:
    """The whole training set in every step, shared by all replicas."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def at(self, index: int) -> tuple[Any, Tensor]:
        return self.split.inputs, self.split.targets


class HeldOutParts:
    """Held-out samples in ``count`` parts, in their own order, again and again.

    >>> import torch
    >>> HeldOutParts(Split(torch.arange(6), torch.arange(6)), 3).at(4)[0].tolist()
    [2, 3]
    """

    def __init__(self, split: Split, count: int) -> None:
        self.split, self.count = split, min(count, len(split))

    def at(self, index: int) -> tuple[Tensor, Tensor]:
        """Part ``index`` modulo ``count``: inputs and targets."""
        part = index % self.count
        here = slice(part * len(self.split) // self.count, (part + 1) * len(self.split) // self.count)
        return self.split.inputs[here], self.split.targets[here]


class IteratedBatches:
    """The batches of an iterable such as a ``DataLoader``, in its own order, epoch after epoch.

    A resumed training first reads and skips the batches before its checkpoint.

    Raises:
        ValueError: from ``at``, if a new epoch yields no batch. For example, a generator can be read only once.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self._index = -1
        self._batch: Any = None
        self._pass: Iterator[Any] = iter(())

    def at(self, index: int) -> Any:
        if index < self._index:
            self._index, self._pass = -1, iter(self.source)
        while self._index < index:
            self._batch = next(self._pass, self)
            if self._batch is self:
                self._pass = iter(self.source)
                self._batch = next(self._pass, self)
            if self._batch is self:
                raise ValueError(
                    f"the iterable of batches ended after {self._index + 1} and yields none when read again: pass one "
                    "that can be read repeatedly, such as a list or a DataLoader"
                )
            self._index += 1
        return self._batch
