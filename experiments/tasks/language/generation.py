"""Generate greedy answers to many prompts at once, with a key-value cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from experiments.tasks.language.base import PretrainedModel


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Return the text before the first stop string in it."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


@torch.no_grad()
def generate_greedy(
    model: Callable[..., Any],
    base: PretrainedModel,
    prompts: Sequence[Sequence[int]],
    longest: int,
    stops: Sequence[str] = (),
    rows: int = 32,
    answered: Callable[[int], object] = lambda count: None,
) -> list[str]:
    """Return the greedy continuation of each prompt.

    An answer ends before the end of text, before a stop string, or after ``longest`` tokens.

    Args:
        model: has the call of transformers' causal models; in ``eval`` mode.
        rows: number of prompts answered at once. Prompts of similar length go together, padded on the left and masked.
        answered: called after each group with the number of answers so far.
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
    model: Callable[..., Any], base: PretrainedModel, prompts: list[Sequence[int]], longest: int, stops: Sequence[str]
) -> list[str]:
    from transformers import DynamicCache

    parameters = model.parameters() if isinstance(model, torch.nn.Module) else iter(())
    device = next(parameters, next(base.model.parameters())).device
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[base.end[0]] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    cache = DynamicCache(config=base.model.config)
    written: list[list[int]] = [[] for _ in prompts]
    texts = [""] * len(prompts)
    left = list(range(len(prompts)))  # the prompt of each row of the cache
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
            # A leading empty line does not end an answer.
            texts[number] = base.tokenizer.decode(written[number], skip_special_tokens=True).lstrip()
            if cut_at_stop(texts[number], stops) == texts[number]:
                going.append(row)
        if not going:
            break
        if len(going) < len(left):  # drop finished rows
            rows = torch.tensor(going, device=device)
            cache.batch_select_indices(rows)
            chosen, mask, positions = chosen[rows], mask[rows], positions[rows]
            left = [left[row] for row in going]
        ids = chosen[:, None]
        mask = torch.cat([mask, mask.new_ones(len(left), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return [cut_at_stop(text, stops).strip() for text in texts]
