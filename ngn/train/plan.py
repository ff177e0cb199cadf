"""How a training is to go, and what it measured on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from torch import Tensor

from ngn.schedules import CONSTANT, Shape
from ngn.train.optim import ClipScope, Kind


@dataclass(frozen=True)
class TrainPlan:
    """How long and how fast.

    Attributes:
        steps: optimiser steps.
        lr, lr_boundary: learning rates of the body and of what decides the size; one number, or one per replica.
        lr_shape, lr_boundary_shape: courses of the two rates over training progress.
        clip, clip_scope: largest gradient norm of a model, and over what it is taken.
        optimizer: "adam" (the decay is an L2 term) or "adamw" (it is decoupled).
        weight_decay: on the body; what decides the size is never decayed.
        warmup: first part of training, in [0, 1), in which both rates rise from 0; their courses follow it.
        accumulate: micro-batches per step.
        autocast: "none" or "bf16" (the boundary stays in float64).

    Raises:
        ValueError: if the optimiser is not known, or the warm-up leaves nothing of the training.

    >>> import ngn
    >>> ngn.TrainPlan(steps=1000, optimizer="adamw", weight_decay=0.1, warmup=0.05).lr_boundary
    0.05
    """

    steps: int
    lr: float | Tensor = 1e-3
    lr_boundary: float | Tensor = 5e-2
    lr_shape: Shape = CONSTANT
    lr_boundary_shape: Shape = CONSTANT
    clip: float | None = None
    clip_scope: ClipScope = "joint"
    optimizer: Kind = "adam"
    weight_decay: float = 0.0
    warmup: float = 0.0
    accumulate: int = 1
    autocast: str = "none"

    def __post_init__(self) -> None:
        if self.optimizer not in get_args(Kind):
            raise ValueError(f"the optimiser is one of {', '.join(get_args(Kind))}, not {self.optimizer}")
        if not 0.0 <= self.warmup < 1.0:
            raise ValueError(f"a warm-up takes a part of training in [0, 1), not {self.warmup:g}")


@dataclass
class Course:
    """What a training measured on its way.

    Attributes:
        curves: "step" [points], "loss" (objective) and "task" [points, R], "t" [points, R, G].
        diverged_at: first step at which a model's loss was seen not to be finite, or -1: int64 [R].
        seconds: wall time of all parts of the training.
        resumed: how often it was continued from a checkpoint.
    """

    curves: dict[str, np.ndarray]
    diverged_at: np.ndarray
    seconds: float
    resumed: int
