"""From the ``method`` block of a pack to the capacity of each ordered group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.config.schema import AWNN, L0, STE, Config, Decay
from experiments.runs.packs import scalar
from ngn.methods.awnn import AdaptiveWidth
from ngn.methods.base import Capacity, CapacityFactory, Scalar
from ngn.methods.decay import DecayGate
from ngn.methods.l0 import HardConcrete
from ngn.methods.ngn import CountGate
from ngn.methods.ste import StraightThrough


def _place(pack: Sequence[Config], group: int) -> float:
    """Where a group stands between the first (0) and the last (1)."""
    return group / max(1, pack[0].gate.groups - 1)


def ratio_of(pack: Sequence[Config], group: int) -> Scalar:
    """r of the ordering weights of a group: linear between the first and the last."""
    first, last = scalar(pack, "gate.r"), getattr(pack[0].gate, "r_last", None)
    return first if last is None else first + (last - first) * _place(pack, group)


def price_of(pack: Sequence[Config], group: int) -> Scalar:
    """lambda0 of a group: geometric between the first and the last."""
    first, last = scalar(pack, "schedule.lambda0"), pack[0].schedule.lambda0_last
    return first if last is None else first * (last / first) ** _place(pack, group)


def gate_settings(pack: Sequence[Config], t0: float | None, group: int) -> dict[str, Any]:
    """The arguments of a count gate, K and replicas apart; ``t0`` replaces the configured start."""
    first = pack[0]
    return {
        "K_max": first.gate.K_max,
        "lambda0": price_of(pack, group),
        "alpha_max": scalar(pack, "schedule.alpha_max"),
        "beta": (scalar(pack, "schedule.beta_start"), scalar(pack, "schedule.beta_end")),
        "r": ratio_of(pack, group),
        "delta": first.gate.delta,
        "t0": scalar(pack, "gate.t0") if t0 is None else t0,
        "lambda_shape": first.schedule.lambda_shape,
        "alpha_shape": first.schedule.alpha_shape,
        "beta_shape": first.schedule.beta_shape,
    }


def capacity_of(pack: Sequence[Config], seeds: int | list[int], samples: int, t0: float | None) -> CapacityFactory:
    """The capacity of a pack's method.

    Args:
        pack: runs that differ in seed and scalars only.
        seeds: theirs; one for a single run.
        samples: training samples.
        t0: where a boundary starts, in place of the configured value; None for that value.
    """
    method = pack[0].method

    def preset(K: int | None) -> int:
        if K is None:
            raise ValueError(f"method={method.name} needs a preset K")
        return K

    def make(K: int | None, replicas: int | None, group: int = 0) -> Capacity:
        if isinstance(method, L0):
            return HardConcrete(
                preset(K),
                seeds,
                price=scalar(pack, "method.price"),
                temperature=scalar(pack, "method.temperature"),
                open_probability=scalar(pack, "method.open_probability"),
                stretch=(method.stretch_low, method.stretch_high),
                name=group,
            )
        if isinstance(method, AWNN):
            return AdaptiveWidth(
                preset(K),
                samples,
                quantile=scalar(pack, "method.quantile"),
                width=scalar(pack, "method.width"),
                prior_sd=scalar(pack, "method.prior_sd"),
                replicas=replicas,
            )
        if isinstance(method, Decay):
            return DecayGate(
                preset(K),
                learn_r=method.learn_r,
                boundary=method.boundary,
                normalise=method.normalise,
                quantile=scalar(pack, "method.quantile"),
                eps=method.eps,
                replicas=replicas,
                **gate_settings(pack, t0, group),
            )
        gate = StraightThrough if isinstance(method, STE) else CountGate
        return gate(K, replicas=replicas, **gate_settings(pack, t0, group))

    return make
