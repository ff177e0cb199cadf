"""``method=ste``: NGN's boundary and objective, with the hard prefix in the forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from experiments.core.config import Method, OrderedGroup
from experiments.core.source import Source

if TYPE_CHECKING:
    from experiments.methods.ste.capacity import StraightThrough


class STE(Method):
    """NGN's boundary and objective, with the hard prefix in the forward pass (straight-through estimator)."""

    source: ClassVar[Source | None] = Source(
        "straight-through count", "Bengio, Léonard and Courville, arXiv 1308.3432", year=2013, rank=3
    )
    ordered: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    name: Literal["ste"]

    def make(self, group: OrderedGroup) -> StraightThrough:
        from experiments.methods.ste.capacity import StraightThrough

        return StraightThrough(group.K, **group.count_gate())
