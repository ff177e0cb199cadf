"""Prune a pretrained model by structure: order its heads and feed-forward neurons and keep a prefix.

Wanda (Sun et al., "A Simple and Effective Pruning Approach for Large Language Models", ICLR 2024) scores a weight by
|W_ij| ||X_j||_2. A neuron scores the mean over its column of the map that reads it (FLAP's Wanda-sp). A group of heads
scores the sum over its columns.

An ordered model has two uses. Cut to the counts that NGN learned, it is a rival. Uncut, it is the model in which NGN
learns a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import ngn
from experiments.tasks.language.base import PretrainedModel
from experiments.tasks.language.packing import Packed, token_losses
from ngn.axis import OrderedAxis
from ngn.methods.fixed import Retained
from ngn.streams import generator


@dataclass(frozen=True)
class PrunablePart:
    """The heads or the neurons of one layer.

    Attributes:
        module: full name of the attention or feed-forward module.
        map: full name of the linear map that reads the heads or neurons.
        kind: "heads" or "ffn".
        size: number of neurons, or of head groups that share a key and value, before pruning.
    """

    module: str
    map: str
    kind: str
    size: int


OUTPUT_MAP = {"heads": "o", "ffn": "down"}
"""Kind of part → kind of the linear map that reads it."""


@torch.no_grad()
def wanda_scores(model: nn.Module, maps: Sequence[str], batches: Iterable[Packed]) -> dict[str, Tensor]:
    """Score each input entry j of linear maps by ||X_j||_2 mean_i |W_ij|: name → float64 [in].

    Args:
        model: the dense model; one pass scores all maps.
        batches: the calibration sequences; every token counts.
    """
    weights = {name: model.get_submodule(name).get_parameter("weight") for name in maps}
    squares = {name: w.new_zeros(w.shape[1], dtype=torch.float64) for name, w in weights.items()}
    with ExitStack() as hooks:
        for name in maps:

            def seen(_: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
                squares[name] += inputs[0].double().square().flatten(0, -2).sum(0)

            hooks.enter_context(model.get_submodule(name).register_forward_pre_hook(seen))
        for batch in batches:
            token_losses(model, batch)
    return {name: total.sqrt() * weights[name].double().abs().mean(0) for name, total in squares.items()}


def order_by_score(scores: Tensor, size: int) -> Tensor:
    """Order components by falling score, int64 [size]; each has an equal share of ``scores`` [in]."""
    return scores.reshape(size, -1).sum(1).argsort(descending=True, stable=True)


def random_order(draw: int, name: str, size: int) -> Tensor:
    """Draw an order of the ``size`` components of a map, int64 [size], from the stream (draw, "prune", name)."""
    return torch.randperm(size, generator=generator(draw, "prune", name))


def prunable_parts(base: PretrainedModel, kinds: Sequence[str]) -> list[PrunablePart]:
    """Return all parts of these kinds, layer by layer, within a layer in the order of ``kinds``.

    Raises:
        ConfigError: if a layer has no map of a kind.
    """
    maps = base.maps([OUTPUT_MAP[kind] for kind in kinds])
    parts = []
    for at, name in enumerate(maps):
        kind, config = kinds[at % len(kinds)], base.model.config
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        neurons = base.model.get_submodule(name).weight.shape[1]
        parts.append(PrunablePart(name.rpartition(".")[0], name, kind, heads if kind == "heads" else neurons))
    return parts


@torch.no_grad()
def reorder(axis: OrderedAxis, order: Tensor) -> None:
    """Reorder the components of an axis in all its tensors: component k becomes the old ``order[k]``."""
    for cut in axis.cuts:
        value: Tensor = getattr(cut.module, cut.name)
        last = cut.start + axis.K * cut.width
        index = torch.arange(value.shape[cut.dim], device=value.device)
        index[cut.start : last] = index[cut.start : last].reshape(axis.K, cut.width)[order.to(index.device)].flatten()
        changed = value.index_select(cut.dim, index)
        setattr(cut.module, cut.name, nn.Parameter(changed, value.requires_grad))


def ordered_prefix(
    model: nn.Module, parts: Sequence[PrunablePart], order: Mapping[str, Tensor] | None, left: Sequence[float]
) -> nn.Module:
    """Copy ``model``, reorder its heads and neurons, and keep a prefix. Unchanged frozen tensors are shared.

    Args:
        order: module → the order of its components; None keeps the model's order.
        left: fraction of each part that stays, in (0, 1].
    """
    single = {part.module: learned_size_of(part, part.size) for part in parts}
    learner = ngn.learn_sizes(model, single, by_importance=None, capacity=lambda _, K: Retained(K))
    staying = {part.module: round(share * part.size) for part, share in zip(parts, left, strict=True)}
    for module, axis in zip(learner.names, learner.axes, strict=True):
        if order is not None:
            reorder(axis, order[module])
        axis.capacity.left.fill_(staying[module])  # type: ignore[operator]
    return learner.deploy(share_frozen=True)


def learn_prefix(model: nn.Module, parts: Sequence[PrunablePart], capacities: Sequence[ngn.Capacity]) -> nn.Module:
    """Give each part of ``model`` a learned size, in place, with as many blocks as its capacity has."""
    each = {part.module: capacity for part, capacity in zip(parts, capacities, strict=True)}
    ngn.learn_sizes(
        model,
        {part.module: learned_size_of(part, each[part.module].K) for part in parts},
        capacity=lambda name, _: each[name],
        by_importance=None,
    )
    return model


def learned_size_of(part: PrunablePart, blocks: int) -> ngn.Size:
    """Return the learned size of a part: groups of heads, or ``blocks`` of neurons."""
    if part.kind == "heads":
        return ngn.Heads() if blocks > 1 else OneGroup(part.map)
    return ngn.Width(blocks)


class OneGroup(ngn.Size):
    """The only group of heads of a layer that is cut already; it stays, and counts as one."""

    unit = "heads"

    def __init__(self, map: str) -> None:
        super().__init__()
        self.map = map

    def attach(self, model: nn.Module, name: str, make: Callable[[str, int], ngn.Capacity]) -> None:
        reading: Any = model.get_submodule(self.map)
        self.axis(name, 1, make, ngn.cuts.inputs(reading, reading.in_features), [reading])


def weights_left(base: PretrainedModel, deployed: nn.Module) -> list[tuple[int, int]]:
    """Count each layer's attention and feed-forward weights, without biases: (after pruning, before)."""

    def count(model: nn.Module, layer: str) -> int:
        inside = model.get_submodule(layer).modules()
        return sum(part.weight.numel() for part in inside if isinstance(part, nn.Linear))

    return [(count(deployed, layer), count(base.model, layer)) for layer in base.layers]
