"""Tasks on generated data.

``task=manifold`` is an autoencoder of points on a nonlinear manifold of known dimension, ``task=regression1d`` the
paper's controlled study, and ``task=twist`` learned depth for an iterated twist of the plane.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.core.blocks import Count, NonNegative, NonNegativeInt, Positive, Ratio, Whole
from experiments.core.config import Component, Config, TaskSettings
from experiments.tasks.settings import MLPComponent


class LatentComponent(Component):
    """Rank-one terms of a variational bottleneck between an encoder and a decoder with GELU layers."""

    component: Literal["latent"]
    width: Count
    hidden_layers: Count

    def numbers(self, task: TaskSettings, samples: int) -> int:
        return samples + 8 * self.width  # one matrix product sums the components


class Manifold(TaskSettings):
    """x = tanh(0.8 R [z; 0]) with z uniform on [-1, 1]^D and R a fixed rotation of the ambient space."""

    made_by = "task.ManifoldTask"
    components = (LatentComponent,)

    name: Literal["manifold"]
    D: Count
    """Intrinsic dimension."""
    ambient: Count = 16
    held: Count = 2048
    """Number of fixed held-out points."""
    kl: NonNegative = 1e-4
    """Weight of the Kullback-Leibler divergence of each latent from N(0, 1)."""
    draw: NonNegativeInt = 0
    """Seed of R and of the held-out points, the same for all model seeds."""

    @model_validator(mode="after")
    def _embeds(self) -> Manifold:
        if self.ambient < self.D:
            raise ValueError(
                f"task.D={self.D} dimensions do not fit into an ambient space of {self.ambient}; raise task.ambient"
            )
        return self

    def check(self, config: Config) -> None:
        if config.train.batch is None or config.train.steps is None:
            raise ValueError("task=manifold draws new points at every step: set train.steps and train.batch")
        if config.gate.K is None and "gate.K" not in config.method.unused:
            raise ValueError(
                "gate.K=null does not fit task=manifold: closed latents carry noise, so all must exist; set gate.K"
            )


class Regression1D(TaskSettings):
    """Regression of y*(x) = sin 3x + 0.6 sin 7x + 0.3 sin 13x on [-pi, pi]."""

    made_by = "task.RegressionTask"
    numerics = 2
    components = (MLPComponent,)
    kernel = "bank1d"

    name: Literal["regression1d"]
    points: Count = 512
    layout: Literal["uniform", "even"] = "uniform"
    draw: NonNegativeInt = 0
    """Seed of the uniform draw of the inputs, the same for all model seeds."""


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
