"""How a training is to go, and what it measured on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ngn.schedules import CONSTANT, Shape, require_shapes
from ngn.train.optim import ClipScope, OptimizerKind

Autocast = Literal["none", "bf16"]


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
        ValueError, TypeError: if a word is not known, a number is out of its range, or a shape is none.

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
    optimizer: OptimizerKind = "adam"
    weight_decay: float = 0.0
    warmup: float = 0.0
    accumulate: int = 1
    autocast: Autocast = "none"

    def __post_init__(self) -> None:
        for name, words in (("optimizer", OptimizerKind), ("clip_scope", ClipScope), ("autocast", Autocast)):
            if getattr(self, name) not in get_args(words):
                raise ValueError(f"{name} is one of {', '.join(get_args(words))}, not {getattr(self, name)!r}")
        require_shapes(lr_shape=self.lr_shape, lr_boundary_shape=self.lr_boundary_shape)
        for name, least in (("steps", 0), ("accumulate", 1), ("lr", 0), ("lr_boundary", 0), ("weight_decay", 0)):
            if not bool(torch.as_tensor(getattr(self, name) >= least).all()):
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not isinstance(self.steps, int) or not isinstance(self.accumulate, int):
            raise TypeError(f"steps and accumulate are whole numbers, not {self.steps!r} and {self.accumulate!r}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be positive, or None for none, not {self.clip}")
        if not 0.0 <= self.warmup < 1.0:
            raise ValueError(f"a warm-up takes a part of training in [0, 1), not {self.warmup:g}")


@dataclass
class Course:
    """What a training measured on its way.

    Attributes:
        curves: "step" [points], "loss" (objective) and "task" [points, R], "t" [points, R, G]; of what ``on_evaluate``
            has returned, "held_step" [evaluations] and "held" [evaluations, R].
        diverged_at: first step at which a model's loss was seen not to be finite, or -1: int64 [R].
        seconds: wall time of all parts of the training.
        resumed: how often it was continued from a checkpoint.
    """

    curves: dict[str, np.ndarray]
    diverged_at: np.ndarray
    seconds: float
    resumed: int
