"""``method=svd``: plain low-rank terms, cut after training by their singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from experiments.methods.base import OrderedGroup, Source
from experiments.methods.rival import Rival
from experiments.methods.sora import SoRA

if TYPE_CHECKING:
    from experiments.methods.svd.learner import SingularValueLearner
    from experiments.runs.stack import Stack
    from experiments.tasks.base import Task
    from ngn.methods.fixed import Retained


class SVD(Rival):
    """All gate.K terms of every map are trained; afterwards the ``target`` largest singular values of the model stay.

    Its soft form is the model before the cut.
    """

    source: ClassVar[Source | None] = Source("LoRA cut by singular values", "not from a paper", rank=11)
    unused: ClassVar[tuple[str, ...]] = SoRA.unused
    components: ClassVar[tuple[str, ...]] = ("lora",)
    scored: ClassVar[tuple[str, ...]] = ("truncated", "soft")

    name: Literal["svd"]

    def make(self, group: OrderedGroup) -> Retained:
        from ngn.methods.fixed import Retained

        return Retained(group.preset_K)

    def learner(self, stack: Stack, task: Task, high: bool = False) -> SingularValueLearner:
        from experiments.methods.svd.learner import SingularValueLearner

        return SingularValueLearner(self.model(stack, task, high), self.total)
