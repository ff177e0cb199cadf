"""Questions with answers: what is asked, what is expected, and what an answer is scored against."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from experiments.data.source import DataInfo

T = TypeVar("T")


@dataclass(frozen=True)
class Example:
    """One question.

    Attributes:
        prompt: what the model reads (:mod:`experiments.language.prompts`).
        target: what it is to write; the end of text follows it.
        reference: what the scorer of the task compares with.
        id: its name in the data set.
    """

    prompt: str
    target: str
    reference: Any
    id: str


@dataclass(frozen=True)
class Corpus:
    """Training and test questions of a task, in a fixed, shuffled order, so that any first part is a fair sample."""

    train: tuple[Example, ...]
    test: tuple[Example, ...]
    info: DataInfo


def shuffled(items: Sequence[T], address: str) -> list[T]:
    """The items in an order that depends on their number and the address alone; equal for all seeds of a run."""
    import torch

    from ngn.streams import generator

    order = torch.randperm(len(items), generator=generator(0, "corpus", address)).tolist()
    return [items[i] for i in order]


def split_by(items: Sequence[T], key: Callable[[T], Hashable], address: str) -> tuple[list[T], list[T]]:
    """Items of 80 % of the keys, and the rest: what belongs together (a table, a paragraph) stays together."""
    keys = shuffled(sorted({key(item) for item in items}, key=str), address)
    first = set(keys[: round(0.8 * len(keys))])
    return [item for item in items if key(item) in first], [item for item in items if key(item) not in first]
