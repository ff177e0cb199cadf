"""What a method says of itself, and what it is given to make the capacity of one ordered group."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.blocks import Closed
from experiments.plugins import LAST

if TYPE_CHECKING:
    from torch import nn

    from experiments.config.schema import Config
    from experiments.runs.stack import Stack
    from experiments.tasks.base import Task
    from experiments.tasks.settings import Component
    from ngn.contract import Learner
    from ngn.methods.base import Capacity, Scalar
    from ngn.orders import Order


@dataclass(frozen=True)
class Source:
    """The line of a method in the report.

    Attributes:
        name: the method in words.
        paper: where it comes from.
        year: of the paper.
        claims: keys of the statements about it (``experiments/report/claims/``).
        rank: its place among the other methods.
    """

    name: str
    paper: str
    year: int | None = None
    claims: tuple[str, ...] = ()
    rank: int = LAST


class Method(Closed):
    """The ``method`` block of a configuration: the settings of one capacity learner.

    Attributes:
        numerics: version of what the method computes. Bump it whenever a change alters the numbers that it gives.
        unused: keys and blocks of the configuration that it does not use; they are no part of a run's identity.
        scalars: its own settings that may differ between the replicas of a stack; the others are the same in all.
        in_kernels: whether the compiled kernels know it.
        ordered: whether its components can have another order than r^k (``gate.order``).
        grows: whether components may be allocated as the boundary advances (``gate.K=null``).
        scored: the forms of a learned model that it is scored in; one that is the same as another is left out.
        components: the components that it knows, by their names; empty for all.
        packages: modules that have to be installed beside those that every method needs.
        source: its line in the report; None leaves it out.
    """

    numerics: ClassVar[int] = 1
    unused: ClassVar[tuple[str, ...]] = ()
    scalars: ClassVar[tuple[str, ...]] = ()
    in_kernels: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    grows: ClassVar[bool] = False
    scored: ClassVar[tuple[str, ...]] = ("truncated", "soft", "gates_kept")
    components: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[Source | None] = None

    name: str

    @property
    def has_boundary(self) -> bool:
        """Whether a boundary t is learned: it pays the price lambda0, and may start low or high."""
        return True

    def check(self, config: Config) -> None:
        """Refuse settings of other blocks that do not fit the method.

        Raises:
            ValueError: saying what was wrong and what was meant.
        """

    def sizes(self, gate: Component) -> int | list[int] | None:
        """The count of a plain model, a list for several groups; None where a size is learned."""
        return None

    @abstractmethod
    def make(self, group: OrderedGroup) -> Capacity:
        """The capacity of one ordered group of a model."""

    def model(self, stack: Stack, task: Task, high: bool = False) -> nn.Module:
        """The model of ``task`` with one capacity per ordered group.

        Args:
            high: whether boundaries start at their high end.
        """
        first, samples = stack.first, task.samples(stack.first.train)

        def capacity(group: int) -> Capacity:
            return self.make(OrderedGroup(stack, group, samples, high))

        return task.model(first, stack.seeds, capacity)

    def learner(self, stack: Stack, task: Task, high: bool = False) -> Learner:
        """The learner of a stack; a method whose sizes are not learned axis by axis makes its own.

        Args:
            high: whether boundaries start at their high end.
        """
        from ngn.learner import CapacityLearner

        return CapacityLearner(self.model(stack, task, high))


@dataclass(frozen=True)
class OrderedGroup:
    """One ordered group of the model of a stack, as the configuration has it.

    Attributes:
        stack: the runs that are trained together.
        number: which group of the model this is, from 0.
        samples: training samples.
        high: whether a boundary starts at its high end, t = K - 1, in place of the configured start.
    """

    stack: Stack
    number: int
    samples: int
    high: bool = False

    @property
    def K(self) -> int | None:
        """Candidate components; None allocates them as the boundary advances."""
        return self.stack.first.gate.K_of(self.number)

    @property
    def preset_K(self) -> int:
        """K.

        Raises:
            ValueError: if there is none.
        """
        if self.K is None:
            raise ValueError(f"method={self.stack.first.method.name} needs a preset K")
        return self.K

    def _between(self) -> float:
        """Where the group stands between the first (0) and the last (1)."""
        return self.number / max(1, self.stack.first.gate.groups - 1)

    @property
    def r(self) -> Scalar:
        """Ratio of the ordering weights: linear between the first group and the last."""
        gate = self.stack.first.gate
        if (own := gate.setting_of(self.number, "r")) is not None:
            return own
        first, last = self.stack.scalar("gate.r"), getattr(gate, "r_last", None)
        return first if last is None else first + (last - first) * self._between()

    @property
    def order(self) -> Order:
        """What its weights are besides their ratio."""
        from ngn.orders import Order

        gate = self.stack.first.gate
        ranks = None if gate.order_ranks is None else tuple(gate.order_ranks)
        return Order(gate.order, gate.order_exponent, ranks, self.stack.seeds)

    @property
    def lambda0(self) -> Scalar:
        """Price: geometric between the first group and the last."""
        if (own := self.stack.first.gate.setting_of(self.number, "lambda0")) is not None:
            return own
        first, last = self.stack.scalar("schedule.lambda0"), self.stack.first.schedule.lambda0_last
        return first if last is None else first * (last / first) ** self._between()

    @property
    def t0(self) -> Scalar:
        """Where the boundary starts."""
        gate = self.stack.first.gate
        if self.high:
            return gate.high_start(self.number)
        own = gate.setting_of(self.number, "t0")
        return self.stack.scalar("gate.t0") if own is None else own

    def count_gate(self) -> dict[str, Any]:
        """The arguments of :class:`ngn.methods.ngn.CountGate` but K."""
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
