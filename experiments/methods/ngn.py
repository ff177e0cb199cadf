"""``method=ngn``: learns the count through the boundary of a sigmoid gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from experiments.core.config import Config, Method
from experiments.core.groups import OrderedGroup, Replicas
from experiments.core.source import Source

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.task import Task
    from ngn.learner import Learner
    from ngn.methods.ngn import CountGate


class NGN(Method):
    """Learn the count through the boundary of a sigmoid gate."""

    source = Source("NGN", "Li, NGN: Learning Neural Network Size as a Differentiable Count, unpublished", rank=1)
    in_kernels = True
    ordered = True
    grows = True
    of_modules = "also"

    name: Literal["ngn"]

    def make(self, group: OrderedGroup) -> CountGate:
        from ngn.methods.ngn import CountGate

        return CountGate(group.K, **group.count_gate())

    def check(self, config: Config) -> None:
        if config.gate.given and config.schedule.commit is None:
            raise ValueError("sizes under a limit are fixed at schedule.commit: give a value, such as 0.5")

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        if not stack.first.gate.given:
            return super().learner(stack, task, model)
        from experiments.methods.pruning.cutting import ModuleRun, learned

        return learned(ModuleRun(stack.first, task))
