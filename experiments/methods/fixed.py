"""``method=fixed``: a plain model of a given size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from experiments.core.blocks import NonNegativeInt
from experiments.core.config import PLAIN, Component, Config, Method
from experiments.core.groups import OrderedGroup, Replicas
from experiments.core.source import Source

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.task import Task
    from ngn.learner import Learner
    from ngn.methods.fixed import FixedCount


class Plain(Method):
    """A plain model of given sizes, without a gate or a capacity penalty."""

    has_boundary = False
    unused: ClassVar[tuple[str, ...]] = PLAIN

    def check(self, config: Config) -> None:
        gate, sizes = config.gate, self.sizes(config.gate)
        counts = counts_of(sizes)
        if isinstance(sizes, list) != (gate.groups > 1) or len(counts) != gate.groups:
            form = "method.count=N" if gate.groups == 1 else f"method.count=[N,N,...] with {gate.groups} entries"
            raise ValueError(f"gate={gate.component} has {gate.groups} ordered group(s): use {form}")
        for number, count in enumerate(counts):
            K = gate.K_of(number)
            if K is not None and count > K:
                raise ValueError(f"method.count={sizes} exceeds the gate.K={K} candidates: lower it, or raise gate.K")
        if min(counts) == 0 and gate.delta > 0:
            raise ValueError("method.count=0 needs gate.delta=-0.5: gate.delta=0.5 keeps at least one component")

    def make(self, group: OrderedGroup) -> FixedCount:
        from ngn.methods.fixed import FixedCount

        count = counts_of(self.sizes(group.stack.first.gate))[group.number]
        return FixedCount(count, r=group.r, order=group.order, replicas=group.stack.replicas)


class Fixed(Plain):
    """A plain model with ``count`` components; a list has one count per group."""

    source = Source("a fixed size", "the plain model, retrained", rank=9)
    ordered = True
    in_kernels = True
    of_modules = "also"
    cuts = False

    name: Literal["fixed"]
    count: NonNegativeInt | Annotated[list[NonNegativeInt], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _needs_count(self) -> Fixed:
        if self.count is None:
            raise PydanticCustomError("incomplete", "a fixed model needs its size: add method.count=N")
        return self

    @property
    def suffix(self) -> str:
        return size_name(counts_of(self.count))

    def sizes(self, gate: Component) -> int | list[int] | None:
        return self.count

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        if not stack.first.gate.given:
            return super().learner(stack, task, model)
        from experiments.methods.pruning.cutting import ModuleRun, of_counts

        return of_counts(ModuleRun(stack.first, task), counts_of(self.count))


MOST_NAMED = 16
"""Most groups whose counts a run id spells out. A file name has room for about sixty."""


def size_name(counts: Sequence[int]) -> str:
    """Return the counts as part of a run id: all of them or, for many groups, their sum (``23of60``)."""
    if len(counts) > MOST_NAMED:
        return f"{sum(counts)}of{len(counts)}"
    return "_".join(map(str, counts))


def counts_of(sizes: int | list[int] | None) -> list[int]:
    """Return the sizes of a plain model as a list with one count per group."""
    return sizes if isinstance(sizes, list) else [sizes or 0]


def fixed_size(counts: Sequence[int]) -> int | list[int]:
    """Return counts, one per group, in the form of ``method.count``: a number for one group, else a list."""
    return counts[0] if len(counts) == 1 else list(counts)
