"""Shuffled minibatches, each addressed by its index, in an order of its own for each replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ngn.streams import generator
from ngn.train.batches import Split


class MiniBatches:
    """Shuffled minibatches without replacement; the seed of each replica gives its order.

    The random stream (s, "data", e) gives the permutation of seed s in epoch e. The last batch of an epoch is dropped
    if it is incomplete.

    Args:
        split: the training data.
        size: samples in a batch; at most the whole split.
        seeds: one seed (batches [N, ...]) or one per replica (batches [R, N, ...]).
        prepare: converts stored inputs to inputs of the model, such as uint8 pixels to standardised floats.
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
