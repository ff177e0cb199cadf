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
from ngn.methods.base import Capacity, Mode, Weighted
from ngn.schedules import GATE_CUTOFF, Shape, shape_at

Computed = tuple[Tensor, Tensor, dict[Any, tuple[Tensor, Tensor, Tensor | None]]]
"""Soft coefficients and their slopes dc/dtau, float64 [K], and both as tensors of some shape and type needed them."""


class BoundaryGate(Weighted):
    """A gate with a boundary t. What a model has of them is computed together (:class:`GateBatch`)."""

    has_boundary = True
    tau: nn.Parameter
    stride: float
    delta: float
    beta: Tensor
    lambda0: Tensor
    alpha_max: Tensor
    kappa: Tensor
    shapes: tuple[Shape, Shape, Shape]
    """Schedules of price, snapping strength and sharpness."""
    now = 0.0
    """Training progress of the schedules."""
    rounded: Tensor
    """1 once t is rounded, else 0, [*R]. In an average of models with their buffers: the fraction with rounded t."""
    settled: Tensor
    """The integer that t is rounded to, times ``rounded``: in any such average, their ratio is that integer."""

    def t(self) -> Tensor:
        """The boundary t, [*R]; from the commit on an integer without gradient."""
        return equations.boundary(self.tau, self.stride, self.settled, self.rounded)

    def size(self) -> Tensor:
        return self.t().detach()

    def scheduled(self, number: int) -> float:
        """The value of the schedule of price (0) or snapping (1); 0 once committed."""
        return 0.0 if self.committed else shape_at(self.shapes[number], self.now)

    @property
    def price(self) -> Tensor:
        """lambda, [*R]."""
        return self.lambda0 * self.scheduled(0)

    @property
    def alpha(self) -> Tensor:
        """Strength of snapping, [*R]."""
        return torch.maximum(self.alpha_max, self.kappa * self.price) * self.scheduled(1)

    def penalty(self) -> Tensor:
        t = self.t()
        return self.price * t + self.alpha * equations.snapping(t)

    def _result(self) -> Computed:
        """The soft coefficients in this pass, without gradients."""
        result = None if self.results is None else self.results.get(self)
        return values_and_slopes([self])[0] if result is None else result

    def batched(self, mode: Mode) -> bool:
        if torch.compiler.is_compiling() or self.results is None or mode != "soft" or self.law is not None:
            return False
        return not torch._C._are_functorch_transforms_active()  # its functions have no rules for them

    def coefficients(self, mode: Mode) -> Tensor:
        if not self.batched(mode):
            return super().coefficients(mode)
        row: Tensor = (_of_tau if _transformed() else _Coefficients.apply)(*self._result()[:2], self.tau)
        return row

    def scaled(self, x: Tensor, dim: int, ranks: Tensor | None) -> Tensor:
        values, slopes, expanded = self._result()
        key = (x.shape[dim], x.dtype, x.device, id(ranks))
        here = expanded.get(key)
        if here is None or here[2] is not ranks:
            values = values.to(x.device, x.dtype)
            slopes = slopes.to(x.device, torch.promote_types(x.dtype, torch.float32))
            if ranks is not None:
                values, slopes = values[ranks], slopes[ranks]
            if (width := x.shape[dim] // len(values)) > 1:
                values, slopes = values.repeat_interleave(width), slopes.repeat_interleave(width)
            here = values, slopes, ranks
            if not torch.is_inference_mode_enabled():
                expanded[key] = here
        if _transformed():
            return x * _of_tau(*here[:2], self.tau).view(-1, *[1] * (x.dim() - 1 - dim % x.dim()))
        result: Tensor = _Scaled.apply(x, *here[:2], dim % x.dim(), self.tau)
        return result


class _Coefficients(torch.autograd.Function):
    """c(tau) of a gate, from its values and slopes, both [K]."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, slopes: Tensor, tau: Tensor) -> Tensor:
        ctx.save_for_backward(slopes)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, (gradient * ctx.saved_tensors[0]).sum()


class _Scaled(torch.autograd.Function):
    """x c(tau) along one dimension, from the values and slopes of c, both [x.shape[dim]]: few operations, one node."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, slopes: Tensor, dim: int, tau: Tensor) -> Tensor:
        values = values.view(-1, *[1] * (x.dim() - 1 - dim))
        ctx.dim, ctx.device = dim, tau.device
        ctx.save_for_backward(x, values, slopes, tau)
        return x * values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, values, slopes, tau = ctx.saved_tensors
        of_x = of_tau = None
        if ctx.needs_input_grad[0]:
            if torch.is_grad_enabled():  # the loss contains this gradient, as that of forces does
                values = _of_tau(values, slopes.view_as(values), tau)
            of_x = gradient * values
        if ctx.needs_input_grad[4]:
            others = [d for d in range(x.dim()) if d != ctx.dim]
            product = gradient * x.conj()
            of_values = product.sum(others, dtype=slopes.dtype) if others else product.to(slopes.dtype)
            of_tau = torch.dot(of_values, slopes).real.to(ctx.device, torch.float64)
        return of_x, None, None, None, of_tau


def _of_tau(values: Tensor, slopes: Tensor, tau: Tensor) -> Tensor:
    """c(tau) by operations of torch alone, with its first derivative."""
    return (values + slopes * (tau - tau.detach()).to(slopes)).to(values.dtype)


def _transformed() -> bool:
    """Whether ``torch.func`` transforms the pass (vmap, jvp, ...), which takes operations of torch alone."""
    return torch._C._functorch.peek_interpreter_stack() is not None


class GateBatch:
    """Compute the gates of a model together, when a forward pass of ``model`` begins.

    On the CPU they are computed again only if a boundary has moved. Outside a pass each gate computes its own, in the
    same way.

    Args:
        model: holds the axes; gets hooks that begin and end a pass. Truncation removes them.
        gates: the capacities of its axes: single models with a preset K.
    """

    of_training = True

    def __init__(self, model: nn.Module, gates: Sequence[BoundaryGate]) -> None:
        self.gates = [*gates]
        self.results: dict[BoundaryGate, Computed] = {}
        """Those of the pass that is running; the gates share it."""
        self._computed: list[Computed] = []
        self._state: list[Any] | None = None
        """What these were computed from."""
        for gate in gates:
            gate.results = self.results
        model.register_forward_pre_hook(self.begin)
        model.register_forward_hook(self.end, always_call=True)

    def __getstate__(self) -> dict[str, Any]:
        """A copy computes anew."""
        return self.__dict__ | {"_state": None, "_weights": [], "_computed": []}

    def begin(self, module: nn.Module, args: Any) -> None:
        """Compute all gates, if any of them has moved; on a GPU in each pass, as reading it would wait for it."""
        if torch.compiler.is_compiling() or all(gate.all_open for gate in self.gates):
            return
        state: list[Any] | None = None
        if all(gate.tau.device.type == "cpu" for gate in self.gates):
            held = [(gate.tau, gate.beta, gate.rounded, gate.settled) for gate in self.gates]
            state = [value.item() for each in held for value in each]
            state += [(id(gate.w), gate.w._version) for gate in self.gates]
        if state is None or state != self._state:
            with torch.inference_mode(False):  # results may be used again with gradients
                self._computed = values_and_slopes(self.gates)
            self._state, self._weights = state, [gate.w for gate in self.gates]  # held, so that ids stay theirs
        self.results.update(zip(self.gates, self._computed, strict=True))

    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        """End a forward pass, also after an error."""
        if not torch.compiler.is_compiling():
            self.results.clear()


def _all(gates: Sequence[BoundaryGate], name: str) -> Tensor:
    """One tensor of each gate, [*R, G]."""
    return torch.stack([getattr(gate, name) for gate in gates], -1)


def _each(like: Tensor, gates: Sequence[BoundaryGate], name: str) -> Tensor:
    """One number of each gate, [G]."""
    return like.new_tensor([getattr(gate, name) for gate in gates])


@torch.no_grad()
def values_and_slopes(gates: Sequence[BoundaryGate]) -> list[Computed]:
    """c_k = w_k g_k(t) of each of G gates on one device, and its slope dc_k/dtau, both float64 [K]."""
    t, beta = boundaries(gates), _all(gates, "beta")
    w = pad_sequence([gate.weights() for gate in gates], batch_first=True)
    beyond = t + _each(t, gates, "delta")
    k = torch.arange(w.shape[1], dtype=t.dtype, device=t.device)
    g = torch.sigmoid(beta[:, None] * (beyond[:, None] - k))
    last = (beyond - math.log(GATE_CUTOFF) / beta).floor()
    g = torch.where(k <= torch.where(last.isfinite(), last, 0.0).clamp(min=0.0)[:, None], g, 0.0)
    values, slope = w * g, torch.where(_all(gates, "rounded") > 0, 0.0, beta * boundary_slopes(gates))
    rows = zip(values.unbind(), (values * (1.0 - g) * slope[:, None]).unbind(), gates, strict=True)
    return [(row[: gate.K], slopes[: gate.K], {}) for row, slopes, gate in rows]


def boundaries(gates: Sequence[BoundaryGate]) -> Tensor:
    """t of each gate, float64 [*R, G], as :meth:`BoundaryGate.t` computes it."""
    tau = _all(gates, "tau")
    return equations.boundary(tau, _each(tau, gates, "stride"), _all(gates, "settled"), _all(gates, "rounded"))


def sizes(capacities: Sequence[Capacity]) -> Tensor:
    """The continuous size of each capacity, float64 [*R, G]."""
    if not capacities:
        return torch.zeros(0)
    if all(capacity.results is not None for capacity in capacities):
        return boundaries(capacities).detach()  # type: ignore[arg-type]
    return torch.stack([capacity.size() for capacity in capacities], -1)


def penalty(capacities: Sequence[Capacity]) -> Tensor:
    """The sum of the penalties, float64 [*R]."""
    if any(capacity.results is None for capacity in capacities):
        return torch.stack([capacity.penalty() for capacity in capacities]).sum(0)
    gates: Sequence[BoundaryGate] = capacities  # type: ignore[assignment]
    t = boundaries(gates)
    price = _all(gates, "lambda0") * t.new_tensor([gate.scheduled(0) for gate in gates])
    snap = t.new_tensor([gate.scheduled(1) for gate in gates])
    alpha = torch.maximum(_all(gates, "alpha_max"), _all(gates, "kappa") * price) * snap
    return (price * t + alpha * equations.snapping(t)).sum(-1)


def boundary_slopes(gates: Sequence[BoundaryGate]) -> Tensor:
    """dt/dtau of each gate, float64 [*R, G]."""
    tau = _all(gates, "tau").detach()
    return _each(tau, gates, "stride") * tau.sigmoid()


@torch.no_grad()
def place(gates: Sequence[BoundaryGate], t: Tensor, beta: Tensor) -> None:
    """Move the boundaries to ``t`` > 0 and set the sharpness until the schedules move again, both [*R, G]."""
    tau = softplus_inverse(t / _each(t, gates, "stride"))
    for gate, value, sharpness in zip(gates, tau.unbind(-1), beta.to(tau).unbind(-1), strict=True):
        gate.tau.copy_(value)
        gate.beta = sharpness


def benefits(gates: Sequence[BoundaryGate], gradients: Sequence[Tensor | None]) -> Tensor:
    """-dL/dt of each gate, from dL/dtau: float64 [*R, G]."""
    each = [torch.zeros_like(gate.tau) if d is None else -d for gate, d in zip(gates, gradients, strict=True)]
    return (torch.stack(each, -1) / boundary_slopes(gates)).detach()
