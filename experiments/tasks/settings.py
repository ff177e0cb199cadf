"""Settings that several tasks share: a component that fits more than one task, and data with a standard split."""

from __future__ import annotations

from math import prod
from typing import Literal

from experiments.core.blocks import Count
from experiments.core.config import Component, TaskSettings
from experiments.core.groups import GroupedSettings
from experiments.core.training import Schedule


class MLPComponent(Component):
    """tanh MLP blocks. ``features`` is the width of their output if a shared linear head follows; else null."""

    stacks = True
    kernels = ("bank1d",)

    component: Literal["mlp"]
    width: Count
    hidden_layers: Count = 2
    features: Count | None = None

    def widths(self, task: TaskSettings) -> list[int]:
        return [prod(task.inputs), *[self.width] * self.hidden_layers, self.features or task.outputs]

    @property
    def why_no_kernel(self) -> str | None:
        if self.hidden_layers == 2 and self.features is None:
            return None
        return (
            "the compiled kernels train blocks of two hidden layers without a head: set gate.hidden_layers=2 and "
            "gate.features=null"
        )


class ModuleComponent(Component):
    """The sizes of a finished module, which a ``limit`` decides; of each, NGN learns at most ``K`` components."""

    given = True
    unused = (
        *(f"schedule.{key}" for key in Schedule.model_fields if key != "commit"),
        *(f"gate.{key}" for key in GroupedSettings.model_fields if key not in ("K", "component")),
    )


class Benchmark(TaskSettings):
    """A data set with a standard split."""

    split: Literal["test", "validation"] = "test"
    """Data for the scores. ``validation`` is a held-out part of the training data, for choosing settings."""
