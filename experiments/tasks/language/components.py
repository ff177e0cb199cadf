"""What is attached to the layers of a pretrained model: low-rank terms of linear maps, or adapters behind layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from experiments.blocks import Count
from experiments.tasks.settings import Component

if TYPE_CHECKING:
    from experiments.config.schema import Config

Target = Literal["q", "k", "v", "o", "gate", "up", "down"]
"""A linear map of a decoder layer: of its attention, or of its gated feed-forward block."""


def thirds(by_layer: Sequence[int]) -> tuple[int, int, int]:
    """Sums over the early, middle and late third of the layers; what does not divide goes to the front (32: 11/11/10).

    >>> thirds([1] * 32), thirds([1] * 30)
    ((11, 11, 10), (10, 10, 10))
    """
    least, more = divmod(len(by_layer), 3)
    first = least + (more > 0)
    second = first + least + (more > 1)
    return sum(by_layer[:first]), sum(by_layer[first:second]), sum(by_layer[second:])


class Attached(Component):
    """Components that are attached to the decoder layers of a pretrained model, ``per_layer`` groups to each."""

    layers: Count = 2
    """Decoder layers of the model, as the file of ``model=`` says; 2 are those of the small one of smoke runs."""

    @property
    def per_layer(self) -> int:
        """Ordered groups of a layer."""
        return 1

    @property
    def groups(self) -> int:
        return self.layers * self.per_layer

    def sizes(self, counts: Sequence[int]) -> dict[str, int]:
        """The total count and its sums over thirds of the layers."""
        of_layer = self.per_layer
        by_layer = [sum(counts[at : at + of_layer]) for at in range(0, len(counts), of_layer)]
        return {"total": sum(counts), **dict(zip(("early", "middle", "late"), thirds(by_layer), strict=True))}

    def check(self, config: Config) -> None:
        if self.K is None and "gate.K" not in config.method.unused:
            raise ValueError(f"gate={self.component} needs a preset gate.K")


class LoRAComponent(Attached):
    """Low-rank terms y = W x + sum_k c_k B_k A_k x: a boundary for each adapted map, layer by layer."""

    component: Literal["lora"]
    targets: Annotated[list[Target], Field(min_length=1)]
    """The adapted maps of a layer, in the order of their boundaries."""

    @property
    def per_layer(self) -> int:
        return len(self.targets)

    def check(self, config: Config) -> None:
        super().check(config)
        if len(set(self.targets)) < len(self.targets):
            raise ValueError("gate.targets must not name a map twice")


class AdapterComponent(Attached):
    """Adapters h + sum_k c_k U_k phi(D_k h) behind each layer, with a boundary each."""

    component: Literal["adapter"]
    width: Count = 1
    """Hidden units of one component."""
