"""Rivals for ``gate=lora`` that keep a total of terms over all maps: AdaLoRA, EVA, singular values and SoRA."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from experiments.core.blocks import Count, Fraction, NonNegative, Positive
from experiments.core.config import PLAIN, Config
from experiments.core.groups import OrderedGroup, Replicas
from experiments.core.source import Source
from experiments.methods.fixed import Rival

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.task import Task
    from experiments.tasks.language.components import Attached
    from experiments.tasks.language.task import AdaptationTask
    from ngn.learner import Learner
    from ngn.methods.base import Capacity


class OfLowRank(Rival, ABC):
    """Retain ``target`` low-rank terms over all maps, without a boundary or ordering weights."""

    unused: ClassVar[tuple[str, ...]] = (*Rival.unused, *(key for key in PLAIN if key != "gate.K"), "gate.r")
    components = ("lora",)
    scored: ClassVar[tuple[str, ...]] = ("truncated",)


class AdaLoRA(OfLowRank):
    """Start with gate.K triplets in every map, and end with ``target`` triplets over all maps, by peft."""

    source = Source("AdaLoRA", "Zhang et al., ICLR 2023, arXiv 2303.10512", year=2023, rank=8)
    packages = ("peft",)

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

    def make(self, group: OrderedGroup) -> Capacity:
        """Make the capacity of plain terms, the form in which triplets are deployed. The learner does not use it."""
        from ngn.methods.fixed import FixedCount

        return FixedCount(group.preset_K, r=1.0)

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        from experiments.methods.low_rank.adalora import AdaLoRALearner

        first, language = stack.first, cast("AdaptationTask", task)
        targets, steps = language.targets(cast("Attached", first.gate)), first.train.steps_on(task.samples(first.train))
        return AdaLoRALearner(language.fresh(), targets, self, first.gate.K or 0, steps, first.seed.value)


class EVA(OfLowRank):
    """Give each map the directions in which its inputs vary most, ``target`` over all maps, at most gate.K a map."""

    source = Source("EVA", "Paischer et al., 2024, arXiv 2410.07170", year=2024, rank=9)

    name: Literal["eva"]
    calibration: Count
    """Number of training batches whose activations are read."""

    def make(self, group: OrderedGroup) -> Capacity:
        from experiments.methods.low_rank.svd import Allotted

        return Allotted(group.preset_K)

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        from experiments.methods.low_rank.svd import ExplainedVarianceLearner

        return ExplainedVarianceLearner(model(), self.total, self.calibration, task.loss)


class SVD(OfLowRank):
    """Train all gate.K terms of every map, then keep the ``target`` largest singular values of the whole model.

    The soft score is that of the model before truncation.
    """

    source = Source("LoRA cut by singular values", "not from a paper", rank=11)
    scored = ("truncated", "soft")

    name: Literal["svd"]

    def make(self, group: OrderedGroup) -> Capacity:
        from ngn.methods.fixed import Retained

        return Retained(group.preset_K)

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        from experiments.methods.low_rank.svd import SingularValueLearner

        return SingularValueLearner(model(), self.total)


class SoRASettings(OfLowRank):
    """Shrink gates by proximal steps, with a threshold that rises linearly until ``target`` gates are left.

    The paper raises the threshold from one training to the next. Here it rises within one training, so that the method
    costs no more than the others. More gates than ``target`` may be left at the end; the record shows how many.
    """

    source = Source("SoRA", "Ding et al., EMNLP 2023, arXiv 2311.11696", year=2023, rank=7)

    name: Literal["sora"]
    shrinkage: Positive
    """Sum of the thresholds xi over training. A gate without a gradient shrinks by this amount."""

    def make(self, group: OrderedGroup) -> Capacity:
        from experiments.methods.low_rank.sora import SoRA

        seed = group.stack.first.seed.value
        return SoRA(group.preset_K, seed, shrinkage=self.shrinkage, name=group.number)

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        from experiments.methods.low_rank.sora import SoRALearner

        return SoRALearner(model(), self.total)
