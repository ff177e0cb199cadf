"""``task=manifold``: an autoencoder of points on a nonlinear manifold of known dimension."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from experiments.core.blocks import Count, NonNegative, NonNegativeInt
from experiments.core.config import Component, Config, TaskSettings


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
