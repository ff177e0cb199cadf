"""``method=urgent``: NGN's count gate at a multiple of its price."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from experiments.core.blocks import Positive
from experiments.core.config import Method
from experiments.core.groups import OrderedGroup
from experiments.core.source import Source

if TYPE_CHECKING:
    from ngn import CountGate


class Urgent(Method):
    """The count gate with a price of ``factor`` times lambda0."""

    source: ClassVar[Source | None] = Source("NGN at a multiple of its price", "not from a paper")
    scalars: ClassVar[tuple[str, ...]] = ("factor",)  # runs that differ in it can be trained together

    name: Literal["urgent"]
    factor: Positive

    def make(self, group: OrderedGroup) -> CountGate:
        from ngn import CountGate  # imported here: settings need no torch

        price = group.lambda0 * group.stack.scalar("method.factor")
        return CountGate(group.preset_K, **{**group.count_gate(), "lambda0": price})
