"""Rules: what operations of torch do to the dimensions of their tensors.

A rule takes a trace, the arguments of an operation by name, and the tensors of its result; it returns the dimensions of
these. Those that it leaves out are statistics, of which nothing is cut. Here are elementwise functions, constants, and
operations whose entries meet or are chosen along a dimension; ``movement.py`` and ``products.py`` have the others. An
operation without a rule fixes what it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ngn.components.attention import Attention
from ngn.tracing.dims import ONE, Dim
from ngn.tracing.record import Trace, tensors_in

Dims: TypeAlias = list[Dim]
Rule: TypeAlias = Callable[..., list[Dims]]


RULES: dict[str, Rule] = {}
"""By the names of operations, without overloads."""


def rule(names: str) -> Callable[[Rule], Rule]:
    """A decorator that makes a function the rule of operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


def elementwise(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    """Every entry of the result depends on the entries at its place alone: dimensions that meet there are united."""
    shape = outs[0].shape
    dims: Dims = [ONE] * len(shape)
    for own in map(trace.dims, tensors_in(args)):
        for place, dim in enumerate(own, len(shape) - len(own)):
            if dim.size == 1 or place < 0:
                continue
            if dims[place] is ONE:
                dims[place] = dim
            else:
                trace.unite(dims[place], dim)
    pairs = zip(shape, dims, strict=True)
    return [[trace.alike(size, "expanded") if size != dim.size else dim for size, dim in pairs]] * len(outs)


for _names in (
    "copy_ _to_copy clone contiguous detach detach_ alias lift lift_fresh hardswish hardswish_ hardsigmoid",
    "hardsigmoid_ relu6 gelu_ silu_ mish_ leaky_relu_ elu_ hardtanh_ square_ _prelu_kernel log_sigmoid_forward",
    "rrelu_with_noise masked_fill_ nan_to_num native_dropout _fused_dropout alpha_dropout",
    "bernoulli bernoulli_ normal_ uniform_ complex polar softplus_backward elu_backward leaky_relu_backward",
    "hardswish_backward hardsigmoid_backward hardtanh_backward mish_backward log_sigmoid_backward",
):
    rule(_names)(elementwise)


@rule("zeros_like ones_like empty_like full_like rand_like randn_like fill_ zero_ resize_as_")
def _like(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    dims = trace.dims(args["self"])
    return [dims if len(dims) == out.dim() else trace.fresh(out.shape, "a constant")]


@rule("new_zeros new_ones new_full new_empty new_empty_strided zeros ones empty full empty_strided")
def _alike(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    """A program may make them as long as what they meet. If it types a length, the trial of the cut finds it."""
    return [[trace.alike(size, "a constant of the program") for size in out.shape]]


@rule("arange eye linspace scalar_tensor rand randn randint randperm tril_indices triu_indices")
def _constant(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    return [trace.fresh(out.shape, "a constant of the program")]


def _list(value: Any) -> list[int]:
    return [] if value is None else [value] if isinstance(value, int) else list(value)


@rule("sum mean amax amin max min argmax argmin var std var_mean std_mean logsumexp any all prod norm")
@rule("linalg_vector_norm median nansum nanmean count_nonzero aminmax mode kthvalue")
def _reduced(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    if isinstance(args.get("other"), Tensor):
        return elementwise(trace, args, *outs)
    dims = trace.dims(args["self"])
    along = {place % max(1, len(dims)) for place in _list(args.get("dim"))} or {*range(len(dims))}
    for place in along & {*range(len(dims))}:
        mean = trace.operation == "mean"
        if mean and args.get("keepdim") and place == len(dims) - 1:  # as in the RMS norm of a program
            trace.normalise("mean over it", dims[place])
        elif not (mean and isinstance(trace.stack[-1], Attention)):  # its mean is over what is left
            trace.fix(f"{trace.operation} over it", dims[place])
    left = [
        ONE if place in along else dim for place, dim in enumerate(dims) if place not in along or args.get("keepdim")
    ]
    return [left if len(left) == o.dim() else trace.fresh(o.shape, trace.operation) for o in outs]


@rule("_softmax _log_softmax _safe_softmax softmax log_softmax cumsum cumprod logcumsumexp cummax cummin sort flip")
@rule("renorm argsort cumsum_ topk tril triu tril_ triu_ roll rot90 _fft_r2c _fft_c2r _fft_c2c")
def _mixed(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    """Entries along a dimension change places or meet; the others stay apart."""
    dims = list(trace.dims(args["self"]))
    along = _list(args["dims"] if "dims" in args else args.get("dim"))
    usual = [-2, -1] if trace.operation.startswith("tri") else [-1]
    along = along or ([*range(len(dims))] if trace.operation in ("roll", "rot90") else usual)
    for place in along if dims else ():
        trace.fix(f"{trace.operation.strip('_')} over it", dims[place])
        if dims[place].size != outs[0].shape[place]:
            dims[place] = trace.new(outs[0].shape[place], trace.operation)
    return [dims] * len(outs)


@rule("embedding _embedding_bag _embedding_bag_forward_only")
def _embedded(trace: Trace, args: dict[str, Any], out: Tensor, *of_bags: Tensor) -> list[Dims]:
    weight = trace.dims(args["weight"])
    trace.fix("indexed", weight[0])
    return [[*(trace.fresh([len(out)], "bags") if of_bags else trace.dims(args["indices"])), weight[1]]]


@rule("index _unsafe_index")
def _indexed(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    dims = trace.dims(args["self"])
    used = _places(args["indices"])
    trace.fix("indexed", *(dims[place] for place in used))
    rest = [dim for place, dim in enumerate(dims) if place not in used]
    size = out.dim() - len(rest)
    at = used[0] if used and used[-1] - used[0] == len(used) - 1 else 0
    return [[*rest[:at], *trace.fresh(out.shape[at : at + size], "indexed"), *rest[at:]]]


def _places(indices: Sequence[Tensor | None]) -> list[int]:
    """The dimensions that ``indices`` select from; a mask selects from several."""
    used: list[int] = []
    place = 0
    for index in indices:
        width = 1 if index is None or index.dtype not in (torch.bool, torch.uint8) else index.dim()
        used += [] if index is None else range(place, place + width)
        place += width
    return used


@rule("index_select gather index_add index_add_ index_copy index_copy_ scatter scatter_ scatter_add scatter_add_")
@rule("take_along_dim scatter_reduce scatter_reduce_ index_fill index_fill_")
def _along(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    """Entries are moved along one dimension by their number; the other dimensions stay."""
    dims, along = list(trace.dims(args["self"])), args.get("dim", 0) % max(1, args["self"].dim())
    for name in ("index", "source", "src", "tensor"):
        other = trace.dims(args[name]) if isinstance(args.get(name), Tensor) else []
        beside = len(other) == len(dims) and (name != "index" or not trace.operation.startswith("index"))
        for place, dim in enumerate(other):
            if beside and place != along and dim.size == dims[place].size:
                trace.unite(dim, dims[place])
                continue
            trace.fix("indexed", dim, *([dims[place]] if beside else []))
    trace.fix("indexed", dims[along])
    return [
        [dim if dim.size == size else trace.new(size, "indexed") for dim, size in zip(dims, out.shape, strict=True)]
    ]


@rule("index_put index_put_ _index_put_impl_ _unsafe_index_put")
def _put(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    dims, values = trace.dims(args["self"]), trace.dims(args["values"])
    used = _places(args["indices"])
    kept = dims[used[-1] + 1 :] if used else dims
    trace.fix("indexed", *dims[: len(dims) - len(kept)], *values[: max(0, len(values) - len(kept))])
    trace.unite_last(values, kept)
    return [dims]


@rule("_weight_norm_interface _weight_norm")
def _weight_norm(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    dims, along = trace.dims(args["v"]), args.get("dim", 0)
    for place, (dim, own) in enumerate(zip(dims, trace.dims(args["g"]), strict=True)):
        if place == along:
            trace.unite(dim, own)
        else:
            trace.fix("a norm over it", dim)
    return [dims]


@rule("roi_align roi_pool")
def _regions(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    """Regions of images, torchvision's: the channels stay, the other entries meet."""
    images, channels, *inside = trace.dims(args["input"])
    trace.fix("regions of it are read", *trace.dims(args["rois"]), images, *inside)
    return [[regions, channels, *places] for regions, _, *places in (trace.fresh(o.shape, "regions") for o in outs)]
