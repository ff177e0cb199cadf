"""What is learned of the layers of a pretrained model: how many low-rank terms of linear maps, or units of adapters
behind layers, or heads and neurons of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from experiments.blocks import Count, NonNegativeInt
from experiments.contract.config import Component

if TYPE_CHECKING:
    from experiments.contract.config import Config

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
    """Components of the decoder layers of a pretrained model, ``per_layer`` groups of each."""

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


class PruneComponent(Attached):
    """Heads and feed-forward neurons of the pretrained model itself, as ordered blocks: structured pruning.

    A block of heads is one group of query heads with their key and value, or several such groups.
    """

    sized_by: ClassVar[tuple[str, ...]] = ("gate.K",)
    """Blocks of a given count are as wide as their number says."""

    component: Literal["prune"]
    target: Literal["heads", "ffn", "both"]
    """What is pruned: attention heads, feed-forward neurons, or both, with a boundary each."""
    backbone: Literal["frozen", "updated"]
    """Whether the model's weights stay as they are, or are all trained, in float32 whatever ``model.dtype`` is."""
    rank_by: Literal["index", "wanda", "random"] = "index"
    """What comes first: by place in the model, by Wanda's score (neurons one by one, largest first), or by a draw."""
    draw: NonNegativeInt = 0
    """Number of the random order; the run's seed has no part in it."""
    round_to: Count = 1
    """Neurons of a block are a multiple of this, and so is every width that is learned."""
    calibration: Count = 128
    """Training sequences of which Wanda's score takes the activations."""

    @property
    def group_kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kinds of the groups of a layer."""
        return ("heads", "ffn") if self.target == "both" else (self.target,)

    @property
    def per_layer(self) -> int:
        return len(self.group_kinds)

    def check(self, config: Config) -> None:
        super().check(config)
        if not self.kinds:
            raise ValueError(
                "gate=prune needs the model's sizes, the neurons two multiples of gate.round_to or more: give "
                "model.kv_heads and model.ffn, or gate.kinds"
            )
        if self.draw and self.rank_by != "random":
            raise ValueError(f"gate.draw is of gate.rank_by=random; with gate.rank_by={self.rank_by} nothing is drawn")


SMALL = {"heads": 2, "ffn": 48}
"""Groups of heads and feed-forward neurons of the small model of smoke runs."""


def with_blocks(nested: Mapping[str, Any]) -> Mapping[str, Any]:
    """A merged configuration in which ``gate.kinds`` says how many blocks the heads and the neurons of the model make.

    Heads are groups with one key and value; of neurons there are the most blocks, up to ``gate.K``, that divide them
    into multiples of ``gate.round_to``. Boundaries start at the last block. Kinds that are there already, and a model
    of unknown sizes, stay as they are.
    """
    gate, model = nested["gate"], nested.get("model")
    if not isinstance(gate, Mapping) or gate.get("component") != "prune" or gate.get("kinds"):
        return nested
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
