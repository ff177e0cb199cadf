"""The plan of a training, and the history that it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ngn.schedules import CONSTANT, Shape, require_shapes

Autocast = Literal["none", "bf16"]
ClipScope = Literal["joint", "separate", "body"]
OptimizerKind = Literal["adam", "adamw"]


@dataclass(frozen=True)
class TrainPlan:
    """Number of steps, learning rates and optimiser of a training.

    *Controllers* are the parameters that decide the sizes, such as boundaries. The *body* is all other trained
    parameters.

    Attributes:
        steps: optimiser steps.
        lr, lr_boundary: learning rates of the body and of the controllers.
        lr_shape, lr_boundary_shape: schedules of the two rates over training progress.
        clip: largest gradient norm of a model; None for no clipping.
        clip_scope: parameters of one norm: "joint" (all together), "separate" (body and controllers each) or "body".
        optimizer: "adam" (weight decay is an L2 term of the gradient), or "adamw" (weight decay is decoupled).
        weight_decay: weight decay of the body; controllers have none.
        warmup: fraction of training, in [0, 1), in which both rates rise from 0; their schedules follow it.
        accumulate: micro-batches per step.
        autocast: "none" or "bf16" (boundaries stay in float64).

    Raises:
        ValueError, TypeError: if a choice is unknown, a number is out of range, or a schedule is not a ``Shape``.

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
                raise ValueError(f"{name} must be one of {', '.join(get_args(words))}, not {getattr(self, name)!r}")
        require_shapes(lr_shape=self.lr_shape, lr_boundary_shape=self.lr_boundary_shape)
        for name, least in (("steps", 0), ("accumulate", 1), ("lr", 0), ("lr_boundary", 0), ("weight_decay", 0)):
            if not bool(torch.as_tensor(getattr(self, name) >= least).all()):
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not isinstance(self.steps, int) or not isinstance(self.accumulate, int):
            raise TypeError(f"steps and accumulate must be integers, not {self.steps!r} and {self.accumulate!r}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be positive, or None for no clipping, not {self.clip}")
        if not 0.0 <= self.warmup < 1.0:
            raise ValueError(f"warmup must be a fraction of training in [0, 1), not {self.warmup:g}")


@dataclass
class History:
    """Curves and facts of a training.

    Attributes:
        curves: "step" [points], "loss" (the objective) and "task" (the task loss) [points, R], "t" (the sizes)
            [points, R, G]. If ``on_evaluate`` returns values: "held_step" [evaluations] and "held" [evaluations, R].
        diverged_at: first step with a loss that is not finite, or -1: int64 [R].
        seconds: wall time, including the time before each resumption.
        resumed: how often the training resumed from a checkpoint.
    """

    curves: dict[str, np.ndarray]
    diverged_at: np.ndarray
    seconds: float
    resumed: int
