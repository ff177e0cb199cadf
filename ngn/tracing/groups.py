"""From a trace to sizes: which dimensions form a group, where they are cut, and which products read them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, takewhile
from math import prod
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

from ngn.checks import NONE, Also
from ngn.cuts import Cut, inputs_first, is_conv1d, kind_of
from ngn.tracing.dims import Dim, Leaf, Product, fix, leaves, positions, resolved
from ngn.tracing.found import Consumer, FoundSizes, SizeGroup, Uncut, listed, polynomial
from ngn.tracing.record import Held, Trace, attributes_of
from ngn.tracing.run import trace


def traced_sizes(model: nn.Module, example: Any, also: Also = NONE, residual: bool = False) -> FoundSizes:
    """The sizes of ``model``, with ``residual`` also those that norms run over; else as ``ngn.find_sizes``."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"find_sizes takes a model, an nn.Module, and an input of it; the model is a {kind_of(model)}")
    seen = trace(model, example, also, residual)
    if missed := [*seen.missed]:
        warnings.warn(
            f"no pass reaches {len(missed)} parameters: {listed(missed)}. Sizes of their lengths are left as they are. "
            "If your data reach them, pass more inputs: also={'forward': [x]}",
            stacklevel=3,
        )
    _fix_missed(seen)
    consumers = _consumers(seen)
    places: dict[Leaf, list[tuple[Held, int]]] = {}
    for held in seen.held.values():
        for place, dim in enumerate(held.dims):
            for leaf in dict.fromkeys(leaves(dim)):
                places.setdefault(leaf, []).append((held, place))
    for leaf, found in places.items():
        if leaf.fixed is None and any(positions(held.dims[place], leaf) is None for held, place in found):
            fix(leaf, "its entries cross")
    _fix_inner(seen, places, consumers)
    products = {"parameters": [held.dims for held in seen.held.values() if held.trained], "macs": seen.work}
    groups: dict[Leaf, SizeGroup] = {}
    for leaf, found in places.items():
        read = consumers.get(leaf) if leaf.fixed is None else None
        if read and not all(_read(held, place, read) for held, place in found):
            shares = {kind: _share(terms, leaf) for kind, terms in products.items()}
            groups[leaf] = _group(seen, leaf, found, read, shares)
    named = _named([*groups.values()])
    sizes = {leaf: group.name for leaf, group in zip(groups, named, strict=True)}
    costs = {kind: polynomial(terms, sizes) for kind, terms in products.items()}
    return FoundSizes(model, named, _fixed(seen, {*groups}), example, costs, also)


def _fix_missed(seen: Trace) -> None:
    """Fix what may be connected to a parameter that no pass has reached: dimensions of its lengths, flat ones, too."""
    lengths: dict[int, str] = {}
    for name, held in seen.missed.items():
        for dim in held.dims[: 2 if isinstance(held.module, _ConvNd) else None]:
            lengths.setdefault(dim.size, name)
    lengths.pop(1, None)
    for dims in (*(held.dims for held in seen.held.values()), *seen.activations) if lengths else ():
        flat = 1
        for dim in dims[::-1]:
            flat *= dim.size
            if missed := lengths.get(dim.size) or lengths.get(flat):
                fix(dim, f"no pass reaches {missed}, which has this length,")


def _consumers(seen: Trace) -> dict[Leaf, list[Consumer]]:
    """The products that read each leaf; a leaf in a product without a weight is fixed."""
    consumers: dict[Leaf, list[Consumer]] = {}
    tried = {leaf for _, _, summed, training in seen.contractions if not training for leaf in leaves(summed)}
    for site, held, summed, _ in seen.contractions:
        path = seen.paths[id(site)] or "the model"
        for leaf in dict.fromkeys(leaves(summed)):
            if leaf.fixed is None and leaf not in tried:
                fix(leaf, f"it is read in train mode alone, in {path},")
            if leaf.fixed is not None:
                continue
            if isinstance(site, (nn.Linear, _ConvNd)) or is_conv1d(site):
                consumer = Consumer(site, site, "weight", 0 if inputs_first(site) else 1, True)
            else:
                dims = [] if held is None else [n for n, dim in enumerate(held.dims) if leaf in leaves(dim)]
                if held is None or len(dims) != 1:
                    fix(leaf, f"a product of two activations in {path}")
                    continue
                weight = getattr(held.module, held.name)
                if not (weight.is_floating_point() or weight.is_complex()):  # no gate can multiply them
                    fix(leaf, f"integer weights in {path}")
                    continue
                consumer = Consumer(site, held.module, held.name, dims[0], False)
            if consumer not in consumers.setdefault(leaf, []):
                consumers[leaf].append(consumer)
    return consumers


def _fix_inner(seen: Trace, places: dict[Leaf, Any], consumers: dict[Leaf, list[Consumer]]) -> None:
    """Of two sizes that divide one dimension, such as heads and their entries, fix the inner one."""

    def visit(dim: Dim) -> None:
        if isinstance(dim, Leaf):
            return
        for part in dim.parts:
            visit(part)
        if isinstance(dim, Product):
            free = [{leaf for leaf in leaves(part) if leaf.fixed is None and consumers.get(leaf)} for part in dim.parts]
            outer = next((some for some in free if some), set())
            for leaf in set().union(*free) - outer:
                fix(leaf, "whole blocks of it are cut")

    for held in seen.held.values():
        for dim in held.dims:
            visit(resolved(dim))


def _read(held: Held, place: int, consumers: Sequence[Consumer]) -> bool:
    return any(
        (consumer.holder, consumer.name, consumer.dim) == (held.module, held.name, place) for consumer in consumers
    )


def _share(terms: Sequence[Sequence[Dim]], leaf: Leaf) -> float:
    """The part of a cost, a sum of products of lengths, that has a unit of ``leaf``."""

    def length(dim: Dim) -> int:
        dim = resolved(dim)
        if isinstance(dim, Leaf):
            return 0 if dim is leaf else dim.size
        return (prod if isinstance(dim, Product) else sum)(map(length, dim.parts))

    whole = sum(prod(dim.size for dim in dims) for dims in terms)
    return (whole - sum(prod(map(length, dims)) for dims in terms)) / max(1, whole)


def _group(
    seen: Trace,
    leaf: Leaf,
    found: Sequence[tuple[Held, int]],
    consumers: list[Consumer],
    shares: dict[str, float],
) -> SizeGroup:
    cuts: list[Cut] = []
    produced: list[str] = []
    makers: list[str] = []
    for held, place in found:
        read = _read(held, place, consumers)
        for module, name in held.places:
            for start, width in positions(held.dims[place], leaf) or []:
                cuts.append(Cut(module, name, place, width, start, fold=read and len(held.places) == 1))
        (makers if not read and len(held.dims) > 1 else produced).append(seen.paths[id(held.module)] or held.name)
    makers = makers or produced
    last = dict.fromkeys(seen.paths[id(consumer.holder)] for consumer in consumers)
    ordered = (*(name for name in dict.fromkeys(seen.paths[id(h.module)] for h, _ in found) if name not in last), *last)
    heads = any(leaf in leaves(dim) for dim in seen.batches)
    convolved = any(isinstance(held.module, _ConvNd) for held, _ in found)
    unit = "heads" if heads else "channels" if convolved else "units"
    counts = tuple(attributes_of(leaf, seen.counted))
    name = _common([*dict.fromkeys(makers)])
    both = shares["parameters"], shares["macs"]
    norm = any(leaf in leaves(dim) for dim in seen.normalised)
    return SizeGroup(name, unit, leaf.size, tuple(cuts), tuple(consumers), counts, ordered, *both, normalised=norm)


def _common(names: Sequence[str]) -> str:
    """The name of the module that has all of ``names``; if that is the model, the first of them."""
    parts = [name.split(".") for name in names]
    shared = [column[0] for column in takewhile(lambda column: len({*column}) == 1, zip(*parts, strict=False))]
    return ".".join(shared) or names[0]


def _named(groups: list[SizeGroup]) -> tuple[SizeGroup, ...]:
    """The groups with different names."""
    names = [group.name for group in groups]
    result: list[SizeGroup] = []
    for group in groups:
        name = group.name if names.count(group.name) == 1 else group.members[0]
        taken = {each.name for each in result} | {n for n in names if names.count(n) == 1 and n != group.name}
        unique = (f"{name}:{number}" if number > 1 else name for number in count(1))
        result.append(replace(group, name=next(each for each in unique if each not in taken)))
    return tuple(result)


def _fixed(seen: Trace, cut: set[Leaf]) -> tuple[Uncut, ...]:
    """The dimensions of weights, but for positions in kernels, of which nothing is cut; one entry for each reason."""
    found: dict[tuple[str, int], list[str]] = {}
    for held in seen.held.values():
        for place, dim in enumerate(held.dims):
            own = [*leaves(dim)]
            positions = isinstance(held.module, _ConvNd) and place > 1
            if own and held.trained and len(held.dims) > 1 and not positions and not cut & {*own}:
                why = next((leaf.fixed for leaf in own if leaf.fixed), "nothing reads it")
                found.setdefault((why, dim.size), []).append(seen.paths[id(held.module)])
    return tuple(Uncut(tuple(dict.fromkeys(names)), size, why) for (why, size), names in found.items())
