"""``method=ste``: NGN's boundary and objective with the hard prefix in the forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from experiments.methods.base import Method, OrderedGroup

if TYPE_CHECKING:
    from experiments.methods.ste.capacity import StraightThrough


class STE(Method):
    """NGN's boundary and objective with the hard prefix in the forward pass (straight-through estimator)."""

    ordered: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    name: Literal["ste"]

    def make(self, group: OrderedGroup) -> StraightThrough:
        from experiments.methods.ste.capacity import StraightThrough

        return StraightThrough(group.K, **group.count_gate())
