"""Sizes of models of transformers: the configuration that has them, tensors of other sizes, and what is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ngn.cuts import Choice, TensorCuts, along, kept_entries
from ngn.tracing.groups import traced_sizes

COUNTED = re.compile("head(?!.*dim)|inter|inner|hidden_(dim|size)|n_embd|d_model|ff|kv|expert")
"""Settings of configurations that may count heads, hidden units, experts or features of the residual stream."""


def on_meta(kind: type[Any], config: Any) -> Any:
    """A model of ``config`` without values."""
    with torch.device("meta"):
        return kind(type(config).from_dict(config.to_dict()))


def shapes(model: nn.Module) -> dict[str, list[int]]:
    """The shapes of a model's tensors, by name."""
    return {name: [*value.shape] for name, value in model.state_dict().items()}


def fits(small: Any, config: Any) -> bool:
    """Whether a model of ``config`` has the shapes of ``small``."""
    return shapes(on_meta(type(small), config)) == shapes(small)


def only(values: set[int]) -> int | None:
    """The value, if there is just one."""
    return values.pop() if len(values) == 1 else None


def fitted(small: Any, choose: Callable[[set[int]], int | None]) -> Any:
    """The configuration with the numbers of heads, hidden units and experts that ``choose`` takes from all layers.

    Lengths of tensors are affine in each number. Models of one and of two say how.
    """
    kind, known, wanted, headed = type(small), small.config.to_dict(), shapes(small), False
    heads, hidden = (getattr(small.config, name, None) for name in ("num_attention_heads", "hidden_size"))
    given = {"head_dim": known["head_dim"]} if "head_dim" in known else {}
    if known.get("head_dim") is None and isinstance(heads, int) and isinstance(hidden, int):
        known["head_dim"] = hidden // heads  # many classes derive it from the number of heads, unless it is given

    def lengths_of(**numbers: int) -> dict[str, list[int]]:
        return shapes(on_meta(kind, type(small.config).from_dict(known | numbers)))

    for key in sorted((key for key in known if COUNTED.search(key)), key=lambda key: "head" not in key):
        if type(known[key]) is not int and known[key] is not None:
            continue
        for step in (1, known.get("num_attention_heads") or 1):  # some classes ask for a multiple of it
            try:
                one, two = lengths_of(**{key: step}), lengths_of(**{key: 2 * step})
                break
            except Exception:  # no such model; configurations have errors of their own kinds
                continue
        else:
            continue
        if not one.keys() == two.keys() == wanted.keys():  # it counts modules
            continue
        lengths = [
            (length, a, b)
            for name in wanted
            for length, a, b in zip(wanted[name], one[name], two[name], strict=True)
            if a != b
        ]
        found = {step * (1 + (length - a) / (b - a)) for length, a, b in lengths}
        number = choose({int(each) for each in found}) if all(each.is_integer() for each in found) and found else None
        if number is not None and number > 0:
            headed, known[key] = headed or ("head" in key and number != known[key]), number
    if not headed:  # then it says nothing new
        known = {key: value for key, value in known.items() if key != "head_dim"} | given
    try:
        config = type(small.config).from_dict(known)
        on_meta(kind, config)
    except Exception:  # such as three heads where the hidden size is no multiple of three
        return None
    return config


def padded_to(small: Any, config: Any, example: Any) -> dict[str, Tensor]:
    """The tensors of ``small`` with zeros in the places that a model of ``config`` has beside.

    A trace of that model finds the places. Those of a size that ``small`` has come first, as in a cut. It is a
    ValueError if the trace does not explain the shapes.
    """
    whole = type(small)(type(config).from_dict(config.to_dict())).to(small.device, small.dtype).eval()
    paths = {id(module): path for path, module in whole.named_modules()}
    tensors, usual, parts = small.state_dict(), whole.state_dict(), dict[str, TensorCuts]()
    for group in traced_sizes(whole, example):
        places: dict[tuple[str, int], list[Any]] = {}
        for cut in group.cuts:
            name = f"{paths[id(cut.module)]}.{cut.name}".lstrip(".")
            places.setdefault((name, cut.dim % usual[name].dim()), []).append(cut)
        left = group.length
        for (name, dim), cuts in places.items():
            lost = usual[name].shape[dim] - tensors[name].shape[dim]
            left = min(left, group.length - lost // sum(cut.width for cut in cuts))
        choice = Choice(torch.arange(group.length) < left)
        for (name, _), cuts in places.items():
            parts.setdefault(name, []).extend((cut, choice) for cut in cuts)
    padded = {}
    for name, value in tensors.items():
        for dim in range(value.dim()):
            here = along(dim, usual[name], parts.get(name, []))
            index = kept_entries(usual[name].shape[dim], here).nonzero().flatten().to(value.device)
            if len(index) == value.shape[dim]:
                shape = [*value.shape[:dim], usual[name].shape[dim], *value.shape[dim + 1 :]]
                value = value.new_zeros(shape).index_copy_(dim, index, value)
        if value.shape != usual[name].shape:
            what = f"{name}: {[*tensors[name].shape]} is no cut of {[*usual[name].shape]}, or one that norms run over"
            raise ValueError(f"{what}, which zeros would change: leave padded= out")
        padded[name] = value
    return padded
