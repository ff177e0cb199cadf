"""Methods that receive a total number of components, such as that of a learned model, and models without any size."""

from __future__ import annotations

from abc import ABC
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from experiments.core.blocks import NonNegativeInt
from experiments.core.config import PLAIN, Component, Config, Method
from experiments.core.source import Source
from experiments.methods.fixed import Plain, fixed_size


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
