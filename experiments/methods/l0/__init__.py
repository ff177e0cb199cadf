"""``method=l0``: independent hard-concrete gates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from experiments.core.blocks import Fraction, NonNegative, Positive
from experiments.core.config import Method, OrderedGroup
from experiments.core.source import Source

if TYPE_CHECKING:
    from experiments.methods.l0.capacity import HardConcrete


class L0(Method):
    """Independent hard-concrete gates, one per component, without ordering weights."""

    source: ClassVar[Source | None] = Source(
        "hard-concrete L0",
        "Louizos, Welling and Kingma, ICLR 2018, arXiv 1712.01312",
        year=2018,
        rank=4,
    )
    # gate.r is used: a fixed phase retrains with w_k = r^k, although the method itself has no weights.
    unused: ClassVar[tuple[str, ...]] = ("schedule", "gate.K_max", "gate.delta", "gate.t0")
    scalars: ClassVar[tuple[str, ...]] = ("price", "temperature", "open_probability")

    name: Literal["l0"]
    price: NonNegative
    """lambda, which multiplies the expected number of open gates; not divided by the number of samples."""
    temperature: Positive
    open_probability: Fraction
    """Sigmoid of the gates' initial parameter."""
    stretch_low: Annotated[float, Field(lt=0)]
    stretch_high: Annotated[float, Field(gt=1)]
    limit: Positive = math.log(100.0)
    """Bound on |a_k|, where a_k are the parameters of the gates."""

    @property
    def has_boundary(self) -> bool:
        return False

    def make(self, group: OrderedGroup) -> HardConcrete:
        from experiments.methods.l0.capacity import HardConcrete

        return HardConcrete(
            group.preset_K,
            group.stack.seeds,
            **{name: group.stack.scalar(f"method.{name}") for name in self.scalars},
            stretch=(self.stretch_low, self.stretch_high),
            limit=self.limit,
            name=group.number,
        )
