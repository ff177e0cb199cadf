"""The training of a run: the blocks ``schedule``, ``train`` and ``seed``, the same for every task and method.

The symbols are the paper's: lambda0 is the capacity price, alpha_max the snapping strength, beta the sharpness of the
gates.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from experiments.core.blocks import Closed, ConfigError, Count, Fraction, NonNegative, Positive, Whole
from ngn.schedules import Shape

if TYPE_CHECKING:
    from ngn.train.plan import TrainPlan


class Schedule(Closed):
    """Price, snapping strength and sharpness over training progress p in [0, 1].

    - lambda(p) = lambda0 lambda_shape(p)
    - alpha(p) = max(alpha_max, kappa lambda(p)) alpha_shape(p)
    - beta goes from ``beta_start`` to ``beta_end`` along ``beta_shape``.
    """

    lambda0: NonNegative
    lambda0_last: Positive | None = None
    """lambda0 of the last group, geometric from ``lambda0`` at the first group; null for the same in all groups."""
    lambda_shape: Shape
    alpha_max: NonNegative
    alpha_shape: Shape
    kappa: NonNegative = 0.0
    """Snapping strength per unit of price; counts only where kappa lambda(p) exceeds ``alpha_max``."""
    beta_start: Positive
    beta_end: Positive
    beta_shape: Shape
    commit: Fraction | None = None
    """Progress p at which every boundary becomes its nearest integer and every gate 0 or 1; null for never."""


class Train(Closed):
    """The optimisation. Exactly one of ``steps`` and ``epochs`` is set; ``batch: null`` means full batches."""

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
    """Clip one norm over body and boundary, one norm for each, or the norm of the body only."""
    weight_decay: NonNegative = 0.0
    """Weight decay of all body parameters, never of the boundary: an L2 term (adam), or decoupled (adamw)."""
    optimizer: Literal["adam", "adamw", "adamw8bit"] = "adam"
    """``adamw8bit`` has moments of one byte per number. Pretrained weights that it trains stay in ``model.dtype``."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """First fraction of training, in which both rates rise linearly from zero; then their shapes begin."""
    accumulate: Count = 1
    autocast: Literal["none", "bf16"] = "none"
    matmul: Literal["highest", "high", "medium"] = "highest"
    """Precision of float32 products on CUDA: float32, TF32 (also in convolutions), or at least bfloat16."""

    @model_validator(mode="after")
    def _length(self) -> Train:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("set the length of training by either train.steps or train.epochs, and the other to null")
        if self.epochs is not None and self.batch is None:
            raise ValueError("train.epochs counts passes over minibatches: set train.batch, or use train.steps instead")
        return self

    def steps_on(self, samples: int) -> int:
        """Return the optimiser steps for this number of samples; an epoch drops its last, incomplete batch."""
        if self.steps is not None:
            return self.steps
        if self.epochs is None or self.batch is None:
            raise ConfigError("a training needs train.steps, or train.epochs and train.batch")
        return self.epochs * max(1, samples // min(self.batch, samples) // self.accumulate)

    def plan(self, samples: int, **rates: Any) -> TrainPlan:
        """Return the trainer's plan for this number of samples; a stack gives its rates, one per replica.

        Whether moments are quantised is the trainer's own setting.
        """
        from ngn.train.plan import TrainPlan  # with torch, which configurations do not need

        shared = {field.name: getattr(self, field.name) for field in fields(TrainPlan)}
        kind = "adam" if self.optimizer == "adam" else "adamw"
        return TrainPlan(**shared | rates | {"steps": self.steps_on(samples), "optimizer": kind})


class Seed(Closed):
    """The seed of the data order, the initialisation and the noise of a run."""

    value: Annotated[int, Field(ge=0, lt=2**31, strict=True), Whole]
