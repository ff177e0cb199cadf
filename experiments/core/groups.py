"""The ordered groups of a model: their settings, and what a method receives of them and of the runs of a stack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from experiments.core.blocks import Closed, Components, Count, Delta, NonNegative, Positive, Ratio

if TYPE_CHECKING:
    from torch import Tensor

    from ngn.methods.base import Scalar
    from ngn.methods.orders import Order

One = TypeVar("One")
"""The configuration of one run, which has a ``seed`` and a ``gate``."""


class GroupSettings(Closed):
    """Values for the groups of one kind, instead of those of the ``gate`` block; null for the block's value."""

    K: Components | None = None
    delta: Delta | None = None
    r: Ratio | None = None
    t0: Positive | None = None
    lambda0: NonNegative | None = None
    """Replaces ``schedule.lambda0``."""


class GroupedSettings(Closed):
    """The settings that every ``gate`` block has.

    Attributes:
        group_kinds: kinds of ordered groups in the model. The order repeats: ``("heads", "slices")`` means heads of the
            first layer, slices of the first layer, heads of the second layer, and so on.
    """

    group_kinds: ClassVar[tuple[str, ...]] = ()

    K: Components | None
    """Candidate components; null allocates them as the boundary advances."""
    K_max: Components = 1024
    """Largest K of growth without a preset K; beyond it, training stops with an error."""
    delta: Delta = 0.5
    r: Ratio = 0.5
    """Ordering weights w_k = r^k."""
    order: Literal["geometric", "power", "annealed", "matryoshka", "nested_dropout"] = "geometric"
    """The law of the ordering weights (``ngn/methods/orders.py``)."""
    order_exponent: Positive = 1.0
    """Exponent a of the weights (k + 1)^-a of ``order: power``."""
    order_ranks: Annotated[list[Count], Field(min_length=1)] | None = None
    """Target ranks of matryoshka (null: 1, 2, 4, ..., K) or of nested dropout (null: drawn by the law r^k)."""
    t0: Positive = 1e-4
    """Initial boundary."""
    kinds: Annotated[dict[str, GroupSettings], Field(min_length=1)] | None = None
    """Kind of group → settings of its groups, such as ``{heads: {K: 8}, slices: {K: 16}}``."""

    component: str
    """Name of the component type."""

    @property
    def groups(self) -> int:
        """Number of ordered groups in the model, each with its own boundary."""
        return 1

    def setting_of(self, group: int, key: str, usual: Any = None) -> Any:
        """Return ``key`` of the :class:`GroupSettings` of this group's kind; ``usual`` if the kind does not set it."""
        settings = self.kinds.get(self.group_kinds[group % len(self.group_kinds)]) if self.kinds else None
        value = getattr(settings, key, None)
        return usual if value is None else value

    def K_of(self, group: int) -> int | None:
        """Return the number of candidates of a group; None if they are allocated as its boundary advances."""
        K: int | None = self.setting_of(group, "K", self.K)
        return K

    def high_start(self, group: int = 0) -> float:
        """Return the start of the boundary in ``from_high``: t = K - 1, with every candidate retained.

        Raises:
            ValueError: without a preset K.
        """
        K, t0 = self.K_of(group), self.setting_of(group, "t0", self.t0)
        if K is None:
            raise ValueError("gate.K=null has no high end to start from; set gate.K")
        return max(float(K - 1), t0)

    @model_validator(mode="after")
    def _groups_fit(self) -> GroupedSettings:
        if self.order_exponent != 1 and self.order != "power":
            raise ValueError(f"gate.order_exponent is for gate.order=power; gate.order={self.order} has no exponent")
        if self.order_ranks is not None and self.order not in ("matryoshka", "nested_dropout"):
            raise ValueError("gate.order_ranks are for gate.order=matryoshka or nested_dropout")
        if self.order == "matryoshka" and self.order_ranks is None and self.K is None:
            raise ValueError("gate.order=matryoshka with gate.K=null needs its gate.order_ranks")
        unknown = [kind for kind in self.kinds or () if kind not in self.group_kinds]
        if unknown:
            legal = f"they are: {', '.join(self.group_kinds)}" if self.group_kinds else "all its groups are alike"
            raise ValueError(f"gate={self.component} has no kind of groups {unknown[0]!r}; {legal}")
        for number in range(max(1, len(self.group_kinds))):
            K, t0 = self.K_of(number), self.setting_of(number, "t0", self.t0)
            limit, name = (self.K_max, "K_max") if K is None else (K, "K")
            if t0 > limit:
                raise ValueError(f"the initial boundary t0 = {t0:g} lies beyond the {name} = {limit} candidates")
        return self


class Replicas(ABC, Generic[One]):
    """Runs trained as one model, equal except for seed and scalars, as methods receive them."""

    @property
    @abstractmethod
    def configs(self) -> list[One]:
        """The configurations, in the order of the replicas."""

    @property
    def first(self) -> One:
        """The configuration of the first run; the others differ only in seed and scalars."""
        return self.configs[0]

    @property
    def replicas(self) -> int | None:
        """Length of the replica axis; None for a single run, whose tensors have no replica axis."""
        return None if len(self.configs) == 1 else len(self.configs)

    @property
    def seeds(self) -> int | list[int]:
        """The seed of a single run, or one per replica."""
        configs: list[Any] = [*self.configs]
        seeds: list[int] = [config.seed.value for config in configs]
        return seeds[0] if self.replicas is None else seeds

    def scalar(self, key: str) -> float | Tensor:
        """Return a scalar setting by its dotted name: a number for a single run, float64 [R] for R replicas."""
        values = [float(reduce(getattr, key.split("."), config)) for config in self.configs]  # type: ignore[arg-type]
        if self.replicas is None:
            return values[0]
        import torch  # imported here: planning sweeps needs no torch

        return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class OrderedGroup:
    """One ordered group of the model in training, as a method receives it.

    Attributes:
        stack: the runs trained together.
        number: index of the group in the model, from 0.
        samples: number of training samples.
        high: whether the boundary starts at its high end, t = K - 1, instead of the configured start.
    """

    stack: Replicas[Any]
    number: int
    samples: int
    high: bool = False

    @property
    def K(self) -> int | None:
        """Number of candidates; None allocates them as the boundary advances."""
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
        if (ratio := gate.setting_of(self.number, "r")) is not None:
            return ratio
        first, last = self.stack.scalar("gate.r"), getattr(gate, "r_last", None)
        return first if last is None else first + (last - first) * self._position()

    @property
    def order(self) -> Order:
        """The law of the ordering weights."""
        from ngn.methods.orders import Order

        gate = self.stack.first.gate
        ranks = None if gate.order_ranks is None else tuple(gate.order_ranks)
        return Order(gate.order, gate.order_exponent, ranks, self.stack.seeds)

    @property
    def lambda0(self) -> Scalar:
        """Price, interpolated geometrically between the first and the last group."""
        if (price := self.stack.first.gate.setting_of(self.number, "lambda0")) is not None:
            return price
        first, last = self.stack.scalar("schedule.lambda0"), self.stack.first.schedule.lambda0_last
        return first if last is None else first * (last / first) ** self._position()

    def count_gate(self) -> dict[str, Any]:
        """Return the arguments of :class:`ngn.methods.ngn.CountGate`, except K."""
        first, scalar, gate = self.stack.first, self.stack.scalar, self.stack.first.gate
        start = gate.setting_of(self.number, "t0", scalar("gate.t0"))
        return {
            "K_max": gate.K_max,
            "lambda0": self.lambda0,
            "alpha_max": scalar("schedule.alpha_max"),
            "kappa": scalar("schedule.kappa"),
            "beta": (scalar("schedule.beta_start"), scalar("schedule.beta_end")),
            "r": self.r,
            "order": self.order,
            "delta": gate.setting_of(self.number, "delta", gate.delta),
            "t0": gate.high_start(self.number) if self.high else start,
            "lambda_shape": first.schedule.lambda_shape,
            "alpha_shape": first.schedule.alpha_shape,
            "beta_shape": first.schedule.beta_shape,
            "commit": first.schedule.commit,
            "replicas": self.stack.replicas,
        }
