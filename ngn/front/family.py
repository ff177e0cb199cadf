"""A front in one file: its tensors once, and how to cut each of its members from them by names, without a trace.

Beside what :func:`ngn.save` writes of the whole model, the file has tensors below :data:`BELOW`: the counts and costs
of all points, the component at each place of every axis, and the running statistics of the members. Its metadata name
the tensors and numbers that each axis cuts. Only tensors, layers and numbers that the model has can be named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.components.attention import Attention, use_cuttable_attention, with_stock_attention
from ngn.components.low_rank import Bottleneck
from ngn.cut import cut_copy, leading
from ngn.cut.modules import numbers_of
from ngn.cuts import Choice, Cut, is_stack, owned
from ngn.files import FileError
from ngn.front import FrontLearner
from ngn.front.path import Statistics, member_with, place_of
from ngn.learner.hooked import HookedAxis
from ngn.methods.fixed import Opened

FRONT, BELOW = "front", "ngn:front:"
"""The metadata, as JSON, and what the names of its tensors begin with."""
RUN = ("values", "batches")
"""The tensors of the members' running statistics."""


def said_of(learner: FrontLearner) -> tuple[nn.Module, dict[str, Tensor], str]:
    """What a file says of a front: the plain model with all components, the further tensors, and the metadata."""
    whole = learner.whole()
    tensors = {f"{BELOW}path": learner.path, f"{BELOW}costs": learner.costs}
    tensors |= {f"{BELOW}{name}": getattr(learner.statistics, name) for name in RUN if learner.statistics.names}
    tensors |= {f"{BELOW}ranks.{n}": axis.ranks for n, axis in enumerate(learner.axes) if axis.ranks is not None}
    paths = {id(module): path for path, module in learner.model.named_modules()}
    for path, module in learner.model.named_modules():
        for part in (vars(module).get("config"), *module._parameters.values(), *module._buffers.values()):
            paths.setdefault(id(part), path)
    axes = []
    for axis, size in zip(learner.axes, learner.cost.size_of.tolist(), strict=True):
        cuts = [
            [paths.get(id(cut.module), paths.get(id(owned(cut)))), cut.name, cut.dim, cut.width * axis.per, cut.start]
            for cut in axis.cuts
            if owned(cut) is not None
        ]
        counts = [
            [paths[id(part)], name if isinstance(part, nn.Module) else f"config.{name}"] for part, name in axis.counts
        ]
        axes.append({"K": axis.K, "size": size, "cuts": cuts, "counts": counts})
    parts = learner.model.named_modules()
    said = {
        "kind": learner.budget.kind,
        "members": learner.places,
        "norms": learner.statistics.names,
        "attention": [path for path, part in parts if type(part) is Attention],
        "axes": axes,
    }
    return whole, tensors, json.dumps(said, sort_keys=True)


def take_family(stored: MutableMapping[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors of a front out of those of a file."""
    return {name.removeprefix(BELOW): stored.pop(name) for name in [*stored] if name.startswith(BELOW)}


def member_of(
    whole: nn.Module, tensors: Mapping[str, Tensor], said: str, budget: str | float | None, path: str | Path
) -> nn.Module:
    """Cut the largest member within ``budget`` from the plain model of the file ``path``; None: the whole model.

    It is a :class:`FileError` if the file is damaged or of another model, and a ValueError if no member has such a
    cost.
    """
    try:
        front = json.loads(said)
        counts, costs = tensors["path"].tolist(), tensors["costs"].tolist()
        if not costs or sorted(costs) != costs or len(counts) != len(costs) or not 0 < costs[0] < float("inf"):
            raise FileError(f"its costs are {costs[:3]} ...")
        kind, places = str(front["kind"]), [int(place) for place in front["members"]]
        if sorted({*places}) != places or places[-1] != len(costs) - 1:
            raise FileError(f"its members are {places} of {len(costs)}")
    except (KeyError, TypeError, ValueError, IndexError, RecursionError, AttributeError) as fault:
        raise FileError(f"{path} is damaged: {fault!r}") from None
    point = len(costs) - 1 if budget is None else place_of(budget, costs, kind)
    try:
        parts = dict(whole.named_modules())
        for term in [part for part in parts.values() if isinstance(part, Bottleneck)]:
            term.axis._K = len(term.down)
        if not all(use_cuttable_attention([parts[name]]) for name in front["attention"]):
            raise FileError("not all that it calls attention is one of torch")
        axes = [_axis_of(parts, each, tensors.get(f"ranks.{n}")) for n, each in enumerate(front["axes"])]
        left = [counts[point][_number(each["size"], 0, len(counts[point]) - 1)] for each in front["axes"]]
        choices: dict[OrderedAxis, Choice] = {
            axis: leading(axis, _number(n, 1, axis.K)) for axis, n in zip(axes, left, strict=True)
        }
        member = member_with(point, counts, places)
        if member < len(places) - 1 and front["norms"]:
            statistics = Statistics(whole, len(places) - 1)
            if statistics.names != front["norms"]:
                raise FileError(f"it normalises in {front['norms']}")
            statistics.load_state_dict({name: tensors[name] for name in RUN}, strict=False)
            for table, name, value in statistics.of(whole, member):
                table[name] = value
        for n, axis in enumerate(axes):
            whole.add_module(f"ngn_front_{n}", axis)
        return with_stock_attention(cut_copy(whole, choices, share="all")).eval()
    except (AttributeError, IndexError, KeyError, RuntimeError, StopIteration, TypeError, ValueError) as fault:
        raise FileError(f"{path} is damaged, or its front is of another model ({fault!r})") from None


def _number(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise FileError(f"{value!r} is no number from {low} to {high}")
    return value


def _axis_of(parts: Mapping[str, nn.Module], said: Mapping[str, Any], ranks: Tensor | None) -> HookedAxis:
    """The axis that a file describes."""
    cuts = []
    for name, tensor, dim, width, start in said["cuts"]:
        cut = Cut(parts[name], str(tensor), dim, width, start)
        value = owned(cut)
        if is_stack(value):
            length = len(value)
        elif isinstance(value, Tensor):
            length = value.shape[_number(dim, -value.dim(), value.dim() - 1)]
        else:
            raise FileError(f"{name}.{tensor} is no tensor")
        _number(start, 0, length)
        _number(said["K"], 1, (length - start) // _number(width, 1, length))
        cuts.append(cut)
    if not cuts:
        raise FileError("an axis cuts nothing")
    counts = []
    for name, number in said["counts"]:
        numbers: Any = numbers_of(parts[name])[number]
        if not (isinstance(numbers, int) or len(numbers) == said["K"]):
            raise FileError(f"{name}.{number} does not count {said['K']} components")
        part: Any = parts[name]
        counts.append((part.config if number.startswith("config.") else part, number.removeprefix("config.")))
    axis = HookedAxis(Opened(said["K"]), cuts, counts)
    if ranks is not None:
        axis.sort(ranks.argsort(stable=True).tolist())
        if not torch.equal(axis.ranks, ranks):  # type: ignore[arg-type]
            raise FileError("an order of components is none")
    return axis
