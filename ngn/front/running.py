"""Running statistics of the members of a front, and how to measure them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import having
from ngn.budget.evidence import tracks
from ngn.checks import arguments

Slots = dict[str, Any]
"""The parameters, the buffers or the attributes of a module."""
RUNNING = ("running_mean", "running_var")
READ = 20
"""Batches that are read to measure statistics again, at most."""


class Statistics(nn.Module):
    """The running statistics of normalisations, for each of ``members`` but the largest, which has the model's own."""

    values: Tensor
    """Means and variances of all layers, [members, entries]."""
    batches: Tensor
    """Batches seen, int64 [members, layers]."""
    passes: Tensor
    """What a training has seen of its passes: 0 nothing yet, 1 none is computed again in the backward pass, 2 some."""

    def __init__(self, model: nn.Module, members: int) -> None:
        super().__init__()
        self.names = [name for name, part in model.named_modules() if tracks(part)]
        parts: list[Any] = [model.get_submodule(name) for name in self.names]
        self.sizes = [len(part.running_mean) for part in parts]
        entries = [value for part in parts for value in (part.running_mean, part.running_var)]
        counts = [0 if part.num_batches_tracked is None else int(part.num_batches_tracked) for part in parts]
        device = entries[0].device if entries else None
        values = torch.cat(entries).detach() if entries else torch.zeros(0)
        self.register_buffer("values", values.repeat(members, 1).clone())
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self.register_buffer("batches", torch.tensor(counts, dtype=torch.int64, device=device).repeat(members, 1))

    def of(self, model: nn.Module, member: int) -> Iterator[tuple[Slots, str, Tensor]]:
        """The places in ``model`` of the statistics of a member, and these, as views of the buffers."""
        parts: list[Any] = [model.get_submodule(name) for name in self.names]
        for like in [part.running_mean for part in parts[:1]]:
            if (like.device, like.dtype) != (self.values.device, self.values.dtype):  # the model was moved alone
                self.to(like.device, like.dtype)
        sizes = [size for size in self.sizes for _ in range(2)]
        each = [value.data for value in self.values[member].split(sizes)]  # each with a version of its own for autograd
        for number, part in enumerate(parts):
            yield part._buffers, "running_mean", each[2 * number]
            yield part._buffers, "running_var", each[2 * number + 1]
            if part.num_batches_tracked is not None:
                yield part._buffers, "num_batches_tracked", self.batches[member, number]


@torch.no_grad()
def measure_again(model: nn.Module, batches: Iterable[Any]) -> nn.Module:
    """``model`` whose normalisations have the mean statistics of the first :data:`READ` of ``batches``.

    The model is in eval mode, in which all else stays. Of a batch that is a list, as a ``DataLoader`` makes of pairs,
    the first entry is the input. It is a ValueError if there is no batch.
    """
    norms: list[Any] = [part for part in model.modules() if tracks(part)]
    for part in norms:
        part.reset_running_stats()
    read = 0
    with having(norms, momentum=lambda part: None, training=lambda part: True):  # the mean over all batches
        for read, batch in enumerate(islice(batches, READ), 1):  # noqa: B007
            given = batch[0] if isinstance(batch, list) else dict(batch) if isinstance(batch, Mapping) else batch
            args, named = arguments(given)
            model(*args, **named)
    if not read:
        raise ValueError("calibration= has no batches, so no statistics can be measured: pass batches of inputs")
    return model
