"""``method=sora``: low-rank terms under sparse gates, as many as another model retained."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from experiments.blocks import Positive
from experiments.methods.base import OrderedGroup, Source
from experiments.methods.fixed import PLAIN
from experiments.methods.rival import Rival

if TYPE_CHECKING:
    from experiments.methods.sora.capacity import SoRA as Gates
    from experiments.methods.sora.capacity import SoRALearner
    from experiments.runs.stack import Stack
    from experiments.tasks.base import Task


class SoRA(Rival):
    """Gates under proximal steps, whose threshold rises linearly until ``target`` of them are left.

    The paper raises the threshold from one training to the next. Within one training it says the same and costs no more
    than another method's; what is left at the end may exceed the target, and a record says by how much.
    """

    source: ClassVar[Source | None] = Source("SoRA", "Ding et al., EMNLP 2023, arXiv 2311.11696", year=2023, rank=7)
    unused: ClassVar[tuple[str, ...]] = (*Rival.unused, *(key for key in PLAIN if key != "gate.K"), "gate.r")
    components: ClassVar[tuple[str, ...]] = ("lora",)
    scored: ClassVar[tuple[str, ...]] = ("truncated",)

    name: Literal["sora"]
    shrinkage: Positive
    """The sum of the thresholds xi over training, by which a gate without a gradient shrinks."""

    def make(self, group: OrderedGroup) -> Gates:
        from experiments.methods.sora.capacity import SoRA as Gates

        seed = group.stack.first.seed.value
        return Gates(group.preset_K, seed, shrinkage=self.shrinkage, name=group.number)

    def learner(self, stack: Stack, task: Task, high: bool = False) -> SoRALearner:
        from experiments.methods.sora.capacity import SoRALearner

        return SoRALearner(self.model(stack, task, high), self.total)
