"""Several gates at once: what a forward pass, a penalty or a placement needs of all of them.

With a boundary per map, a step would compute hundreds of numbers one by one. Values and slopes of coefficients are
computed without a graph. Gates that are closed to :data:`~ngn.schedules.GATE_CUTOFF` are exactly 0 in them: products
with smaller ones would be denormal, and slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ngn import gate as equations
from ngn.gate import softplus_inverse
from ngn.methods.base import Capacity
from ngn.schedules import GATE_CUTOFF

Gate = Any
"""A :class:`~ngn.methods.ngn.CountGate`, whose module imports this one."""


class GateBatch:
    """Compute the gates of a model together, when a forward pass of ``model`` begins.

    Outside a pass each gate computes its own, in the same way. The ``gates`` are single models with a preset K, and
    ``model`` holds their axes. It gets hooks that begin and end a pass; truncation removes them.
    """

    of_training = True

    def __init__(self, model: nn.Module, gates: Sequence[Gate]) -> None:
        self.gates = [*gates]
        self.results: dict[Gate, tuple[Tensor, Tensor]] = {}
        """Those of the pass that is running."""
        for gate in gates:
            gate.batch = self
        model.register_forward_pre_hook(self.begin)
        model.register_forward_hook(self.end, always_call=True)

    def of(self, gate: Gate) -> tuple[Tensor, Tensor]:
        """The soft coefficients of a gate, and their slopes dc/dtau, float64 [K], without gradients."""
        return self.results[gate] if gate in self.results else values_and_slopes([gate])[0]

    def begin(self, module: nn.Module, args: Any) -> None:
        """Compute all gates."""
        if not torch.compiler.is_compiling() and not all(gate.all_open for gate in self.gates):
            self.results.update(zip(self.gates, values_and_slopes(self.gates), strict=True))

    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        """End a forward pass, also after an error."""
        if not torch.compiler.is_compiling():
            self.results.clear()


def _all(gates: Sequence[Gate], name: str) -> Tensor:
    """One tensor of each gate, [*R, G]."""
    return torch.stack([getattr(gate, name) for gate in gates], -1)


@torch.no_grad()
def values_and_slopes(gates: Sequence[Gate]) -> list[tuple[Tensor, Tensor]]:
    """c_k = w_k g_k(t) of each of G gates on one device, and its slope dc_k/dtau, both float64 [K]."""
    t, beta = boundaries(gates), _all(gates, "beta")
    w = pad_sequence([gate.weights() for gate in gates], batch_first=True)
    beyond = t + t.new_tensor([gate.delta for gate in gates])
    k = torch.arange(w.shape[1], dtype=t.dtype, device=t.device)
    g = torch.sigmoid(beta[:, None] * (beyond[:, None] - k))
    last = (beyond - math.log(GATE_CUTOFF) / beta).floor()
    g = torch.where(k <= torch.where(last.isfinite(), last, 0.0).clamp(min=0.0)[:, None], g, 0.0)
    values, slope = w * g, torch.where(_all(gates, "rounded") > 0, 0.0, beta * boundary_slopes(gates))
    rows = zip(values.unbind(), (values * (1.0 - g) * slope[:, None]).unbind(), gates, strict=True)
    return [(row[: gate.K], slopes[: gate.K]) for row, slopes, gate in rows]


def boundaries(gates: Sequence[Gate]) -> Tensor:
    """t of each gate, float64 [*R, G], as :meth:`~ngn.methods.ngn.CountGate.t` computes it."""
    tau = _all(gates, "tau")
    strides = tau.new_tensor([gate.stride for gate in gates])
    return equations.boundary(tau, strides, _all(gates, "settled"), _all(gates, "rounded"))


def sizes(capacities: Sequence[Capacity]) -> Tensor:
    """The continuous size of each capacity, float64 [*R, G]."""
    if not capacities:
        return torch.zeros(0)
    if all(capacity.batch is not None for capacity in capacities):
        return boundaries(capacities).detach()
    return torch.stack([capacity.size() for capacity in capacities], -1)


def penalty(capacities: Sequence[Capacity]) -> Tensor:
    """The sum of the penalties, float64 [*R]."""
    if any(capacity.batch is None for capacity in capacities):
        return torch.stack([capacity.penalty() for capacity in capacities]).sum(0)
    return prices(capacities).sum(-1)


def prices(gates: Sequence[Gate]) -> Tensor:
    """The penalty lambda t + alpha sin^2(pi t) of each gate, float64 [*R, G]."""
    t = boundaries(gates)
    price = _all(gates, "lambda0") * t.new_tensor([gate.scheduled(0) for gate in gates])
    snap = t.new_tensor([gate.scheduled(1) for gate in gates])
    alpha = torch.maximum(_all(gates, "alpha_max"), _all(gates, "kappa") * price) * snap
    return price * t + alpha * equations.snapping(t)


def boundary_slopes(gates: Sequence[Gate]) -> Tensor:
    """dt/dtau of each gate, float64 [*R, G]."""
    tau = _all(gates, "tau").detach()
    return tau.new_tensor([gate.stride for gate in gates]) * tau.sigmoid()


@torch.no_grad()
def place(gates: Sequence[Gate], t: Tensor, beta: Tensor) -> None:
    """Move the boundaries to ``t`` > 0 and set the sharpness until the schedules move again, both [*R, G]."""
    tau = softplus_inverse(t / t.new_tensor([gate.stride for gate in gates]))
    for gate, value, sharpness in zip(gates, tau.unbind(-1), beta.to(tau).unbind(-1), strict=True):
        gate.tau.copy_(value)
        gate.beta = sharpness


def benefits(gates: Sequence[Gate], gradients: Sequence[Tensor | None]) -> Tensor:
    """-dL/dt of each gate, from dL/dtau: float64 [*R, G]."""
    each = [torch.zeros_like(gate.tau) if d is None else -d for gate, d in zip(gates, gradients, strict=True)]
    return (torch.stack(each, -1) / boundary_slopes(gates)).detach()
