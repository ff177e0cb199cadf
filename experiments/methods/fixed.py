"""Plain models of a given size (``method=fixed``), or of a total number of components, such as a learned model's."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from itertools import pairwise
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


class Rival(Method, ABC):
    """Retain ``target`` components over all groups, as many as the run ``like`` retained."""

    has_boundary = False
    unused: ClassVar[tuple[str, ...]] = ("method.like",)

    target: NonNegativeInt | None = None
    """Components to retain, summed over all groups; null takes the total from the record of ``like``."""
    like: str | None = None
    """Run id of the model with this total. The suite compares its record with ``target`` before a run starts."""

    @model_validator(mode="after")
    def _needs_target(self) -> Rival:
        if self.target is None:
            raise PydanticCustomError(
                "incomplete",
                "this method needs a total: add method.like=RUN_ID of a learned model, or method.target=N",
            )
        return self

    @property
    def total(self) -> int:
        """``target``; every checked configuration has one."""
        return self.target or 0

    def check(self, config: Config) -> None:
        if self.components and config.gate.component not in self.components:
            legal = " or ".join(f"gate={name}" for name in self.components)
            raise ValueError(f"method={self.name} needs {legal}, not gate={config.gate.component}")
        gate = config.gate
        most = sum(gate.K_of(group) or 0 for group in range(gate.groups))
        if self.total > most:
            raise ValueError(f"method.target={self.total} exceeds the {most} candidates of gate={gate.component}")


class Uniform(Rival, Plain):
    """A plain model that divides ``target`` evenly among its groups, up to whole components."""

    source = Source("LoRA of one rank for all maps", "Hu et al., ICLR 2022, arXiv 2106.09685", year=2022, rank=10)
    unused = (*PLAIN, *Rival.unused)

    name: Literal["uniform"]

    def sizes(self, gate: Component) -> int | list[int]:
        """Divide the total evenly over the layers of the first map, then of the second, and so on.

        Example: if the total is half the number of groups, every other layer of each map gets one component.
        """
        ends = [at * self.total // gate.groups for at in range(gate.groups + 1)]
        by_map = sorted(range(gate.groups), key=lambda group: group % getattr(gate, "per_layer", 1))
        share = dict(zip(by_map, (after - before for before, after in pairwise(ends)), strict=True))
        return fixed_size([share[group] for group in range(gate.groups)])

    def check(self, config: Config) -> None:
        Rival.check(self, config)
        if len(config.gate.group_kinds) > 1:
            kinds = " and ".join(config.gate.group_kinds)
            raise ValueError(f"method=uniform cannot share one total between {kinds}: use method=fixed")
        Plain.check(self, config)


class Pretrained(Plain):
    """Score the pretrained model itself: nothing is attached and nothing is trained."""

    unused = (*PLAIN, "gate", "train")

    name: Literal["base"]

    def sizes(self, gate: Component) -> int | list[int]:
        return fixed_size([0] * gate.groups)

    def check(self, config: Config) -> None:
        if config.gate.component == "prune":
            raise ValueError("method=base scores the unchanged model, which gate=prune cannot express: use gate=lora")
        if config.model is None and config.profile != "smoke":
            raise ValueError(f"method=base scores a pretrained model, but task={config.task.name} has none")
        super().check(config)
