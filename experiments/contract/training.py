"""How a run is trained: the blocks ``schedule``, ``train`` and ``seed``, the same for every task and method.

Symbols are the paper's: lambda0 is the capacity price, alpha_max the snapping strength, beta the sharpness of the
gates.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.blocks import Closed, ConfigError, Count, Fraction, NonNegative, Positive, Whole
from ngn.schedules import Shape


class Schedule(Closed):
    """lambda(p) = lambda0 lambda_shape(p); alpha(p) = max(alpha_max, kappa lambda(p)) alpha_shape(p); beta goes from
    start to end; from ``commit`` on boundaries are integers."""

    lambda0: NonNegative
    lambda0_last: Positive | None = None
    """lambda0 of the last of several groups, geometric from ``lambda0`` at the first; null for the same in all."""
    lambda_shape: Shape
    alpha_max: NonNegative
    alpha_shape: Shape
    kappa: NonNegative = 0.0
    """Snapping strength per price, where that is more than ``alpha_max``."""
    beta_start: Positive
    beta_end: Positive
    beta_shape: Shape
    commit: Fraction | None = None
    """Fraction of training from which every boundary is its nearest integer and gates are 0 or 1; null for never."""


class Train(Closed):
    """Optimisation. Exactly one of ``steps`` and ``epochs`` is given; ``batch: null`` means full batches."""

    steps: Count | None = None
    epochs: Count | None = None
    batch: Count | None = None
    lr: Positive
    lr_shape: Shape
    lr_boundary: Positive
    lr_boundary_shape: Shape = Shape(kind="constant")
    clip: Positive | None = None
    """Largest gradient norm, per model; null for none."""
    clip_scope: Literal["joint", "separate", "body"] = "joint"
    """One norm over body and boundary, one norm for each, or the body's alone."""
    weight_decay: NonNegative = 0.0
    """On all body parameters, never on the boundary: an L2 term (adam), or decoupled from the gradient (adamw)."""
    optimizer: Literal["adam", "adamw"] = "adam"
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """First part of training, in which both rates rise linearly from zero; their shapes follow it."""
    accumulate: Count = 1
    autocast: Literal["none", "bf16"] = "none"

    @model_validator(mode="after")
    def _length(self) -> Train:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(
                "give the length of training as either train.steps or train.epochs (set the other to null)"
            )
        if self.epochs is not None and self.batch is None:
            raise ValueError("epochs count passes over minibatches: set train.batch, or give train.steps")
        return self

    def steps_on(self, samples: int) -> int:
        """Optimiser steps of a training on so many training samples; an epoch drops its last, incomplete batch."""
        if self.steps is not None:
            return self.steps
        if self.epochs is None or self.batch is None:
            raise ConfigError("a training needs steps, or epochs and a batch size")
        return self.epochs * max(1, samples // min(self.batch, samples) // self.accumulate)


class Seed(Closed):
    """The number from which the data order, the initialisation and the noise of a run are drawn."""

    value: Annotated[int, Field(ge=0, lt=2**31, strict=True), Whole]
