"""The ordered groups of a model: how many candidates each has, how they are weighted, where the boundary starts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from experiments.blocks import Closed, Components, Count, Delta, NonNegative, Positive, Ratio


class GroupSettings(Closed):
    """What the groups of one kind have in place of the block's own; null for what the block says."""

    K: Components | None = None
    delta: Delta | None = None
    r: Ratio | None = None
    t0: Positive | None = None
    lambda0: NonNegative | None = None
    """In place of ``schedule.lambda0``."""


class GroupedSettings(Closed):
    """What every ``gate`` block has, whatever its components are.

    Attributes:
        group_kinds: kinds of ordered groups that a model of such components has, in the order in which they come and
            come again (``("heads", "slices")``: heads and slices of the first layer, of the second, ...).
    """

    group_kinds: ClassVar[tuple[str, ...]] = ()

    K: Components | None
    """Candidate components; null allocates them as the boundary advances."""
    K_max: Components = 1024
    """Where growth without a preset K stops with an error."""
    delta: Delta = 0.5
    r: Ratio = 0.5
    """Ordering weights w_k = r^k."""
    order: Literal["geometric", "power", "annealed", "matryoshka", "nested_dropout"] = "geometric"
    """What makes earlier components count for more (``ngn/orders.py``)."""
    order_exponent: Positive = 1.0
    """a of the weights (k + 1)^-a, with ``order: power``."""
    order_ranks: Annotated[list[Count], Field(min_length=1)] | None = None
    """Target ranks of matryoshka (null: 1, 2, 4, ..., K) and of nested dropout (null: a cut of the law r^k)."""
    t0: Positive = 1e-4
    """Initial boundary."""
    kinds: Annotated[dict[str, GroupSettings], Field(min_length=1)] | None = None
    """kind of group → what its groups have of their own, such as ``{heads: {K: 8}, slices: {K: 16}}``."""

    component: str
    """What one candidate is."""

    @property
    def groups(self) -> int:
        """Ordered groups of components in the model, each with a boundary of its own."""
        return 1

    def setting_of(self, group: int, key: str) -> float | None:
        """``key`` of :class:`GroupSettings` as the kind of this group has it; None where it has no own."""
        if not self.kinds:
            return None
        own = self.kinds.get(self.group_kinds[group % len(self.group_kinds)])
        value: float | None = getattr(own, key, None)
        return value

    def K_of(self, group: int) -> int | None:
        """Candidate components of a group; None where they are allocated as its boundary advances."""
        own = self.setting_of(group, "K")
        return self.K if own is None else int(own)

    def high_start(self, group: int = 0) -> float:
        """The boundary that ``from_high`` starts at: t = K - 1, every candidate retained.

        Raises:
            ValueError: without a preset K.
        """
        K, t0 = self.K_of(group), self.setting_of(group, "t0")
        if K is None:
            raise ValueError("without a preset K there is no high end to start from")
        return max(float(K - 1), self.t0 if t0 is None else t0)

    @model_validator(mode="after")
    def _of_the_order(self) -> GroupedSettings:
        if self.order_exponent != 1 and self.order != "power":
            raise ValueError(f"gate.order_exponent is for gate.order=power; gate.order={self.order} has none")
        if self.order_ranks is not None and self.order not in ("matryoshka", "nested_dropout"):
            raise ValueError("gate.order_ranks are for gate.order=matryoshka or nested_dropout")
        if self.order == "matryoshka" and self.order_ranks is None and self.K is None:
            raise ValueError("gate.order=matryoshka with gate.K=null needs its gate.order_ranks")
        return self

    @model_validator(mode="after")
    def _kinds_exist(self) -> GroupedSettings:
        unknown = [kind for kind in self.kinds or () if kind not in self.group_kinds]
        if unknown:
            legal = f"they are: {', '.join(self.group_kinds)}" if self.group_kinds else "all its groups are alike"
            raise ValueError(f"gate={self.component} has no kind of groups {unknown[0]!r}; {legal}")
        return self

    @model_validator(mode="after")
    def _boundary_inside(self) -> GroupedSettings:
        for number in range(max(1, len(self.group_kinds))):
            K, t0 = self.K_of(number), self.setting_of(number, "t0")
            t0 = self.t0 if t0 is None else t0
            limit, name = (self.K_max, "K_max") if K is None else (K, "K")
            if t0 > limit:
                raise ValueError(f"the initial boundary t0 = {t0:g} lies beyond the {name} = {limit} candidates")
        return self
