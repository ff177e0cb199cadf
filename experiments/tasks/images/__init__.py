"""``task=mnist`` and ``task=cifar10``: classification of images into ten classes."""

from __future__ import annotations

from math import prod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from experiments.core.blocks import Count
from experiments.core.config import Component, Config, TaskSettings
from experiments.tasks.settings import Benchmark, MLPComponent, ModuleComponent


class ConvComponent(Component):
    """Convolution branches: 3x3 convolution, 2x2 max-pooling and ReLU per entry of ``channels``; then a linear map."""

    component: Literal["conv"]
    channels: Annotated[list[Count], Field(min_length=1, max_length=4)]

    def numbers(self, task: TaskSettings, samples: int) -> int:
        pixels = prod(task.inputs[1:])
        return samples * sum(channels * (pixels >> 2 * stage) for stage, channels in enumerate(self.channels))


class ChannelsComponent(ModuleComponent):
    """Channels inside the blocks of a residual network of 6 ``blocks`` + 2 layers; ``model=none`` is untrained.

    Of a model of torchvision or timm all sizes that the library finds, but heads. It reads no other key of this block.
    """

    component: Literal["channels"]
    blocks: Count
    shortcuts: Literal["pads", "maps"] = "pads"
    """Between stages: zeros by index, as in the trained networks, or 1 x 1 convolutions."""

    def check(self, config: Config) -> None:
        packaged = config.model is not None and config.model.package is not None
        if packaged and config.method.name in ("fixed", "morphnet"):
            raise ValueError(f"method={config.method.name} needs a network of the suite, such as model=resnet20")
        if config.model is not None and self.shortcuts == "maps":
            raise ValueError("the trained networks have gate.shortcuts=pads")
        if config.model is not None and config.model.data is not None and config.task.split == "validation":  # type: ignore[attr-defined]
            raise ValueError(
                f"model={config.model.name} has seen the validation images: give weights that have not, with "
                "model=local model.path=FILE"
            )

    @property
    def groups(self) -> int:
        return 3 * self.blocks


class Mnist(Benchmark):
    """Handwritten digits: 60,000 training and 10,000 test images."""

    made_by = "task.ImageTask"
    components = (MLPComponent, ConvComponent)
    usual_samples = 60_000
    inputs = (1, 28, 28)
    outputs = 10
    held_out: ClassVar[int] = 10_000
    """Number of training samples that ``task.split=validation`` holds out, from the end."""

    name: Literal["mnist"]


class Cifar10(Benchmark):
    """Small colour images of ten classes: 50,000 training and 10,000 test images."""

    made_by = "task.ImageTask"
    components = (ConvComponent, ChannelsComponent)
    usual_samples = 50_000
    inputs = (3, 32, 32)
    outputs = 10
    held_out: ClassVar[int] = 5_000
    """Number of training samples that ``task.split=validation`` holds out, from the end."""

    name: Literal["cifar10"]

    def maker(self, config: Config) -> str:
        if config.model is not None and config.model.package is not None:
            return "task.ConstructedTask"
        return "task.ResNetTask" if config.gate.given else self.made_by
