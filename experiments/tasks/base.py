"""Supervised tasks (inputs and targets), their minibatches or windows of a text, and scores that several share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.core.task import Gate, Seeds, Task
from experiments.core.training import Train
from ngn.losses import Supervised, cross_entropy
from ngn.streams import generator, of_seeds
from ngn.train.batches import Batches, FullBatches, Split


class SupervisedTask(Task[Gate]):
    """A task on inputs and targets, which stay on the device.

    Attributes:
        train: the training data.
        held: the data for the scores.
    """

    train: Split
    held: Split
    chunk = 2000
    """Samples evaluated in one forward pass."""

    @abstractmethod
    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return named means over the samples, for each model: [*R]."""

    def evaluate(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the metrics of ``model(x)``, averaged over the held samples."""
        total: dict[str, Tensor] = {}
        for x, target in self.held_parts():
            for name, value in self.metrics(model(x), target).items():
                weighted = value.double() * len(target)
                total[name] = weighted if name not in total else total[name] + weighted
        return {name: value / len(self.held) for name, value in total.items()}

    def samples(self, train: Train) -> int:
        """Return the number of training samples, which sets the length of an epoch and the weight of a prior."""
        return len(self.train)

    def prepare(self, inputs: Any) -> Any:
        """Convert stored inputs to the model's inputs."""
        return inputs

    def batches(self, train: Train, seeds: Seeds) -> Batches:
        """Return the training stream."""
        if train.batch is None:
            return FullBatches(Split(self.prepare(self.train.inputs), self.train.targets))
        return MiniBatches(self.train, train.batch, seeds, self.prepare)

    def held_parts(self) -> list[tuple[Any, Tensor]]:
        """Return the held data in parts of :attr:`chunk` samples, which fit in memory."""
        x, y = self.held.inputs, self.held.targets
        return [(self.prepare(x[i : i + self.chunk]), y[i : i + self.chunk]) for i in range(0, len(y), self.chunk)]

    def timed_batch(self) -> tuple[Any, int]:
        """Return the batch for timing a forward pass, and its number of samples."""
        x = self.held.inputs[: self.timed_samples]
        return self.prepare(x), len(x)


class Classification(SupervisedTask[Gate]):
    """A supervised task with cross-entropy loss and accuracy."""

    timed_samples = 128
    prefix_score: str | None = "accuracy"
    loss = Supervised(cross_entropy)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        accuracy = (output.argmax(-1) == target).to(torch.float64).mean(-1) * 100.0  # per cent
        return {"accuracy": accuracy, "loss": cross_entropy(output, target)}


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
            samples = len(self.split)
            order = of_seeds(self.seeds, lambda s: torch.randperm(samples, generator=generator(s, "data", epoch)))
            self._epoch, self._order = epoch, order.to(self.split.targets.device)
        chosen = self._order[..., batch * self.size : (batch + 1) * self.size]
        return self.prepare(self.split.inputs[chosen]), self.split.targets[chosen]


class TokenBatches:
    """Inputs and next tokens from one long text, [size, context] each, as int64.

    Each epoch cuts the text into windows of ``context`` tokens and shuffles them. The first window begins at a random
    offset below ``context``. The random stream (s, "data", e) gives offset and order for seed s in epoch e. The last
    batch of an epoch is dropped if it is incomplete.

    Args:
        tokens: [T] integers, such as a memory map; only the windows of a batch are read.
        context: tokens in one input.
        size: windows in a batch; at most all windows of the text.
        seed: the seed of the run.
        device: the device of the batches.

    Raises:
        ValueError: if the text has fewer than 2 ``context`` tokens.

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
            raise ValueError(
                f"the text has {len(tokens)} tokens, which is too short for context={context}: "
                f"it needs at least {2 * context}"
            )
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
