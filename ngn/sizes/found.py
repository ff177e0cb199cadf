"""The groups that a trace has found (``ngn/tracing``): which of them patterns choose, and their learned sizes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import Also, ExampleError, evaluating, outputs_on, value_of
from ngn.components.attention import use_cuttable_attention
from ngn.components.low_rank import Bottleneck
from ngn.cuts import owned
from ngn.learner.hooked import HookedAxis
from ngn.sizes.base import Maker, Size
from ngn.sizes.named import TracedSize
from ngn.tracing.found import FoundSizes, SizeGroup, Uncut, pattern_of
from ngn.tracing.groups import traced_sizes


def attach_found(model: nn.Module, found: FoundSizes, make: Maker) -> list[HookedAxis]:
    """Make the sizes of ``found`` learnable."""
    use_cuttable_attention([cut.module for group in found for cut in group.cuts])
    axes = []
    for group in found:
        what = make(group.name, group.length), group.cuts, group.counts, -1, group.order, group.name, group.unit
        units, read, narrow = group.units or group.length, group.consumers, group.normalised
        axes.append(HookedAxis(*what, units=units, consumers=read, costs=found.costs, normalised=narrow))
    for axis in axes:
        axis.attach()
    return axes


def without_failed(found: FoundSizes, axes: Sequence[HookedAxis], failed: Mapping[OrderedAxis, str]) -> FoundSizes:
    """Detach the axes of ``found`` that failed their trial, and list them as fixed, with the difference of outputs."""
    kept, fixed = [], [*found.fixed]
    for group, axis in zip(found, axes, strict=True):
        if axis in failed:
            axis.detach()
            fixed.append(Uncut(group.members, group.length, failed[axis]))
        else:
            kept.append(group)
    return replace(found, groups=tuple(kept), fixed=tuple(fixed))


def traced(model: nn.Module, found: FoundSizes | None, example: Any, also: Also, residual: bool) -> FoundSizes:
    """Trace ``model``, unless ``found`` is a trace of it."""
    if any(isinstance(module, HookedAxis) and module.capacity is not None for module in model.modules()):
        raise ValueError(
            "sizes of this model are learned already: give all sizes in one call of learn_sizes, on a model built anew"
        )
    if found is None:
        return traced_sizes(model, dummy(model) if example is None else example, also, residual)
    if found.model is not model:
        raise ValueError("these sizes were found in another model: call find_sizes with this one")
    if residual:
        raise ValueError("residual= finds sizes that find_sizes does not: name sizes by patterns, or leave sizes= out")
    return found


def chosen_of(
    found: FoundSizes, matched: Sequence[tuple[Size, list[str], bool]], maker: Callable[[Size | None], Maker]
) -> tuple[FoundSizes, Maker, list[set[str]]]:
    """The groups that patterns choose, what makes the capacity of each, and sets of which one at least has to be cut.

    These are the sizes of a pattern; without a wildcard, each of them.
    """
    chosen: dict[str, SizeGroup] = {}
    makers: dict[str, Maker] = {}
    wanted: list[set[str]] = []
    left: dict[str, Uncut] = {}
    for size, names, alone in matched:
        if not isinstance(size, TracedSize):
            continue
        own: dict[str, SizeGroup] = {}
        uneven: dict[str, Uncut] = {}
        for name in names:
            groups = size.chosen(found, name, None if alone or size.shared else uneven)
            if not groups and alone:
                raise ValueError(size.refusal(found, name))
            own = groups | own
        if not own:
            raise ValueError(next((each.reason for each in uneven.values()), size.refusal(found, names[0])))
        left |= uneven
        if twice := [own[name].name for name in own if name in chosen]:
            raise ValueError(f"{twice[0]} already has a learned size: if two patterns match it, remove one")
        chosen |= own
        called = {group.name for group in own.values()}
        makers |= dict.fromkeys(called, maker(size))
        wanted += [{each} for each in called] if alone or size.shared else [called]
    chosen |= (more := {group.name: group for group in found if group.normalised and group.name not in chosen})
    makers |= dict.fromkeys(more, maker(None))
    found = replace(found, fixed=(*found.fixed, *(each for name, each in left.items() if name not in chosen)))
    return found.chosen(chosen), lambda name, K: makers[name](name, K), wanted


def dummy(model: nn.Module) -> Any:
    """The input that a model of transformers brings with it; a ValueError without one, or if the model fails on it."""
    if not (inputs := getattr(model, "dummy_inputs", None)):
        raise ValueError("pass example=, an input of it: a tuple for several arguments, a dictionary for named ones")
    device = next(model.parameters(), torch.empty(())).device
    inputs = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in inputs.items()}
    try:
        with evaluating(model), torch.random.fork_rng(), torch.no_grad():
            outputs_on(model, inputs)
    except ExampleError as fault:
        raise ValueError(f"{fault}. It is the model's dummy_inputs: pass example=, an input of it") from fault
    return inputs


def matched_of(model: nn.Module, sizes: Mapping[str, Size | None]) -> list[tuple[Size, list[str], bool]]:
    """Each size with the names of its modules, and whether its pattern names a single one without a wildcard."""
    matches = {pattern: _matches(model, pattern) for pattern in sizes}
    out = {name for pattern, size in sizes.items() if size is None for name in matches[pattern]}
    matched = []
    for pattern, size in sizes.items():
        if size is not None:
            if not (names := [name for name in matches[pattern] if name not in out]):
                raise ValueError(f"{pattern!r} matches only modules that another pattern leaves out")
            taken = [name for name in names if size.takes(model.get_submodule(name))] if "*" in pattern else []
            matched.append((size, taken or names, "*" not in pattern))
    return matched


def _matches(model: nn.Module, pattern: str) -> list[str]:
    """Return the names of the modules that ``pattern`` matches."""
    expression = pattern_of(pattern)
    names = [name for name, _ in model.named_modules()]
    if matched := [name for name in names if expression.fullmatch(name) and bool(name) == bool(pattern)]:
        return matched
    general = [*dict.fromkeys(re.sub(r"(?<![^.])\d+(?=\.)", "*", name) for name in names if name)]
    near = difflib.get_close_matches(pattern, general, cutoff=0.4) or general[:3]
    raise ValueError(f"no module matches {pattern!r}; did you mean {', '.join(near)}?")


def refuse_uncuttable(model: nn.Module, axes: Sequence[OrderedAxis]) -> None:
    """Refuse tensors that cannot be cut, by a ValueError: too short, tied to another module, cut by another axis."""
    paths = {id(module): path for path, module in model.named_modules()}
    bases = {id(module.base): path for path, module in model.named_modules() if isinstance(module, Bottleneck)}
    holders: dict[int, list[tuple[int, str]]] = {}
    for module in model.modules():
        for name, value in module._parameters.items():
            holders.setdefault(id(value), []).append((id(module), name))
    taken: list[tuple[tuple[int, int], range, OrderedAxis]] = []
    for axis in axes:
        places = {(id(cut.module), cut.name) for cut in axis.cuts}
        for cut in axis.cuts:
            what = f"{axis.name}: {paths[id(cut.module)]}.{cut.name}".replace(" .", " ")
            held, value = owned(cut), value_of(cut.module, cut.name)
            if not isinstance(value, Tensor):
                continue
            if id(cut.module) in bases:
                raise ValueError(
                    f"{what} has a learned rank next to it ({bases[id(cut.module)]}), which would not be cut: learn "
                    f"one of the two sizes{' (leave residual= out)' * axis.normalised}"
                )
            dim, span = cut.dim % value.dim(), range(max(0, cut.start), cut.start + axis.places * cut.width)
            if span.stop > value.shape[dim]:
                raise ValueError(
                    f"{what} has {value.shape[dim]} entries along dimension {dim}; the size needs {span.stop}"
                )
            if others := [place for place in holders.get(id(held), []) if place not in places]:
                raise ValueError(
                    f"{what} is tied to {paths[others[0][0]]}.{others[0][1]}, which would not be cut: untie them"
                )
            for place, other, by in taken:
                if place == (id(held), dim) and by is not axis and other[0] <= span[-1] and span[0] <= other[-1]:
                    raise ValueError(f"{what} is also cut by {by.name}: learn one of the two sizes")
            taken.append(((id(held), dim), span, axis))
