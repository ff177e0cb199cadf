"""``task=sine``: two sines, learned with as few waves as possible."""

from __future__ import annotations

from typing import ClassVar, Literal

from experiments.core.blocks import Count, Positive
from experiments.core.config import Component, TaskSettings


class Waves(Component):
    """``gate=waves``: f_k(x) = a_k sin(w_k x + b_k)."""

    stacks: ClassVar[bool] = True  # runs that differ only in their seed are trained together

    component: Literal["waves"]
    highest: Positive
    """Largest frequency |w_k| at the start."""


class Sine(TaskSettings):
    """``task=sine``: y = sin 3x + sin(9x) / 2 at evenly spaced points of [-1, 1]."""

    made_by: ClassVar[str] = "task.SineTask"  # imported when a run begins: settings need no torch
    components = (Waves,)

    name: Literal["sine"]
    points: Count
