"""Settings of the ordered groups of a model: number of candidates, ordering weights, start of the boundary."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from experiments.core.blocks import Closed, Components, Count, Delta, NonNegative, Positive, Ratio


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
        own = self.kinds.get(self.group_kinds[group % len(self.group_kinds)]) if self.kinds else None
        value = getattr(own, key, None)
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
