"""``method=sora``: low-rank terms with sparse gates; as many stay open as another model retained."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from experiments.core.blocks import Positive
from experiments.core.config import PLAIN, OrderedGroup, Replicas
from experiments.core.source import Source
from experiments.methods.rival import Rival

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.task import Task
    from experiments.methods.sora.capacity import SoRA, SoRALearner


class SoRASettings(Rival):
    """Shrink gates by proximal steps, with a threshold that rises linearly until ``target`` gates are left.

    The paper raises the threshold from one training to the next. Here it rises within one training, so that the method
    costs no more than the others. More gates than ``target`` may be left at the end; the record shows how many.
    """

    source: ClassVar[Source | None] = Source("SoRA", "Ding et al., EMNLP 2023, arXiv 2311.11696", year=2023, rank=7)
    unused: ClassVar[tuple[str, ...]] = (*Rival.unused, *(key for key in PLAIN if key != "gate.K"), "gate.r")
    components: ClassVar[tuple[str, ...]] = ("lora",)
    scored: ClassVar[tuple[str, ...]] = ("truncated",)

    name: Literal["sora"]
    shrinkage: Positive
    """Sum of the thresholds xi over training. A gate without a gradient shrinks by this amount."""

    def make(self, group: OrderedGroup) -> SoRA:
        from experiments.methods.sora.capacity import SoRA

        seed = group.stack.first.seed.value
        return SoRA(group.preset_K, seed, shrinkage=self.shrinkage, name=group.number)

    def learner(self, stack: Replicas, task: Task[Any], model: Callable[[], nn.Module]) -> SoRALearner:
        from experiments.methods.sora.capacity import SoRALearner

        return SoRALearner(model(), self.total)
