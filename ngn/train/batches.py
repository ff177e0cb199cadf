"""Batches of training data, each addressed by its index, so that a resumed training needs no state of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ngn.streams import generator


@dataclass(frozen=True)
class Split:
    """Samples on the device: inputs [N, ...] and targets [N, ...]. Inputs may also be one object, such as a graph."""

    inputs: Any
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


def rows_of(data: Any) -> int | None:
    """The number of rows N of a tensor [N, ...], or of a tuple, list or dictionary of such tensors; None if unknown."""
    leaves = tree_leaves(data)
    whole = all(isinstance(leaf, Tensor) and leaf.dim() for leaf in leaves)
    lengths = {len(leaf) for leaf in leaves} if whole else set()
    return lengths.pop() if len(lengths) == 1 else None


def take(data: Any, rows: slice | Tensor) -> Any:
    """The ``rows`` of a tensor, or of each tensor of a tuple, list or dictionary."""
    return tree_map(lambda value: value[rows if isinstance(rows, slice) else rows.to(value.device)], data)


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


class ShuffledBatches:
    """Minibatches of ``size`` of the ``rows`` rows of ``data``, without replacement, in a new order in each epoch.

    The random stream (seed of torch, "data", epoch) gives the order, so ``torch.manual_seed`` sets it, and nothing that
    training draws changes it. The last batch of an epoch is dropped if it is incomplete.
    """

    def __init__(self, data: Any, rows: int, size: int) -> None:
        self.data, self.rows, self.size, self.seed = data, rows, size, torch.initial_seed()
        self._epoch, self._order = -1, torch.empty(0)

    def at(self, index: int) -> Any:
        epoch, batch = divmod(index, self.rows // self.size)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = torch.randperm(self.rows, generator=generator(self.seed, "data", epoch))
        return take(self.data, self._order[batch * self.size : (batch + 1) * self.size])


class HeldOutParts:
    """Held-out samples in ``count`` parts of at most ``most`` rows, in their own order, again and again."""

    def __init__(self, split: Split, count: int, most: int | None = None) -> None:
        self.split, self.count, self.most = split, min(count, len(split)), most or len(split)

    def at(self, index: int) -> tuple[Any, Tensor]:
        """Part ``index`` modulo ``count``: inputs and targets."""
        part = index % self.count
        first, end = (number * len(self.split) // self.count for number in (part, part + 1))
        here = slice(first, min(end, first + self.most))
        return take(self.split.inputs, here), self.split.targets[here]


class IteratedBatches:
    """The batches of an iterable such as a ``DataLoader``, in its own order, epoch after epoch.

    A resumed training first reads and skips the batches before its checkpoint. It is a ValueError if a new epoch yields
    no batch; a generator, for example, can be read only once.
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
