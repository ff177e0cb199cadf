"""``method=adalora``: budget allocation by the sensitivity of triplets, in the implementation of peft."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from experiments.blocks import Count, Fraction, NonNegative
from experiments.contract.config import Config, OrderedGroup, Replicas
from experiments.contract.source import Source
from experiments.methods.rival import Rival
from experiments.methods.sora import SoRASettings

if TYPE_CHECKING:
    from torch import nn

    from experiments.contract.task import Task
    from experiments.methods.adalora.learner import AdaLoRALearner
    from experiments.tasks.language.components import Attached
    from experiments.tasks.language.task import AdaptationTask
    from ngn.methods.fixed import FixedCount


class AdaLoRA(Rival):
    """gate.K triplets for every map at the start, ``target`` over all maps at the end."""

    source: ClassVar[Source | None] = Source("AdaLoRA", "Zhang et al., ICLR 2023, arXiv 2303.10512", year=2023, rank=8)
    unused: ClassVar[tuple[str, ...]] = SoRASettings.unused
    components: ClassVar[tuple[str, ...]] = ("lora",)
    scored: ClassVar[tuple[str, ...]] = ("truncated",)
    packages: ClassVar[tuple[str, ...]] = ("peft",)

    name: Literal["adalora"]
    alpha: Count
    """lora_alpha; the triplets are multiplied by alpha / gate.K."""
    initial: Fraction
    """Part of training before the budget begins to fall."""
    final: Fraction
    """Part of training after it has reached ``target``."""
    every: Count
    """Steps from one allocation to the next."""
    beta1: Fraction
    beta2: Fraction
    """Of the moving averages of sensitivity and of uncertainty."""
    orthogonality: NonNegative
    """gamma, weight of the penalty on A A' - I and B' B - I."""

    def check(self, config: Config) -> None:
        super().check(config)
        if self.initial + self.final >= 1:
            raise ValueError("method.initial + method.final must be below 1: the budget falls between them")
        if self.total == (config.gate.K or 0) * config.gate.groups:
            raise ValueError(f"method.target={self.total} are all candidates: there is nothing to allocate")

    def make(self, group: OrderedGroup) -> FixedCount:
        """Plain terms, as which triplets are deployed; the learner does without."""
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
