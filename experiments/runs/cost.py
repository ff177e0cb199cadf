"""Measure one forward pass of a trained model: multiply-adds and time, before and after truncation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.store.result import CostBlock
from ngn.checks import axes_of
from ngn.learner import Learner
from ngn.measuring import in_turns, multiply_adds


def forward_cost(models: dict[str, Callable[[Any], Tensor]], x: Any, samples: int, device: torch.device) -> CostBlock:
    """Measure the forward pass of each model on one batch.

    Args:
        models: name → forward function.
        x: one batch of ``samples`` samples, as the models take it.

    Returns:
        {"samples", "multiply_adds": {name: n}, "milliseconds": {name: ms}}.
    """
    times = in_turns([partial(forward, x) for forward in models.values()], device)
    return {
        "samples": samples,
        "multiply_adds": {name: multiply_adds(partial(forward, x)) for name, forward in models.items()},
        "milliseconds": {
            name: float(f"{statistics.median(passes):.4g}") for name, passes in zip(models, times, strict=True)
        },
    }


@torch.no_grad()
def ratio_of(small: nn.Module, whole: nn.Module, x: Any, device: torch.device) -> float:
    """Return the time of a forward pass of ``small`` over that of ``whole``: the median ratio of passes in turns."""
    times = in_turns([partial(model, x) for model in (small, whole)], device)
    return float(f"{statistics.median(one / other for one, other in zip(*times, strict=True)):.4g}")


@torch.no_grad()
def take_replica(single: Learner, stack: Learner, replica: int) -> nn.Module:
    """Copy one replica of ``stack`` into ``single``, a learner of the same kind without a replica axis.

    Returns:
        the model of ``single``, at the end of its schedules.
    """
    for axis, other in zip(axes_of(single), axes_of(stack), strict=True):
        if axis.K < other.K:
            axis.grow(other.K)
    mine: Sequence[Tensor] = list(single.model.parameters())
    for p, stacked in zip(mine, stack.model.parameters(), strict=True):
        p.copy_(stacked[replica])
    single.set_progress(1.0)
    single.before_step(None)
    return single.model
