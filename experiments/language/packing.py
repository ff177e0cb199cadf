"""Sequences packed without padding: one row of tokens, positions that restart, attention within each sequence alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Sequence_ = tuple[list[int], list[int]]
"""Tokens of a prompt, and of what is to follow it."""


@dataclass(frozen=True)
class Packed:
    """Sequences in one row, and which of their tokens are predicted.

    Attributes:
        ids, positions: tokens and their places in their own sequences, int64 [1, T].
        before: where the logits of the predicted tokens are, int64 [M]: at the token before each.
        targets: the predicted tokens, int64 [M].
        lengths: of the sequences.
    """

    ids: Tensor
    positions: Tensor
    before: Tensor
    targets: Tensor
    lengths: tuple[int, ...]


def pack(sequences: Sequence[Sequence_], device: torch.device) -> Packed:
    """Sequences of prompt and target one after the other; the targets are predicted, by their place, not by what they
    are: an end of text that is a target counts, one in a prompt does not."""
    ids: list[int] = []
    positions: list[int] = []
    before: list[int] = []
    lengths = []
    for prompt, target in sequences:
        if not prompt:
            raise ValueError("a prompt needs at least one token: the first target is predicted from it")
        before += range(len(ids) + len(prompt) - 1, len(ids) + len(prompt) + len(target) - 1)
        ids += [*prompt, *target]
        positions += range(len(prompt) + len(target))
        lengths.append(len(prompt) + len(target))
    row, at = torch.tensor(ids, dtype=torch.int64), torch.tensor(before, dtype=torch.int64)
    places = torch.tensor(positions, dtype=torch.int64)
    return Packed(row[None].to(device), places[None].to(device), at.to(device), row[at + 1].to(device), tuple(lengths))


def nats(model: Callable[..., Any], batch: Packed) -> Tensor:
    """-ln p of each predicted token, float32 [M]; logits are computed at these alone."""
    output = model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        attention_mask=None,  # transformers sees by the positions where a sequence begins
        use_cache=False,
        logits_to_keep=batch.before,
    )
    return F.cross_entropy(output.logits[0].float(), batch.targets, reduction="none")
