"""``task=regression1d``: regression of a 1D function, the paper's controlled study."""

from __future__ import annotations

from typing import Literal

from experiments.core.blocks import Count, NonNegativeInt
from experiments.core.config import TaskSettings
from experiments.tasks.settings import MLPComponent


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
