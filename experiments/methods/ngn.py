"""``method=ngn``: learns the count through the boundary of a sigmoid gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from experiments.contract.config import Method, OrderedGroup
from experiments.contract.source import Source

if TYPE_CHECKING:
    from ngn.methods.ngn import CountGate


class NGN(Method):
    """Learn the count through the boundary of a sigmoid gate."""

    source: ClassVar[Source | None] = Source(
        "NGN",
        "Li, NGN: Learning Neural Network Size as a Differentiable Count, unpublished",
        rank=1,
    )
    in_kernels: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    name: Literal["ngn"]

    def make(self, group: OrderedGroup) -> CountGate:
        from ngn.methods.ngn import CountGate

        return CountGate(group.K, **group.count_gate())
