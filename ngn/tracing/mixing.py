"""Rules of operations whose entries meet or are chosen along a dimension: reductions, softmax, sorting, indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ngn.components.attention import Attention
from ngn.tracing.dims import ONE
from ngn.tracing.record import Trace
from ngn.tracing.rules import elementwise, rules

RULES, rule = rules()


def _list(value: Any) -> list[int]:
    return [] if value is None else [value] if isinstance(value, int) else list(value)


@rule("sum mean amax amin max min argmax argmin var std var_mean std_mean logsumexp any all prod norm")
@rule("linalg_vector_norm median nansum nanmean count_nonzero aminmax mode kthvalue")
def _reduced(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    if isinstance(args.get("other"), Tensor):
        return elementwise(trace, args, out)
    dims = trace.dims(args["self"])
    along = {place % max(1, len(dims)) for place in _list(args.get("dim"))} or {*range(len(dims))}
    for place in along & {*range(len(dims))}:
        if not (trace.operation == "mean" and isinstance(trace.stack[-1], Attention)):  # its mean is over what is left
            trace.fix(dims[place], f"{trace.operation} over it")
    left = [
        ONE if place in along else dim for place, dim in enumerate(dims) if place not in along or args.get("keepdim")
    ]
    outs = out if isinstance(out, (list, tuple)) else [out]
    return [left if len(left) == o.dim() else trace.fresh(o.shape, trace.operation) for o in outs]


@rule("_softmax _log_softmax _safe_softmax softmax log_softmax cumsum cumprod logcumsumexp cummax cummin sort flip")
@rule("renorm argsort cumsum_ topk tril triu tril_ triu_ roll rot90 _fft_r2c _fft_c2r _fft_c2c")
def _mixed(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    """Entries along a dimension change places or meet; the others stay apart."""
    dims = list(trace.dims(args["self"]))
    along = _list(args["dims"] if "dims" in args else args.get("dim"))
    along = along or (
        [-2, -1]
        if trace.operation.startswith("tri")
        else [-1]
        if trace.operation not in ("roll", "rot90")
        else [*range(len(dims))]
    )
    outs = out if isinstance(out, (list, tuple)) else [out]
    for place in along if dims else ():
        trace.fix(dims[place], f"{trace.operation.strip('_')} over it")
        if dims[place].size != outs[0].shape[place]:
            dims[place] = trace.new(outs[0].shape[place], trace.operation)
    return [dims for _ in outs]


@rule("embedding _embedding_bag _embedding_bag_forward_only")
def _embedded(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    weight = trace.dims(args["weight"])
    trace.fix(weight[0], "indexed")
    if isinstance(out, Tensor):
        return [[*trace.dims(args["indices"]), weight[1]]]
    return [[*trace.fresh([len(out[0])], "bags"), weight[1]], *(trace.fresh(each.shape, "bags") for each in out[1:])]


@rule("index _unsafe_index")
def _indexed(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    dims = trace.dims(args["self"])
    used = _places(args["indices"])
    for place in used:
        trace.fix(dims[place], "indexed")
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
def _along(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    """Entries are moved along one dimension by their number; the other dimensions stay."""
    dims, along = list(trace.dims(args["self"])), args.get("dim", 0) % max(1, args["self"].dim())
    for name in ("index", "source", "src", "tensor"):
        other = args.get(name)
        if (
            isinstance(other, Tensor)
            and other.dim() == len(dims)
            and (name != "index" or not trace.operation.startswith("index"))
        ):
            for place, dim in enumerate(trace.dims(other)):
                if place != along and dim.size == dims[place].size:
                    trace.unite(dim, dims[place])
                else:
                    trace.fix(dim, "indexed")
                    trace.fix(dims[place], "indexed")
        elif isinstance(other, Tensor):
            for dim in trace.dims(other):
                trace.fix(dim, "indexed")
    trace.fix(dims[along], "indexed")
    return [
        [dim if dim.size == size else trace.new(size, "indexed") for dim, size in zip(dims, out.shape, strict=True)]
    ]


@rule("index_put index_put_ _index_put_impl_ _unsafe_index_put")
def _put(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    dims, values = trace.dims(args["self"]), trace.dims(args["values"])
    used = _places(args["indices"])
    kept = dims[used[-1] + 1 :] if used else dims
    for dim in (*dims[: len(dims) - len(kept)], *values[: max(0, len(values) - len(kept))]):
        trace.fix(dim, "indexed")
    trace.unite_last(values, kept)
    return [dims]


@rule("_weight_norm_interface _weight_norm")
def _weight_norm(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    dims, along = trace.dims(args["v"]), args.get("dim", 0)
    for place, (dim, own) in enumerate(zip(dims, trace.dims(args["g"]), strict=True)):
        if place == along:
            trace.unite(dim, own)
        else:
            trace.fix(dim, "a norm over it")
    outs = out if isinstance(out, (list, tuple)) else [out]
    return [dims, *(trace.fresh(o.shape, "statistics") for o in outs[1:])]


@rule("roi_align roi_pool")
def _regions(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    """Regions of images, torchvision's: the channels stay, the other entries meet."""
    for dim in (*trace.dims(args["rois"]), *(dim for at, dim in enumerate(trace.dims(args["input"])) if at != 1)):
        trace.fix(dim, "regions of it are read")
    channels = trace.dims(args["input"])[1]
    outs = out if isinstance(out, (list, tuple)) else [out]
    return [[regions, channels, *places] for regions, _, *places in (trace.fresh(o.shape, "regions") for o in outs)]
