"""``method=adalora``: allocates a budget of triplets by their sensitivity, with peft's implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from experiments.core.blocks import Count, Fraction, NonNegative
from experiments.core.config import Config, OrderedGroup, Replicas
from experiments.core.source import Source
from experiments.methods.rival import Rival
from experiments.methods.sora import SoRASettings

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.task import Task
    from experiments.methods.adalora.learner import AdaLoRALearner
    from experiments.tasks.language.components import Attached
    from experiments.tasks.language.task import AdaptationTask
    from ngn.methods.fixed import FixedCount


class AdaLoRA(Rival):
    """Start with gate.K triplets in every map, and end with ``target`` triplets over all maps."""

    source: ClassVar[Source | None] = Source("AdaLoRA", "Zhang et al., ICLR 2023, arXiv 2303.10512", year=2023, rank=8)
    unused: ClassVar[tuple[str, ...]] = SoRASettings.unused
    components: ClassVar[tuple[str, ...]] = ("lora",)
    scored: ClassVar[tuple[str, ...]] = ("truncated",)
    packages: ClassVar[tuple[str, ...]] = ("peft",)

    name: Literal["adalora"]
    alpha: Count
    """lora_alpha; the triplets are multiplied by alpha / gate.K."""
    initial: Fraction
    """Fraction of training before the budget begins to fall."""
    final: Fraction
    """Fraction of training after the budget has reached ``target``."""
    every: Count
    """Steps between two allocations."""
    beta1: Fraction
    """Decay of the moving average of sensitivity."""
    beta2: Fraction
    """Decay of the moving average of uncertainty."""
    orthogonality: NonNegative
    """gamma, the weight of the penalty on A A' - I and B' B - I."""

    def check(self, config: Config) -> None:
        super().check(config)
        if self.initial + self.final >= 1:
            raise ValueError("method.initial + method.final must be below 1: the budget falls in the time between them")
        if self.total == (config.gate.K or 0) * config.gate.groups:
            raise ValueError(f"method.target={self.total} keeps all candidates: choose a smaller target")

    def make(self, group: OrderedGroup) -> FixedCount:
        """Make the capacity of plain terms, the form in which triplets are deployed. The learner does not use it."""
        from ngn.methods.fixed import FixedCount

        return FixedCount(group.preset_K, r=1.0)

    def learner(self, stack: Replicas, task: Task[Any], model: Callable[[], nn.Module]) -> AdaLoRALearner:
        from experiments.methods.adalora.learner import AdaLoRALearner, TripletBudget

        first, language = stack.first, cast("AdaptationTask", task)
        gate = cast("Attached", first.gate)
        steps = first.train.steps_on(task.samples(first.train))
        budget = TripletBudget(
            total=self.total, start=first.gate.K or 0, steps=steps, initial=int(self.initial * steps),
            final=int(self.final * steps), every=self.every, beta1=self.beta1, beta2=self.beta2,
        )  # fmt: skip
        return AdaLoRALearner(
            language.fresh(), language.targets(gate), budget, self.alpha, self.orthogonality, first.seed.value
        )
