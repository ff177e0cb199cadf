"""Greedy answers to many prompts at once, with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from experiments.language.base import Base


def cut(text: str, stops: Sequence[str]) -> str:
    """The text up to the first of the stop strings that occurs in it."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


@torch.no_grad()
def greedy(
    model: Callable[..., Any],
    base: Base,
    prompts: Sequence[Sequence[int]],
    longest: int,
    stops: Sequence[str] = (),
    rows: int = 32,
    answered: Callable[[int], object] = lambda count: None,
) -> list[str]:
    """The most likely continuation of each prompt, token by token, up to the end of text, a stop string, or ``longest``
    tokens; without the end, and cut at the stop string.

    Args:
        model: called as transformers' causal models are; in ``eval`` mode.
        rows: prompts answered at once; those of like length together, padded on the left and masked.
        answered: told after each of them how many have their answer.
    """
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    answers = [""] * len(prompts)
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        for number, text in zip(
            chosen, _answer(model, base, [prompts[i] for i in chosen], longest, stops), strict=True
        ):
            answers[number] = text
        answered(start + len(chosen))
    return answers


def _answer(
    model: Callable[..., Any], base: Base, prompts: list[Sequence[int]], longest: int, stops: Sequence[str]
) -> list[str]:
    from transformers import DynamicCache

    device = next(base.model.parameters()).device
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[base.end[0]] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    cache = DynamicCache(config=base.model.config)
    written: list[list[int]] = [[] for _ in prompts]
    texts = [""] * len(prompts)
    left = list(range(len(prompts)))  # the prompt that each row of the cache answers
    for _ in range(longest):
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        chosen = output.logits[:, -1].argmax(-1)
        going = []
        for row, (number, token) in enumerate(zip(left, chosen.tolist(), strict=True)):
            if token in base.end:
                continue
            written[number].append(token)
            # An answer that begins with an empty line has not ended there.
            texts[number] = base.tokenizer.decode(written[number], skip_special_tokens=True).lstrip()
            if cut(texts[number], stops) == texts[number]:
                going.append(row)
        if not going:
            break
        if len(going) < len(left):  # rows that are done cost no more
            rows = torch.tensor(going, device=device)
            cache.batch_select_indices(rows)
            chosen, mask, positions = chosen[rows], mask[rows], positions[rows]
            left = [left[row] for row in going]
        ids = chosen[:, None]
        mask = torch.cat([mask, mask.new_ones(len(left), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return [cut(text, stops).strip() for text in texts]
