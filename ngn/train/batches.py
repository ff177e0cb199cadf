"""What a training step sees. Batches are addressed by step, so resuming needs no state and replicas no common order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ngn.streams import generator


@dataclass(frozen=True)
class Split:
    """Samples on the device: inputs [N, ...] (or one object for all, such as a graph) and targets [N, ...]."""

    inputs: Any
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


class Batches(Protocol):
    """A stream of batches."""

    def at(self, index: int) -> Any:
        """Micro-batch ``index``, as the loss takes it: tensors [N, ...], or [R, N, ...] where replicas differ."""
        ...


class FullBatches:
    """The whole training set at every step, shared by all replicas."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def at(self, index: int) -> tuple[Any, Tensor]:
        return self.split.inputs, self.split.targets


class MiniBatches:
    """Shuffled minibatches without replacement; every replica in the order of its own seed.

    Epoch e of seed s is the permutation of the stream (s, "data", e); its last, incomplete batch is dropped.

    Args:
        split: the training data.
        size: samples in a batch; no more than there are.
        seeds: one seed (batches [N, ...]) or one per replica (batches [R, N, ...]).
        prepare: turns a batch of stored inputs into what the model takes (uint8 pixels into standardised floats).
    """

    def __init__(self, split: Split, size: int, seeds: int | Sequence[int], prepare: Callable[[Tensor], Any]) -> None:
        self.split, self.size, self.seeds, self.prepare = split, min(size, len(split)), seeds, prepare
        self.per_epoch = len(split) // self.size
        self._epoch, self._order = -1, torch.empty(0)

    def at(self, index: int) -> tuple[Any, Tensor]:
        epoch, batch = divmod(index, self.per_epoch)
        if epoch != self._epoch:
            each = [self.seeds] if isinstance(self.seeds, int) else self.seeds
            orders = [torch.randperm(len(self.split), generator=generator(seed, "data", epoch)) for seed in each]
            order = orders[0] if isinstance(self.seeds, int) else torch.stack(orders)
            self._epoch, self._order = epoch, order.to(self.split.targets.device)
        chosen = self._order[..., batch * self.size : (batch + 1) * self.size]
        return self.prepare(self.split.inputs[chosen]), self.split.targets[chosen]


class TokenBatches:
    """Inputs and next tokens from one long text, [size, context] each, as int64.

    Epoch e of seed s cuts the text into windows from an offset below ``context``, and takes them in an order; both are
    of the stream (s, "data", e). The last, incomplete batch of an epoch is dropped.

    Args:
        tokens: [T] integers, such as a memory map; only the windows of a batch are read.
        context: tokens in one input.
        size: windows in a batch; no more than there are.
        seed: of the run.
        device: where batches go.

    Raises:
        ValueError: if the text is shorter than two windows.

    >>> import numpy as np
    >>> x, y = TokenBatches(np.arange(40), context=4, size=2, seed=0).at(7)
    >>> x.shape, bool((y == x + 1).all())
    (torch.Size([2, 4]), True)
    """

    def __init__(
        self, tokens: np.ndarray, context: int, size: int, seed: int, device: torch.device | None = None
    ) -> None:
        self.windows = (len(tokens) - context) // context
        if self.windows < 1:
            raise ValueError(f"a text of {len(tokens)} tokens is too short for windows of {context}")
        self.tokens, self.context, self.seed, self.device = tokens, context, seed, device
        self.size = min(size, self.windows)
        self.per_epoch = self.windows // self.size
        self._epoch, self._starts = -1, np.empty(0, dtype=np.int64)

    def at(self, index: int) -> tuple[Tensor, Tensor]:
        epoch, batch = divmod(index, self.per_epoch)
        if epoch != self._epoch:
            source = generator(self.seed, "data", epoch)
            offset = torch.randint(self.context, (), generator=source)
            order = torch.randperm(self.windows, generator=source)
            self._epoch, self._starts = epoch, (offset + self.context * order).numpy()
        starts = self._starts[batch * self.size : (batch + 1) * self.size]
        window = self.tokens[starts[:, None] + np.arange(self.context + 1)].astype(np.int64)
        x = torch.from_numpy(window).to(self.device)
        return x[:, :-1], x[:, 1:]


class IteratedBatches:
    """The batches of an iterable such as a ``DataLoader``, pass after pass, in the order in which it gives them.

    A training that is resumed goes through the batches that it had before, without using them.

    Raises:
        ValueError: from ``at``, if a pass gives no batch; a generator, for one, can be gone through but once.
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
                raise ValueError(f"the batches ended after {self._index + 1}, and begun again there were none")
            self._index += 1
        return self._batch
