"""``method=ngn``: learns the count through the boundary of a sigmoid gate; ``method=budget``: under a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from experiments.core.blocks import ConfigError, NonNegativeInt
from experiments.core.config import Config, Method, Quantity
from experiments.core.groups import OrderedGroup, Replicas
from experiments.core.source import Source
from experiments.core.training import Schedule
from experiments.methods.fixed import Fixed

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.task import Task
    from ngn.budget import Budget
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


_OF_A_GATE = ("K_max", "r", "order", "delta", "t0", "commit", "replicas")
"""What a gate takes from the configuration. The learner sets its boundary and sharpness, and there is no penalty."""


class Budgeted(Method):
    """Learn sizes that follow a limit together and part on evidence (``ngn/budget/allocation.py``).

    The evidence is that of the training data: no run holds data out. Give exactly one of ``count``, ``parameters`` and
    ``macs``.
    """

    source = Source("NGN under a budget", "not from the paper: sizes follow the limit, and part on evidence", rank=2)
    numerics = 7
    in_kernels = True
    kernel_orders = ("geometric", "power", "annealed", "matryoshka", "nested_dropout")
    ordered = True
    grows = True
    unused = (
        *(f"schedule.{key}" for key in Schedule.model_fields if key != "commit"),
        "train.lr_boundary",
        "train.lr_boundary_shape",
        "train.clip_scope",
    )
    scalars = ("count", "parameters")

    name: Literal["budget"]
    count: NonNegativeInt | Annotated[list[NonNegativeInt], Field(min_length=1)] | None = None
    """Limit: the parameters of the fixed model with this count; a list has one count per group."""
    parameters: Quantity | None = None
    """Limit: parameters of the deployed model (of terms beside a frozen one, theirs), or a share of the largest model,
    such as ``60%``."""
    macs: Quantity | None = None
    """Limit: multiply-adds of the forward pass that records count, or a share of the largest model's."""

    @model_validator(mode="after")
    def _one_limit(self) -> Budgeted:
        given = [value for value in (self.count, self.parameters, self.macs) if value is not None]
        if not given:
            raise PydanticCustomError(
                "incomplete", "a budget needs its size: add method.count=N, method.parameters=60% or method.macs=60%"
            )
        if len(given) > 1:
            raise ValueError("a budget is one of method.count, method.parameters and method.macs: give only one")
        if isinstance(given[0], str) and float(given[0][:-1]) > 100:
            raise ValueError(f"a budget of {given[0]} limits nothing: give at most 100% of the largest model")
        return self

    def check(self, config: Config) -> None:
        if self.count is not None:
            Fixed(name="fixed", count=self.count).check(config)
        if config.schedule.commit is None:
            raise ValueError("method=budget fixes the counts at schedule.commit: give a value, such as 0.4")
        if config.gate.K is None:
            raise ValueError("method=budget needs a largest model, and gate.K=null has none: preset gate.K")
        if config.continue_with:
            raise ValueError("method=budget has no price that continue_with could scale: remove continue_with")

    def make(self, group: OrderedGroup) -> CountGate:
        from ngn.methods.ngn import CountGate

        given = group.count_gate()
        return CountGate(group.K, **{name: given[name] for name in _OF_A_GATE})

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        from ngn.budget.allocation import BudgetLearner

        gated = model()
        try:
            return BudgetLearner(gated, self._limited(gated, stack, task))
        except ValueError as out_of_reach:
            raise ConfigError(f"method=budget: {out_of_reach}") from None

    def _limited(self, model: nn.Module, stack: Replicas[Config], task: Task[Any]) -> Budget:
        from ngn.budget import Budget
        from ngn.budget.cost import frozen_base
        from ngn.cut import cut_to
        from ngn.cut.truncation import axes_of

        if self.macs is not None:
            if task.timed_samples is None:
                raise ConfigError("method.macs: this task does not count multiply-adds; use method.parameters")
            return Budget(macs=self.macs, example=(task.timed_batch()[0],))
        axes = axes_of(model)
        base = frozen_base(model, axes)

        def parameters(counts: list[int]) -> int:
            return sum(p.numel() for p in cut_to(model, axes, counts).parameters()) - base

        def limit(own: Budgeted) -> float:
            if isinstance(own.parameters, str):
                return float(own.parameters[:-1]) / 100 * parameters([axis.K for axis in axes])
            if own.count is None:
                return float(own.parameters or 0)
            return parameters(own.count if isinstance(own.count, list) else [own.count])

        limits = [limit(each.method) for each in stack.configs if isinstance(each.method, Budgeted)]
        return Budget(parameters=limits[0] if stack.replicas is None else limits)
