"""Read the settings of each ordered group from a stack's configurations, and build the gated model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.core.config import Method
from experiments.core.task import Task
from experiments.runs.stack import Stack

if TYPE_CHECKING:
    from torch import nn

    from ngn.methods.base import Capacity, Scalar
    from ngn.orders import Order


@dataclass(frozen=True)
class GroupOfStack:
    """The settings of one ordered group of a stack's model; methods receive it as their ``OrderedGroup``.

    Attributes:
        number: index of the group, from 0.
        samples: training samples.
        high: whether the boundary starts at its high end, t = K - 1, instead of the configured start.
    """

    stack: Stack
    number: int
    samples: int
    high: bool = False

    @property
    def K(self) -> int | None:
        """Number of candidate components; None if they are allocated as the boundary advances."""
        return self.stack.first.gate.K_of(self.number)

    @property
    def preset_K(self) -> int:
        """K, for methods that need it preset.

        Raises:
            ValueError: if K is None.
        """
        if self.K is None:
            raise ValueError(f"method={self.stack.first.method.name} needs a preset K")
        return self.K

    def _position(self) -> float:
        """Position of the group between the first (0) and the last (1)."""
        return self.number / max(1, self.stack.first.gate.groups - 1)

    @property
    def r(self) -> Scalar:
        """Ratio of the ordering weights, interpolated linearly between the first and the last group."""
        gate = self.stack.first.gate
        if (own := gate.setting_of(self.number, "r")) is not None:
            return own
        first, last = self.stack.scalar("gate.r"), getattr(gate, "r_last", None)
        return first if last is None else first + (last - first) * self._position()

    @property
    def order(self) -> Order:
        """The law of the ordering weights."""
        from ngn.orders import Order

        gate = self.stack.first.gate
        ranks = None if gate.order_ranks is None else tuple(gate.order_ranks)
        return Order(gate.order, gate.order_exponent, ranks, self.stack.seeds)

    @property
    def lambda0(self) -> Scalar:
        """Price, interpolated geometrically between the first and the last group."""
        if (own := self.stack.first.gate.setting_of(self.number, "lambda0")) is not None:
            return own
        first, last = self.stack.scalar("schedule.lambda0"), self.stack.first.schedule.lambda0_last
        return first if last is None else first * (last / first) ** self._position()

    @property
    def t0(self) -> Scalar:
        """The initial boundary t0."""
        gate = self.stack.first.gate
        if self.high:
            return gate.high_start(self.number)
        own = gate.setting_of(self.number, "t0")
        return self.stack.scalar("gate.t0") if own is None else own

    def count_gate(self) -> dict[str, Any]:
        """Return the arguments of :class:`ngn.methods.ngn.CountGate`, except K."""
        first, scalar = self.stack.first, self.stack.scalar
        delta = first.gate.setting_of(self.number, "delta")
        return {
            "K_max": first.gate.K_max,
            "lambda0": self.lambda0,
            "alpha_max": scalar("schedule.alpha_max"),
            "kappa": scalar("schedule.kappa"),
            "beta": (scalar("schedule.beta_start"), scalar("schedule.beta_end")),
            "r": self.r,
            "order": self.order,
            "delta": first.gate.delta if delta is None else delta,
            "t0": self.t0,
            "lambda_shape": first.schedule.lambda_shape,
            "alpha_shape": first.schedule.alpha_shape,
            "beta_shape": first.schedule.beta_shape,
            "commit": first.schedule.commit,
            "replicas": self.stack.replicas,
        }


def gated_model(method: Method, stack: Stack, task: Task[Any], high: bool = False) -> nn.Module:
    """Build the model of ``task`` with one capacity of ``method`` for each ordered group.

    Args:
        high: whether boundaries start at their high end.
    """
    first, samples = stack.first, task.samples(stack.first.train)

    def capacity(group: int) -> Capacity:
        return method.make(GroupOfStack(stack, group, samples, high))

    return task.model(first.gate, stack.seeds, capacity)
