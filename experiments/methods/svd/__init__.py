"""``method=svd``: trains plain low-rank terms, then truncates them by their singular values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from experiments.core.config import OrderedGroup, Replicas
from experiments.core.source import Source
from experiments.methods.rival import Rival
from experiments.methods.sora import SoRASettings

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.task import Task
    from experiments.methods.svd.learner import SingularValueLearner
    from ngn.methods.fixed import Retained


class SVD(Rival):
    """Train all gate.K terms of every map, then keep the ``target`` largest singular values of the whole model.

    The soft score is that of the model before truncation.
    """

    source: ClassVar[Source | None] = Source("LoRA cut by singular values", "not from a paper", rank=11)
    unused: ClassVar[tuple[str, ...]] = SoRASettings.unused
    components: ClassVar[tuple[str, ...]] = ("lora",)
    scored: ClassVar[tuple[str, ...]] = ("truncated", "soft")

    name: Literal["svd"]

    def make(self, group: OrderedGroup) -> Retained:
        from ngn.methods.fixed import Retained

        return Retained(group.preset_K)

    def learner(self, stack: Replicas, task: Task[Any], model: Callable[[], nn.Module]) -> SingularValueLearner:
        from experiments.methods.svd.learner import SingularValueLearner

        return SingularValueLearner(model(), self.total)
