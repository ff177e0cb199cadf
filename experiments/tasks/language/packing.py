"""Pack sequences into one row without padding: positions restart, and attention stays within each sequence.

transformers would mask a packed row, which takes the square of its length, and still compute its whole attention
matrix. The attention function here computes one matrix per sequence and needs no mask. It is registered with
transformers under :data:`ATTENTION`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.core.blocks import ConfigError

ATTENTION = "by_sequence"
Tokens = tuple[list[int], list[int]]
"""The tokens of a prompt and of its target."""


@dataclass(frozen=True)
class Packed:
    """Sequences in one row, and which of their tokens are predicted.

    Attributes:
        ids, positions: tokens and their positions in their sequences, int64 [1, T].
        before: positions of the logits of the predicted tokens, int64 [M]: the token before each.
        targets: the predicted tokens, int64 [M].
        lengths: lengths of the sequences.
    """

    ids: Tensor
    positions: Tensor
    before: Tensor
    targets: Tensor
    lengths: tuple[int, ...]


def pack(sequences: Sequence[Tokens], device: torch.device) -> Packed:
    """Pack sequences of prompt and target into one row.

    Every target token is predicted, also an end of text; no token of a prompt is.
    """
    ids: list[int] = []
    positions: list[int] = []
    before: list[int] = []
    lengths = []
    for prompt, target in sequences:
        if not prompt:
            raise ValueError("a prompt needs at least one token, because it predicts the first target")
        before += range(len(ids) + len(prompt) - 1, len(ids) + len(prompt) + len(target) - 1)
        ids += [*prompt, *target]
        positions += range(len(prompt) + len(target))
        lengths.append(len(prompt) + len(target))
    row, at = torch.tensor(ids, dtype=torch.int64), torch.tensor(before, dtype=torch.int64)
    places = torch.tensor(positions, dtype=torch.int64)
    return Packed(row[None].to(device), places[None].to(device), at.to(device), row[at + 1].to(device), tuple(lengths))


def by_sequence(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    sequences: tuple[int, ...] | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attend causally within each sequence of a packed row; without ``sequences``, use transformers' masked attention.

    query, key, value: [B, heads, T, d], with B = 1 for a packed row; returns [B, T, heads, d].

    Raises:
        ConfigError: if a sequence exceeds the sliding window, or the scores need softcap, sinks or a position bias.
    """
    if sequences is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **rest)
        return output, None
    if sliding_window is not None and max(sequences) > sliding_window:
        raise ConfigError(
            f"the model looks back {sliding_window} tokens, but a sequence has {max(sequences)}: lower "
            "task.max_tokens and task.perplexity_tokens"
        )
    if given := [name for name in ("softcap", "s_aux", "position_bias") if rest.get(name) is not None]:
        raise ConfigError(f"{type(module).__name__} attends with {', '.join(given)}, which packed rows do not support")
    grouped = query.shape[1] != key.shape[1]
    parts = zip(query.split(sequences, 2), key.split(sequences, 2), value.split(sequences, 2), strict=True)
    each = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=grouped) for q, k, v in parts
    ]
    return torch.cat(each, dim=2).transpose(1, 2), None


def use_by_sequence(model: Any) -> None:
    """Make a model of transformers attend with :func:`by_sequence`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, by_sequence)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation(ATTENTION)


def _mask_for(model: Callable[..., Any], ids: Tensor) -> Tensor | None:
    """Return an empty mask for a model that attends with :func:`by_sequence`, and None for any other model.

    transformers passes on a mask of four dimensions as it is. Without one it reads the positions on the host, and makes
    a mask of T x T.
    """
    parts = model.modules() if isinstance(model, nn.Module) else ()
    config = next((part.config for part in parts if hasattr(part, "config")), None)
    return ids.new_empty(1, 1, 0, 0) if getattr(config, "_attn_implementation", None) == ATTENTION else None


def token_losses(model: Callable[..., Any], batch: Packed) -> Tensor:
    """Return -ln p (nats) of each predicted token, float32 [M]; logits are computed only there."""
    output = model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        attention_mask=_mask_for(model, batch.ids),  # with None, a model finds the sequences by their positions
        sequences=batch.lengths,
        use_cache=False,
        logits_to_keep=batch.before,
    )
    return F.cross_entropy(output.logits[0].float(), batch.targets, reduction="none")
