"""``method=eva``: divides a total by what the inputs of each map vary in, before a training of plain low-rank terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from experiments.core.blocks import Count
from experiments.core.config import OrderedGroup, Replicas
from experiments.core.source import Source
from experiments.methods.rival import Rival
from experiments.methods.sora import SoRASettings

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.task import Task
    from experiments.methods.eva.learner import ExplainedVarianceLearner
    from ngn.methods.fixed import Retained


class EVA(Rival):
    """Give each map the directions in which its inputs vary most, ``target`` over all maps, at most gate.K a map."""

    source: ClassVar[Source | None] = Source("EVA", "Paischer et al., 2024, arXiv 2410.07170", year=2024, rank=9)
    unused: ClassVar[tuple[str, ...]] = SoRASettings.unused
    components: ClassVar[tuple[str, ...]] = ("lora",)
    scored: ClassVar[tuple[str, ...]] = ("truncated",)

    name: Literal["eva"]
    calibration: Count
    """Number of training batches whose activations are read."""

    def make(self, group: OrderedGroup) -> Retained:
        from experiments.methods.eva.learner import Allotted

        return Allotted(group.preset_K)

    def learner(self, stack: Replicas, task: Task[Any], model: Callable[[], nn.Module]) -> ExplainedVarianceLearner:
        from experiments.methods.eva.learner import ExplainedVarianceLearner

        return ExplainedVarianceLearner(model(), self.total, self.calibration, task.loss)
