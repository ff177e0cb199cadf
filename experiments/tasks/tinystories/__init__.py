"""``task=tinystories``: a small language model with characters as tokens."""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiments.core.blocks import Count, NonNegativeInt
from experiments.core.config import Component, Config, TaskSettings
from experiments.store.records import MAX_CURVE_POINTS
from experiments.tasks.settings import Benchmark, ModuleComponent


class LayerComponent(Component):
    """Components in the layers of a small language model. Parts without a gate keep their full size.

    Attributes:
        width: features of the residual stream.
        heads: heads of a full layer, with width / heads features each.
        slices: slices of a full layer's feed-forward part, with 4 width / slices hidden units each.
    """

    width: Count = 128
    layers: Count = 2
    heads: Count = 8
    slices: Count = 16

    @property
    def groups(self) -> int:
        return self.layers * len(self.group_kinds)

    @model_validator(mode="after")
    def _divides(self) -> LayerComponent:
        if self.width % self.heads or 4 * self.width % self.slices:
            raise ValueError(
                f"gate.width={self.width} must be a multiple of gate.heads={self.heads}, and four times gate.width a "
                f"multiple of gate.slices={self.slices}"
            )
        return self

    def numbers(self, task: TaskSettings, samples: int) -> int:
        return samples * prod(task.inputs) * (self.width // max(self.heads, self.slices))

    def check(self, config: Config) -> None:
        if any(self.K_of(group) is None for group in range(self.groups)) and "gate.K" not in config.method.unused:
            raise ValueError(f"gate={self.component} needs a preset gate.K")
        if getattr(config.method, "normalise", False):
            raise ValueError(f"method.normalise does not fit gate={self.component}: its components are sequences")


class HeadsComponent(LayerComponent):
    """Attention heads of every layer, with one boundary per layer."""

    group_kinds = ("heads",)

    component: Literal["heads"]


class SlicesComponent(LayerComponent):
    """Slices of the feed-forward part of every layer, with one boundary per layer."""

    group_kinds = ("slices",)

    component: Literal["slices"]


class HeadsSlicesComponent(LayerComponent):
    """Heads and slices of every layer, with two boundaries per layer."""

    group_kinds = ("heads", "slices")

    component: Literal["heads_slices"]


class StatesComponent(LayerComponent):
    """State dimensions of every layer of a Mamba model, with one boundary per layer."""

    group_kinds = ("states",)

    component: Literal["states"]


class UnitsComponent(ModuleComponent):
    """Heads and hidden units of the layers of a finished Transformer; a layer has 4 ``width`` units."""

    component: Literal["units"]
    width: Count = 64
    layers: Count = 2
    heads: Count = 4

    @property
    def groups(self) -> int:
        return 2 * self.layers

    @model_validator(mode="after")
    def _divides(self) -> UnitsComponent:
        if self.width % self.heads:
            raise ValueError(f"gate.width={self.width} must be a multiple of gate.heads={self.heads}")
        return self


class TinyStories(Benchmark):
    """Short stories in simple words, predicted character by character."""

    made_by = "task.StoriesTask"
    components = (HeadsComponent, SlicesComponent, HeadsSlicesComponent, StatesComponent, UnitsComponent)
    usual_samples = 27_000

    name: Literal["tinystories"]
    corpus: Literal["any", "whole"] = "any"
    """``whole`` refuses a part of the stories, such as a slice."""
    context: Count
    """Characters in one input."""
    held: Count | None = None
    """Characters for the scores, from the start of the held-out text; null for all."""
    evaluations: Annotated[NonNegativeInt, Field(le=MAX_CURVE_POINTS)] = 20
    """Points in the curve of bits per character. Each point takes ``curve_held`` characters of held-out text."""
    curve_held: Count = 20_000

    @property
    def inputs(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of one input."""
        return (self.context,)

    def check(self, config: Config) -> None:
        if config.train.batch is None:
            raise ValueError("task=tinystories trains on batches of windows: set train.batch")

    def maker(self, config: Config) -> str:
        return "task.UnitsTask" if config.gate.given else self.made_by
