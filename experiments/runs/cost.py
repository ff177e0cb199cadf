"""What one forward pass of a trained model costs: multiply-adds and time, before and after truncation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ngn.checks import axes_of
from ngn.contract import Learner

SECONDS = 0.2
"""Wall time spent on timing one model."""
PASSES = (5, 200)
"""Fewest and most timed forward passes, after one that is not timed."""


@torch.no_grad()
def multiply_adds(forward: Callable[[Any], Tensor], x: Any) -> int:
    """Multiply-adds of one forward pass in matrix products and convolutions; nothing else is counted."""
    with FlopCounterMode(display=False) as counter:
        forward(x)
    return counter.get_total_flops() // 2


@torch.no_grad()
def milliseconds(forward: Callable[[Any], Tensor], x: Any, device: torch.device) -> float:
    """Median wall time of a forward pass, ms, with as many threads as torch has."""

    def timed() -> float:
        began = time.perf_counter()
        forward(x)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    timed()
    passes: list[float] = []
    while len(passes) < PASSES[0] or (sum(passes) < SECONDS and len(passes) < PASSES[1]):
        passes.append(timed())
    return statistics.median(passes) * 1e3


def forward_cost(models: dict[str, Callable[[Any], Tensor]], x: Any, samples: int, device: torch.device) -> Any:
    """Cost of each of ``models`` for one batch: {"samples", "multiply_adds": {name: n}, "milliseconds": {name: ms}}.

    Args:
        x: one batch as the models take it, of ``samples`` samples.
    """
    return {
        "samples": samples,
        "multiply_adds": {name: multiply_adds(forward, x) for name, forward in models.items()},
        "milliseconds": {name: float(f"{milliseconds(f, x, device):.4g}") for name, f in models.items()},
    }


@torch.no_grad()
def take_replica(single: Learner, stack: Learner, replica: int) -> nn.Module:
    """Give ``single``, a learner of the same kind without a replica axis, the state of one model of ``stack``.

    Returns:
        ``single``'s model, at the end of its schedules.
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
