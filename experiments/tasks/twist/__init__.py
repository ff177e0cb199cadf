"""``task=twist``: learned depth for an iterated twist of the plane."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.core.blocks import Count, NonNegativeInt, Positive, Ratio, Whole
from experiments.core.config import Component, TaskSettings


class LayersComponent(Component):
    """Several layers of tanh maps, each with a boundary. f_0 is the identity in all layers but the last."""

    kernels = ("planar",)

    component: Literal["layers"]
    layers: Annotated[int, Field(ge=2, strict=True), Whole]
    r_last: Ratio | None = None
    """r of the last layer, linear from ``gate.r`` at the first layer; null for the same r in all layers."""

    @property
    def groups(self) -> int:
        return self.layers

    def widths(self, task: TaskSettings) -> list[int]:
        return [*task.inputs, task.outputs]


class ChainComponent(Component):
    """One boundary over a chain of tanh updates with ``width`` hidden units."""

    kernels = ("planar",)

    component: Literal["chain"]
    width: Count

    def widths(self, task: TaskSettings) -> list[int]:
        return [*task.inputs, self.width, task.outputs]


class Twist(TaskSettings):
    """Inputs: points from N(0, I) in the plane. Targets: points rotated by 3 gamma times their radius, standardised."""

    made_by = "task.TwistTask"
    components = (LayersComponent, ChainComponent)
    kernel = "planar"
    inputs = (2,)
    outputs = 2

    name: Literal["twist"]
    points: Count = 4096
    gamma: Positive = 0.5
    draw: NonNegativeInt = 0
    """Seed of the draw of the inputs, the same for all model seeds."""
