"""Other gates than NGN's, each for one ordered group: straight-through, hard concrete, AWNN, and a learned decay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import Field, StrictBool, model_validator

from experiments.core.blocks import Fraction, NonNegative, Positive
from experiments.core.config import Config, Method
from experiments.core.groups import OrderedGroup, Replicas
from experiments.core.source import Source

if TYPE_CHECKING:
    from torch import Tensor, nn

    from experiments.core.task import Task
    from experiments.methods.gates.awnn import AdaptiveWidth
    from experiments.methods.gates.decay import DecayGate
    from ngn.learner import Learner
    from ngn.methods.base import Capacity


class STE(Method):
    """NGN's boundary and objective, with the hard prefix in the forward pass (straight-through estimator)."""

    source = Source("straight-through count", "Bengio, Léonard and Courville, arXiv 1308.3432", year=2013, rank=3)
    ordered = True
    grows = True

    name: Literal["ste"]

    def make(self, group: OrderedGroup) -> Capacity:
        from experiments.methods.gates.ste import StraightThrough

        return StraightThrough(group.K, **group.count_gate())


class L0(Method):
    """Independent hard-concrete gates, one per component, without ordering weights."""

    source = Source("hard-concrete L0", "Louizos, Welling and Kingma, ICLR 2018, arXiv 1712.01312", year=2018, rank=4)
    # gate.r is used: a fixed phase retrains with w_k = r^k, although the method itself has no weights.
    unused = ("schedule", "gate.K_max", "gate.delta", "gate.t0")
    has_boundary = False
    scalars = ("price", "temperature", "open_probability")

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

    def make(self, group: OrderedGroup) -> Capacity:
        from experiments.methods.gates.l0 import HardConcrete

        return HardConcrete(
            group.preset_K,
            group.stack.seeds,
            **{name: group.stack.scalar(f"method.{name}") for name in self.scalars},
            stretch=(self.stretch_low, self.stretch_high),
            limit=self.limit,
            name=group.number,
        )


class AWNN(Method):
    """Learn a width through an exponential importance: the live prefix holds a fraction ``quantile`` of its mass."""

    source = Source("AWNN", "Errica et al., arXiv 2501.15889", year=2025, rank=5)
    # gate.r is used: a fixed phase retrains with w_k = r^k, even though the method has its own weights.
    unused = ("schedule", "gate.K_max", "gate.delta", "gate.t0")
    has_boundary = False
    scalars = ("quantile", "width", "prior_sd")

    name: Literal["awnn"]
    quantile: Fraction
    width: Positive
    """Initial width, in components."""
    prior_sd: Positive
    """Standard deviation of the Gaussian prior on the components' parameters."""

    def check(self, config: Config) -> None:
        for number in range(config.gate.groups):
            K = config.gate.K_of(number)
            if K is not None and self.width > K and config.profile != "smoke":  # which has few components
                raise ValueError(f"method.width={self.width:g} exceeds the gate.K={K} candidates: lower it, or raise K")

    def make(self, group: OrderedGroup) -> Capacity:
        from experiments.methods.gates.awnn import AdaptiveWidth

        settings = {name: group.stack.scalar(f"method.{name}") for name in self.scalars}
        return AdaptiveWidth(group.preset_K, group.samples, replicas=group.stack.replicas, **settings)

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        from experiments.methods.gates.awnn import PriorLearner

        return PriorLearner(model())

    def learned_decay(self, capacity: Capacity) -> Tensor | None:
        return cast("AdaptiveWidth", capacity).rate().neg().exp().detach()


class Decay(Method):
    """The count gate with a learned decay r, optionally without its boundary or over normalised f_k."""

    source = Source("learned decay and normalisation", "Li (as NGN), after AWNN", rank=6)
    unused = ("gate.K_max",)
    scalars = ("quantile",)

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
    def has_boundary(self) -> bool:  # type: ignore[override]
        """Whether it learns one."""
        return self.boundary

    def check(self, config: Config) -> None:
        if self.learn_r and config.gate.r >= 1:
            raise ValueError("method.learn_r=true starts at gate.r, so gate.r must be below 1")
        if self.normalise and config.train.batch is not None:
            raise ValueError(
                "method.normalise=true divides by the root mean square over all samples: it needs full batches. "
                "Use train.batch=null, and train.steps instead of epochs"
            )

    def make(self, group: OrderedGroup) -> Capacity:
        from experiments.methods.gates.decay import DecayGate

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
