"""``method=decay``: the count gate with a learned decay of the ordering weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, cast

from pydantic import StrictBool, model_validator

from experiments.core.blocks import Fraction, Positive
from experiments.core.config import Config, Method, OrderedGroup
from experiments.core.source import Source

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.methods.decay.capacity import DecayGate
    from ngn.methods.base import Capacity


class Decay(Method):
    """The count gate with a learned decay r, optionally without its boundary or over normalised f_k."""

    source: ClassVar[Source | None] = Source("learned decay and normalisation", "Li (as NGN), after AWNN", rank=6)
    unused: ClassVar[tuple[str, ...]] = ("gate.K_max",)
    scalars: ClassVar[tuple[str, ...]] = ("quantile",)

    name: Literal["decay"]
    learn_r: StrictBool
    boundary: StrictBool
    normalise: StrictBool
    """Whether to divide every f_k by its root mean square over the batch."""
    quantile: Fraction
    """Without a boundary: the fraction of the total weight that the deployed prefix holds."""
    eps: Positive
    """Added to the mean square before taking its root."""

    @model_validator(mode="after")
    def _something_to_learn(self) -> Decay:
        if not (self.learn_r or self.boundary):
            raise ValueError("learn_r=false with boundary=false learns nothing: use method=fixed")
        if self.boundary and not self.learn_r and not self.normalise:
            raise ValueError("learn_r=false with boundary=true and normalise=false is method=ngn: use that")
        return self

    @property
    def has_boundary(self) -> bool:
        return self.boundary

    def check(self, config: Config) -> None:
        if self.learn_r and config.gate.r >= 1:
            raise ValueError("method.learn_r=true starts at gate.r, so gate.r must be below 1")
        if self.normalise and config.train.batch is not None:
            raise ValueError(
                "method.normalise=true divides by the root mean square over all samples: it needs full batches. "
                "Use train.batch=null, and train.steps instead of epochs"
            )

    def make(self, group: OrderedGroup) -> DecayGate:
        from experiments.methods.decay.capacity import DecayGate

        return DecayGate(
            group.preset_K,
            learn_r=self.learn_r,
            boundary=self.boundary,
            normalise=self.normalise,
            quantile=group.stack.scalar("method.quantile"),
            eps=self.eps,
            **group.count_gate(),
        )

    def learned_decay(self, capacity: Capacity) -> Tensor | None:
        return cast("DecayGate", capacity).decay().detach() if self.learn_r else None
