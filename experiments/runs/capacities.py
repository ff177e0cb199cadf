"""From the ``method`` block of a stack to the capacity of each ordered group."""

from __future__ import annotations

from typing import Any

from experiments.config.schema import AWNN, L0, STE, Decay
from experiments.runs.stack import Stack
from ngn.methods.awnn import AdaptiveWidth
from ngn.methods.base import Capacity, CapacityFactory, Scalar
from ngn.methods.decay import DecayGate
from ngn.methods.l0 import HardConcrete
from ngn.methods.ngn import CountGate
from ngn.methods.ste import StraightThrough


def _place(stack: Stack, group: int) -> float:
    """Where a group stands between the first (0) and the last (1)."""
    return group / max(1, stack.first.gate.groups - 1)


def ratio_of(stack: Stack, group: int) -> Scalar:
    """r of the ordering weights of a group: linear between the first and the last."""
    first, last = stack.scalar("gate.r"), getattr(stack.first.gate, "r_last", None)
    return first if last is None else first + (last - first) * _place(stack, group)


def price_of(stack: Stack, group: int) -> Scalar:
    """lambda0 of a group: geometric between the first and the last."""
    first, last = stack.scalar("schedule.lambda0"), stack.first.schedule.lambda0_last
    return first if last is None else first * (last / first) ** _place(stack, group)


def gate_settings(stack: Stack, t0: float | None, group: int) -> dict[str, Any]:
    """The arguments of a count gate, K and replicas apart; ``t0`` replaces the configured start."""
    first = stack.first
    return {
        "K_max": first.gate.K_max,
        "lambda0": price_of(stack, group),
        "alpha_max": stack.scalar("schedule.alpha_max"),
        "beta": (stack.scalar("schedule.beta_start"), stack.scalar("schedule.beta_end")),
        "r": ratio_of(stack, group),
        "delta": first.gate.delta,
        "t0": stack.scalar("gate.t0") if t0 is None else t0,
        "lambda_shape": first.schedule.lambda_shape,
        "alpha_shape": first.schedule.alpha_shape,
        "beta_shape": first.schedule.beta_shape,
    }


def capacity_of(stack: Stack, samples: int, t0: float | None) -> CapacityFactory:
    """The capacity of a stack's method.

    Args:
        samples: training samples.
        t0: where a boundary starts, in place of the configured value; None for that value.
    """
    method = stack.first.method

    def preset(K: int | None) -> int:
        if K is None:
            raise ValueError(f"method={method.name} needs a preset K")
        return K

    def make(K: int | None, replicas: int | None, group: int = 0) -> Capacity:
        if isinstance(method, L0):
            return HardConcrete(
                preset(K),
                stack.seeds,
                price=stack.scalar("method.price"),
                temperature=stack.scalar("method.temperature"),
                open_probability=stack.scalar("method.open_probability"),
                stretch=(method.stretch_low, method.stretch_high),
                name=group,
            )
        if isinstance(method, AWNN):
            return AdaptiveWidth(
                preset(K),
                samples,
                quantile=stack.scalar("method.quantile"),
                width=stack.scalar("method.width"),
                prior_sd=stack.scalar("method.prior_sd"),
                replicas=replicas,
            )
        if isinstance(method, Decay):
            return DecayGate(
                preset(K),
                learn_r=method.learn_r,
                boundary=method.boundary,
                normalise=method.normalise,
                quantile=stack.scalar("method.quantile"),
                eps=method.eps,
                replicas=replicas,
                **gate_settings(stack, t0, group),
            )
        gate = StraightThrough if isinstance(method, STE) else CountGate
        return gate(K, replicas=replicas, **gate_settings(stack, t0, group))

    return make
