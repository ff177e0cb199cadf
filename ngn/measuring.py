"""Measure calls of models: multiply-adds and milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, thread_time
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ngn.checks import uncompiled

SECONDS = 0.2
"""Wall time for timing one model, s."""
PASSES = (9, 210)
"""Fewest and most timed forward passes of one model."""
AGREED, MORE = 0.02, 4
"""Relative difference of two halves of the passes that is small enough; how often passes are added to reach it."""


def _recurrent(x: Tensor, weights: Sequence[Tensor], *rest: Any, out_val: Any = None) -> int:
    """The operations of a fused recurrent layer: every weight matrix meets every sample of every step once."""
    return 2 * (x.numel() // max(1, x.shape[-1])) * sum(w.numel() for w in weights if w.dim() > 1)


def _dot(x: Tensor, y: Tensor, *rest: Any, out_val: Any = None) -> int:
    """The operations of a vector, or of a matrix, times a vector."""
    return 2 * x.numel()


ATEN = torch.ops.aten
FORMULAS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    **dict.fromkeys((ATEN.mv, ATEN.dot, ATEN.vdot), _dot),
    ATEN.addmv: lambda bias, x, y, **rest: _dot(x, y),
    ATEN.addbmm: lambda bias, x, y, **rest: 2 * x.numel() * y.shape[-1],
    ATEN._grouped_mm: lambda x, y, *rest, **more: 2 * x.numel() * y.shape[-1] // (len(x) if x.dim() > y.dim() else 1),
    torch.ops.higher_order.flex_attention: lambda q, k, v, *rest, **more: (
        2 * k.shape[-2] * (q.numel() + q.shape[:-1].numel() * v.shape[-1])
    ),
    ATEN._int_mm: lambda x, y, **rest: 2 * x.numel() * y.shape[-1],
    ATEN._trilinear: lambda x, w, y, *rest, out_val: 2 * out_val.numel() * w.shape[-2] * w.shape[-1],  # nn.Bilinear
    ATEN.mkldnn_rnn_layer: lambda x, w, v, *rest, **out: _recurrent(x, (w, v)),
    **dict.fromkeys((ATEN._cudnn_rnn, ATEN.miopen_rnn), _recurrent),
}
"""Floating-point operations by operation: torch's formulas, and those that it lacks."""


class _Counter(TorchDispatchMode):
    """Sum the operations of a call. (The hooks of torch's own fail where a view of a parameter enters a module.)"""

    supports_higher_order_operators = True
    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.higher_order.cond:
            holds, yes, no, operands = args
            with self:
                return (yes if holds else no)(*operands)
        kwargs, formula = kwargs or {}, FORMULAS.get(getattr(func, "overloadpacket", func))
        if isinstance(func, HigherOrderOperator) and formula is None:
            return NotImplemented
        if formula is None and any(t is not Tensor for t in types):
            return NotImplemented
        if formula is None:
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        self.total += 0 if formula is None else formula(*args, **kwargs, out_val=out)
        return out


@torch.no_grad()
def multiply_adds(forward: Callable[[], Any]) -> int:
    """Count the multiply-adds of one call in matrix products (attention included) and convolutions; nothing else."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it computes whole layers in one operation, which has no formula
    try:
        with uncompiled(), sdpa_kernel(SDPBackend.MATH), _Counter() as counter:
            forward()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return counter.total // 2


@torch.no_grad()
def in_turns(
    forwards: Sequence[Callable[[], Any]], device: torch.device, clock: Callable[[], float] = perf_counter
) -> list[list[float]]:
    """Measure the times of calls, ms, with torch's number of threads: for each of the N calls, its T passes.

    The calls take turns, so that other load on the machine meets all of them alike. ``clock`` gives seconds.
    """

    for forward in forwards:
        forward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    times: list[list[float]] = [[] for _ in forwards]
    end, rounds = perf_counter() + SECONDS * len(forwards), 0
    while rounds < PASSES[0] or (perf_counter() < end and rounds < PASSES[1]):
        for taken, forward in zip(times, forwards, strict=True):
            began = clock()
            forward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            taken.append((clock() - began) * 1e3)
        rounds += 1
    return times


def shortest(forwards: Sequence[Callable[[], Any]], device: torch.device) -> tuple[list[float], float]:
    """The shortest time of each call, ms, and how far times relative to the first call's differ between two halves.

    On a CPU it is the processor time of the calling thread: on a busy machine no pass of more than some milliseconds is
    left in peace, and wall times of long calls grow by a larger factor than those of short ones. Other load only adds
    time, so the shortest of many passes is the steadiest measure. While the halves differ by more than AGREED, passes
    are added, up to MORE times as many, and no longer than that takes at leisure.
    """
    end = perf_counter() + MORE * SECONDS * len(forwards)
    clock = thread_time if device.type == "cpu" else perf_counter
    times: list[list[float]] = [[] for _ in forwards]
    for _ in range(MORE):
        times = [[*taken, *more] for taken, more in zip(times, in_turns(forwards, device, clock), strict=True)]
        half = len(times[0]) // 2
        early, late = [min(taken[:half]) for taken in times], [min(taken[half:]) for taken in times]
        apart = [(a / early[0]) / (b / late[0]) for a, b in zip(early, late, strict=True)]
        if (spread := max(apart) / min(apart) - 1) <= AGREED or perf_counter() > end:
            break
    return [min(taken) for taken in times], spread
