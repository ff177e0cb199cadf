"""Questions with target answers, and scores of answers, one module per corpus.

``score(prediction, example)`` returns named numbers in [0, 1]. The first name of ``NAMES`` is the task's score in
tables. An answer that cannot be parsed is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from experiments.core.task import DataInfo

T = TypeVar("T")


@dataclass(frozen=True)
class Example:
    """One question.

    Attributes:
        prompt: the text that the model reads (:mod:`experiments.tasks.language.prompts`).
        target: the text that it should write, before the end of text.
        reference: what the scorer compares the answer with.
        id: its name in the data set.
    """

    prompt: str
    target: str
    reference: Any
    id: str


@dataclass(frozen=True)
class Corpus:
    """Training and test questions in a fixed, shuffled order, so that any prefix is a fair sample."""

    train: tuple[Example, ...]
    test: tuple[Example, ...]
    info: DataInfo


def shuffled(items: Sequence[T], address: str) -> list[T]:
    """Shuffle items in an order that depends only on their number and the address, not on the seed of a run."""
    import torch

    from ngn.streams import generator

    order = torch.randperm(len(items), generator=generator(0, "corpus", address)).tolist()
    return [items[i] for i in order]


def split_by(items: Sequence[T], key: Callable[[T], Hashable], address: str) -> tuple[list[T], list[T]]:
    """Split items 80/20 by key, so that items of one key (a table, a paragraph) stay together."""
    keys = shuffled(sorted({key(item) for item in items}, key=str), address)
    first = set(keys[: round(0.8 * len(keys))])
    return [item for item in items if key(item) in first], [item for item in items if key(item) not in first]
