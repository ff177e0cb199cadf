"""Losses of training: any function ``loss(model, batch) -> [*R]``, with the mean loss of each model of a stack."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

Loss = Callable[[nn.Module, Any], Tensor]
"""(model, batch) → mean loss of each model, [*R]. A call of the model is its soft forward pass."""
Criterion = Callable[..., Tensor]
"""(output [*R, N, ...], target [N, ...] or [*R, N, ...]) → mean loss of each model, [*R]."""


@dataclass(frozen=True)
class Supervised:
    """The loss ``criterion(model(x), target)`` for batches ``(x, target)``.

    >>> import torch
    >>> Supervised(mean_squared_error)(torch.nn.Identity(), (torch.ones(2, 1), torch.zeros(2, 1)))
    tensor(1.)
    """

    criterion: Criterion

    def __call__(self, model: nn.Module, batch: tuple[Any, Tensor]) -> Tensor:
        x, target = batch
        return self.criterion(model(x), target)


def takes_output_and_target(loss: Callable[..., Tensor]) -> bool:
    """Whether a loss takes output and target, as torch's losses do: their first arguments are ``input, target``."""
    try:
        names = [*inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters]
    except (TypeError, ValueError):  # Python knows no signature of it
        return False
    return names[:2] == ["input", "target"]


def mean_squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of each model over samples and coordinates. output [*R, N, C]; returns [*R]."""
    return (output - target).square().mean((-2, -1))


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of each model, nats. output [*R, N, C], target [N] or [*R, N]; returns [*R]."""
    lead = output.shape[:-2]
    rows, labels = output.float().flatten(0, -2), target.expand(*lead, output.shape[-2]).flatten()
    return F.cross_entropy(rows, labels, reduction="none").view(*lead, -1).mean(-1)
