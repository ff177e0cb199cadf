"""What a model has forgotten: its perplexity on general text, before and after it was adapted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from experiments.blocks import ConfigError
from experiments.data.texts import Texts
from experiments.language.base import Base
from experiments.language.packing import nats, pack

CONTEXT = 1024
"""Tokens of a chunk, its start of text included; chunks do not overlap."""


def documents(texts: Texts) -> list[str]:
    """Running text as it stands: documents of the Pile, or WikiText's test part as one."""
    (part,) = texts.parts.values()
    return [part] if isinstance(part, str) else [each["text"] for each in part]


def chunks(base: Base, texts: Sequence[str], tokens: int, context: int = CONTEXT) -> list[list[int]]:
    """The first chunks of each text in turn, until ``tokens`` tokens are predicted; a start of text before each where
    the tokenizer has one."""
    start = base.tokenizer.bos_token_id
    first = [] if start is None else [start]
    made: list[list[int]] = []
    for text in texts:
        # Much more text than is asked for need not be tokenised; a token is seldom more than eight characters.
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


def windows(
    base: Base, texts: Sequence[str], skip: int, tokens: int, most: int = 2048
) -> list[tuple[list[int], list[int]]]:
    """Windows of ``tokens`` predicted tokens each, for training: of each text in turn, what lies behind its first
    ``skip`` tokens in all; the first token of each is there to predict from.

    Raises:
        ConfigError: if the texts are too short for one.
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
            f"task.replay={tokens}: the general text has fewer tokens than that after those used to measure forgetting"
        )
    return made


@torch.no_grad()
def perplexity(model: Callable[..., Any], chunks: Sequence[Sequence[int]], device: torch.device) -> float:
    """exp of the mean -ln p over all predicted tokens of the chunks, from logits in float32."""
    total = sum(float(nats(model, pack([([chunk[0]], list(chunk[1:]))], device)).double().sum()) for chunk in chunks)
    return math.exp(min(total / sum(len(chunk) - 1 for chunk in chunks), 700.0))
