"""``method=awnn``: learns a width through an exponential importance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from experiments.core.blocks import Fraction, Positive
from experiments.core.config import Config, Method, OrderedGroup, Replicas
from experiments.core.source import Source

if TYPE_CHECKING:
    from torch import Tensor, nn

    from experiments.core.task import Task
    from experiments.methods.awnn.capacity import AdaptiveWidth, PriorLearner
    from ngn.methods.base import Capacity


class AWNN(Method):
    """Learn a width through an exponential importance: the live prefix holds a fraction ``quantile`` of its mass."""

    source: ClassVar[Source | None] = Source("AWNN", "Errica et al., arXiv 2501.15889", year=2025, rank=5)
    # gate.r is used: a fixed phase retrains with w_k = r^k, even though the method has its own weights.
    unused: ClassVar[tuple[str, ...]] = ("schedule", "gate.K_max", "gate.delta", "gate.t0")
    scalars: ClassVar[tuple[str, ...]] = ("quantile", "width", "prior_sd")

    name: Literal["awnn"]
    quantile: Fraction
    width: Positive
    """Initial width, in components."""
    prior_sd: Positive
    """Standard deviation of the Gaussian prior on the components' parameters."""

    @property
    def has_boundary(self) -> bool:
        return False

    def check(self, config: Config) -> None:
        for number in range(config.gate.groups):
            K = config.gate.K_of(number)
            if K is not None and self.width > K:
                raise ValueError(f"method.width={self.width:g} exceeds the gate.K={K} candidates: lower it, or raise K")

    def make(self, group: OrderedGroup) -> AdaptiveWidth:
        from experiments.methods.awnn.capacity import AdaptiveWidth

        own = {name: group.stack.scalar(f"method.{name}") for name in self.scalars}
        return AdaptiveWidth(group.preset_K, group.samples, replicas=group.stack.replicas, **own)

    def learner(self, stack: Replicas, task: Task[Any], model: Callable[[], nn.Module]) -> PriorLearner:
        from experiments.methods.awnn.capacity import PriorLearner

        return PriorLearner(model())

    def learned_decay(self, capacity: Capacity) -> Tensor | None:
        return cast("AdaptiveWidth", capacity).rate().neg().exp().detach()
