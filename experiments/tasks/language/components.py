"""Components in the layers of a pretrained model: low-rank terms of linear maps, hidden units of adapters after
layers, or the model's own heads and neurons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from experiments.core.blocks import Count, NonNegativeInt
from experiments.core.config import Component, Config

Target = Literal["q", "k", "v", "o", "gate", "up", "down"]
"""A linear map of a decoder layer, in its attention or its gated feed-forward block."""


def thirds(by_layer: Sequence[int]) -> tuple[int, int, int]:
    """Return the sums over the early, middle and late third of the layers. Extra layers go to the first thirds.

    >>> thirds([1] * 32), thirds([1] * 30)
    ((11, 11, 10), (10, 10, 10))
    """
    least, more = divmod(len(by_layer), 3)
    first = least + (more > 0)
    second = first + least + (more > 1)
    return sum(by_layer[:first]), sum(by_layer[first:second]), sum(by_layer[second:])


class Attached(Component):
    """Components in the decoder layers of a pretrained model, with ``per_layer`` ordered groups in each layer."""

    layers: Count = 2
    """Number of decoder layers, set by the file of ``model=``; 2 in the small model of smoke runs."""

    @property
    def per_layer(self) -> int:
        """Number of ordered groups in a layer."""
        return 1

    @property
    def groups(self) -> int:
        return self.layers * self.per_layer

    def sizes(self, counts: Sequence[int]) -> dict[str, int]:
        """Return the total count and its sums over thirds of the layers."""
        of_layer = self.per_layer
        by_layer = [sum(counts[at : at + of_layer]) for at in range(0, len(counts), of_layer)]
        return {"total": sum(counts), **dict(zip(("early", "middle", "late"), thirds(by_layer), strict=True))}

    def check(self, config: Config) -> None:
        if self.K is None and "gate.K" not in config.method.unused:
            raise ValueError(f"gate={self.component} needs a preset gate.K")


class LoRAComponent(Attached):
    """Low-rank terms y = W x + sum_k c_k B_k A_k x, with one boundary per adapted map of each layer."""

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
    """Adapters h + sum_k c_k U_k phi(D_k h) after each layer, with one boundary per adapter."""

    component: Literal["adapter"]
    width: Count = 1
    """Hidden units of one component."""


class PruneComponent(Attached):
    """Structured pruning: the pretrained model's own heads and feed-forward neurons as ordered blocks.

    A block of heads is one or more groups of query heads, each group with its shared key and value.
    """

    sized_by = ("gate.K",)
    """The number of blocks sets how wide they are."""

    component: Literal["prune"]
    target: Literal["heads", "ffn", "both"]
    """Prune attention heads, feed-forward neurons, or both, each with a boundary of its own."""
    backbone: Literal["frozen", "updated", "trained"]
    """Freeze the model's weights; train all of them, in float32 for every ``model.dtype``; or train all of them at full
    size first, with the same settings, and then freeze them while sizes are learned."""
    rank_by: Literal["index", "wanda", "random"] = "index"
    """Order of the blocks: as in the model, by Wanda's score (largest first, single neurons), or random."""
    draw: NonNegativeInt = 0
    """Seed of the random order; independent of the run's seed."""
    round_to: Count = 1
    """The neurons of a block, and so every learned width, are a multiple of this number."""
    calibration: Count = 128
    """Number of training sequences for the activations in Wanda's score."""

    @property
    def group_kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kinds of ordered groups in a layer."""
        return ("heads", "ffn") if self.target == "both" else (self.target,)

    @property
    def per_layer(self) -> int:
        return len(self.group_kinds)

    def check(self, config: Config) -> None:
        super().check(config)
        if not self.kinds:
            raise ValueError(
                "gate=prune needs the model's sizes: set model.kv_heads and model.ffn, or gate.kinds. The neurons must "
                "be a multiple of gate.round_to, and at least two times as many"
            )
        if self.draw and self.rank_by != "random":
            raise ValueError(f"gate.draw is for gate.rank_by=random; with gate.rank_by={self.rank_by} nothing is drawn")


SMALL = {"heads": 2, "ffn": 48}
"""Numbers of head groups and of feed-forward neurons in the small model of smoke runs."""


def with_blocks(nested: Mapping[str, Any]) -> Mapping[str, Any]:
    """Set ``gate.kinds``, the numbers of blocks, in a merged configuration of ``gate=prune`` that has none.

    - Heads: one block for each group of query heads with its key and value.
    - Neurons: the largest number of blocks, at most ``gate.K``, that divides them into multiples of ``gate.round_to``.

    Boundaries start at the last block. The configuration stays unchanged if the sizes of the model are unknown.
    """
    gate, model = nested["gate"], nested.get("model")
    sizes = SMALL if not isinstance(model, Mapping) else {"heads": model.get("kv_heads"), "ffn": model.get("ffn")}
    kinds = {}
    for kind in ("heads", "ffn") if gate.get("target") == "both" else (str(gate.get("target")),):
        blocks, most = sizes.get(kind), gate.get("K")
        if not isinstance(blocks, int) or not isinstance(most, int):
            return nested
        if kind == "ffn":
            step = gate.get("round_to")
            fitting = [n for n in range(1, most + 1) if isinstance(step, int) and blocks % (n * step) == 0]
            if not fitting:
                return nested  # gate.check says what is wrong
            blocks = max(fitting)
            if blocks == 1 and most > 1:
                return nested  # as above
        kinds[kind] = {"K": blocks, "t0": max(blocks - 1.0, 0.5)}
    return {**nested, "gate": {**gate, "kinds": kinds}}
