"""Measure forgetting: the perplexity on general text, before and after adaptation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from experiments.core.blocks import ConfigError
from experiments.data.texts import Texts
from experiments.tasks.language.base import PretrainedModel
from experiments.tasks.language.packing import pack, token_losses

CONTEXT = 1024
"""Tokens of a chunk, including its start of text. Chunks do not overlap."""


def documents(texts: Texts) -> list[str]:
    """Return running text: the documents of the Pile, or WikiText's test part as one document."""
    (part,) = texts.parts.values()
    return [part] if isinstance(part, str) else [each["text"] for each in part]


def perplexity_chunks(
    base: PretrainedModel, texts: Sequence[str], tokens: int, context: int = CONTEXT
) -> list[list[int]]:
    """Return the first chunks of the texts, in turn, until ``tokens`` tokens are predicted.

    Each chunk begins with a start of text if the tokenizer has one.
    """
    start = base.tokenizer.bos_token_id
    first = [] if start is None else [start]
    made: list[list[int]] = []
    for text in texts:
        # Tokenise only as much text as needed: a token seldom has more than eight characters.
        ids = base.tokenizer(text[: 16 * tokens], add_special_tokens=False)["input_ids"]
        width = context - len(first)
        for at in range(0, len(ids), width):
            left = tokens - sum(len(chunk) - 1 for chunk in made)
            chunk = [*first, *ids[at : at + width]][: left + 1]
            if len(chunk) > 1:
                made.append(chunk)
            if left <= 0 or sum(len(chunk) - 1 for chunk in made) >= tokens:
                return made
    return made


def replay_windows(
    base: PretrainedModel, texts: Sequence[str], skip: int, tokens: int, most: int = 2048
) -> list[tuple[list[int], list[int]]]:
    """Return training windows of ``tokens`` predicted tokens each, after the first ``skip`` tokens of the texts.

    Each window has one more token in front, which predicts the first.

    Raises:
        ConfigError: if the texts are too short for one window.
    """
    made: list[tuple[list[int], list[int]]] = []
    for text in texts:
        ids = base.tokenizer(text, add_special_tokens=False)["input_ids"]
        passed, skip = skip, max(0, skip - len(ids))
        for at in range(passed, len(ids) - tokens, tokens + 1):
            if len(made) == most:
                return made
            made.append((ids[at : at + 1], ids[at + 1 : at + 1 + tokens]))
    if not made:
        raise ConfigError(
            f"task.replay={tokens}: the general text has fewer tokens left after those that measure forgetting; "
            "lower task.replay or task.perplexity_tokens"
        )
    return made


@torch.no_grad()
def perplexity(model: Callable[..., Any], chunks: Sequence[Sequence[int]], device: torch.device) -> float:
    """Return exp of the mean -ln p over all predicted tokens of the chunks, from logits in float32."""
    total = sum(
        float(token_losses(model, pack([([chunk[0]], list(chunk[1:]))], device)).double().sum()) for chunk in chunks
    )
    return math.exp(min(total / sum(len(chunk) - 1 for chunk in chunks), 700.0))
