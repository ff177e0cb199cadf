"""What is learned: the data of each task, and what is evaluated on."""

from __future__ import annotations

from typing import Annotated, Literal, Union

from pydantic import Field, model_validator

from experiments.config.base import Closed, Count, NonNegative, Positive


class Regression1D(Closed):
    """y*(x) = sin 3x + 0.6 sin 7x + 0.3 sin 13x on [-pi, pi]."""

    name: Literal["regression1d"]
    points: Count = 512
    layout: Literal["uniform", "even"] = "uniform"
    draw: Annotated[int, Field(ge=0, strict=True)] = 0
    """Seed of the one uniform draw of inputs that all model seeds share."""


class _Benchmark(Closed):
    split: Literal["test", "validation"] = "test"
    """What is evaluated on; ``validation`` is held out of the training data and is for choosing settings."""


class Mnist(_Benchmark):
    """Handwritten digits, 60,000 / 10,000."""

    name: Literal["mnist"]


class Cifar10(_Benchmark):
    """Small colour images of ten classes, 50,000 / 10,000."""

    name: Literal["cifar10"]


class Cora(_Benchmark):
    """Citation graph, 2,708 nodes, the standard Planetoid split."""

    name: Literal["cora"]


class Manifold(Closed):
    """x = tanh(0.8 R [z; 0]) with z uniform on [-1, 1]^D and R a fixed rotation of the ambient space."""

    name: Literal["manifold"]
    D: Count
    """Intrinsic dimension."""
    ambient: Count = 16
    held: Count = 2048
    """Fixed held-out points."""
    kl: NonNegative = 1e-4
    """Weight of each latent's divergence from N(0, 1)."""
    draw: Annotated[int, Field(ge=0, strict=True)] = 0
    """Seed of R and of the held-out points, which all model seeds share."""

    @model_validator(mode="after")
    def _embeds(self) -> Manifold:
        if self.ambient < self.D:
            raise ValueError(f"D = {self.D} dimensions do not fit into an ambient space of {self.ambient}")
        return self


class Twist(Closed):
    """Points N(0, I) in the plane, each rotated by 3 gamma times its radius; targets standardised."""

    name: Literal["twist"]
    points: Count = 4096
    gamma: Positive = 0.5
    draw: Annotated[int, Field(ge=0, strict=True)] = 0
    """Seed of the one draw of inputs that all model seeds share."""


TaskConfig = Annotated[Union[Regression1D, Mnist, Cifar10, Cora, Manifold, Twist], Field(discriminator="name")]
