"""Structured pruning of a pretrained model: its heads and feed-forward neurons in an order, of which a prefix stays.

Wanda (Sun et al., "A Simple and Effective Pruning Approach for Large Language Models", ICLR 2024) scores a weight by
|W_ij| ||X_j||_2. A neuron has the mean over its column of the map behind it (FLAP's Wanda-sp), a group of heads the sum
over its columns. An ordered model, cut to the counts that another has learned, is a rival of it; uncut it is what NGN
may learn a prefix of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import ngn
from experiments.language.base import Base
from experiments.language.packing import Packed, nats
from ngn.axis import OrderedAxis
from ngn.streams import generator


@dataclass(frozen=True)
class Part:
    """Heads or neurons of one layer.

    Attributes:
        module: full name of the attention or feed-forward module.
        map: that of the linear map that takes them.
        kind: "heads" or "ffn".
        size: groups of heads with one key and value, or neurons, before anything is pruned.
    """

    module: str
    map: str
    kind: str
    size: int


BEHIND = {"heads": "o", "ffn": "down"}
"""What is pruned → the kind of the linear map that takes it."""


@torch.no_grad()
def wanda_scores(model: nn.Module, maps: Sequence[str], batches: Iterable[Packed]) -> dict[str, Tensor]:
    """||X_j||_2 mean_i |W_ij| of every input entry j of linear maps, float64 [in], by their names.

    Args:
        model: the dense model; all maps are scored in one pass over it.
        batches: the sequences of the calibration, whose every token counts.
    """
    weights = {name: model.get_submodule(name).get_parameter("weight") for name in maps}
    squares = {name: w.new_zeros(w.shape[1], dtype=torch.float64) for name, w in weights.items()}
    hooks = []
    for name in maps:

        def seen(_: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
            squares[name] += inputs[0].double().square().flatten(0, -2).sum(0)

        hooks.append(model.get_submodule(name).register_forward_pre_hook(seen))
    try:
        for batch in batches:
            nats(model, batch)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: total.sqrt() * weights[name].double().abs().mean(0) for name, total in squares.items()}


def by_score(scores: Tensor, size: int) -> Tensor:
    """Components from the largest score to the smallest, int64 [size]; each has an equal part of ``scores`` [in]."""
    return scores.reshape(size, -1).sum(1).argsort(descending=True, stable=True)


def by_draw(draw: int, name: str, size: int) -> Tensor:
    """A random order of the ``size`` components of a map, of the stream (draw, "prune", name): int64 [size]."""
    return torch.randperm(size, generator=generator(draw, "prune", name))


def parts_of(base: Base, kinds: Sequence[str]) -> list[Part]:
    """Everything that is pruned, layer by layer, within a layer as ``kinds``.

    Raises:
        ConfigError: if a layer has no map of the kind.
    """
    maps = base.maps([BEHIND[kind] for kind in kinds])
    parts = []
    for at, name in enumerate(maps):
        kind, config = kinds[at % len(kinds)], base.model.config
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        neurons = base.model.get_submodule(name).weight.shape[1]
        parts.append(Part(name.rpartition(".")[0], name, kind, heads if kind == "heads" else neurons))
    return parts


@torch.no_grad()
def reorder(axis: OrderedAxis, order: Tensor) -> None:
    """Exchange components of an axis, in every tensor that has it: component k becomes what ``order[k]`` was."""
    for cut in axis.cuts:
        value: Tensor = getattr(cut.module, cut.name)
        last = cut.start + axis.K * cut.width
        places = torch.arange(cut.start, last).reshape(axis.K, cut.width)[order].flatten().to(value.device)
        index = torch.arange(value.shape[cut.dim], device=value.device)
        index[cut.start : last] = places
        changed = value.index_select(cut.dim, index)
        setattr(cut.module, cut.name, nn.Parameter(changed, value.requires_grad))


def ordered_prefix(
    model: nn.Module, parts: Sequence[Part], order: Mapping[str, Tensor] | None, left: Sequence[float]
) -> nn.Module:
    """A copy of ``model`` with its heads and neurons in another order, cut to a prefix; frozen tensors that neither
    changes stay the model's own.

    Args:
        order: module → the order of its components; None for that of the model.
        left: the part of each that stays, in (0, 1].
    """
    single = {part.module: spec_of(part, part.size) for part in parts}
    learner = ngn.learn_sizes(model, single, capacity=lambda _, K: ngn.Retained(K))
    staying = {part.module: round(share * part.size) for part, share in zip(parts, left, strict=True)}
    for module, axis in zip(learner.names, learner.axes, strict=True):
        if order is not None:
            reorder(axis, order[module])
        axis.capacity.left.fill_(staying[module])  # type: ignore[operator]
    return learner.deploy(share_frozen=True)


def learn_prefix(model: nn.Module, parts: Sequence[Part], capacities: Sequence[ngn.Capacity]) -> nn.Module:
    """``model``, in place, with one learned size per part, in as many blocks as its capacity has."""
    each = {part.module: capacity for part, capacity in zip(parts, capacities, strict=True)}
    ngn.learn_sizes(
        model, {part.module: spec_of(part, each[part.module].K) for part in parts}, capacity=lambda name, _: each[name]
    )
    return model


def spec_of(part: Part, blocks: int) -> ngn.Heads | ngn.Width:
    """The learned size of a part: groups of heads, or ``blocks`` of neurons."""
    return ngn.Heads() if part.kind == "heads" else ngn.Width(blocks)


def weights_left(base: Base, deployed: nn.Module) -> list[tuple[int, int]]:
    """(left, before) of every layer: weights of its attention and feed-forward maps, biases not counted."""

    def count(model: nn.Module, layer: str) -> int:
        inside = model.get_submodule(layer).modules()
        return sum(part.weight.numel() for part in inside if isinstance(part, nn.Linear))

    return [(count(deployed, layer), count(base.model, layer)) for layer in base.layers]
