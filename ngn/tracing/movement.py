"""Rules of operations that move entries as they are: views, permutations, concatenations, slices, shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from ngn.tracing.dims import ONE, Dim, Misfit, equal, factored, joined, new, product, reason, span
from ngn.tracing.record import Trace
from ngn.tracing.rules import Dims, rule


def reshaped(trace: Trace, dims: Dims, shape: Sequence[int]) -> Dims:
    """The dimensions of a view of another ``shape``: products are split and merged."""
    if 0 in shape:
        trace.fix("an empty tensor", *dims)
        return trace.fresh(shape, "an empty tensor")
    result: Dims = []
    left, wanted = [dim for dim in dims if dim.size != 1], list(shape)
    while wanted:
        if (size := wanted.pop(0)) == 1:
            result.append(ONE)
            continue
        taken, sizes = [left.pop(0)], [size]
        while (have := prod(dim.size for dim in taken)) != (want := prod(sizes)):
            if have < want:
                taken.append(left.pop(0))
            else:
                sizes.append(wanted.pop(0))
        result += divided(trace, product(*taken), sizes)
    return result


def divided(trace: Trace, dim: Dim, sizes: list[int], across: str = "reshaped across its parts") -> Dims:
    """``dim`` as a product of factors of these ``sizes``; if they do not fit its parts, all are fixed: ``across``."""
    if why := reason(dim):
        return [new(size, why) for size in sizes]
    try:
        parts: Dims = []
        for size in sizes[:0:-1]:
            dim, inner = factored(dim, size)
            parts.append(inner)
        return [dim, *parts[::-1]]
    except Misfit:
        trace.fix(across, dim)
        return trace.fresh(sizes, across)


@rule("view _unsafe_view reshape _reshape_alias _reshape_copy view_copy squeeze unsqueeze squeeze_copy unsqueeze_copy")
@rule("flatten squeeze_ unsqueeze_ unflatten")
def _view(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    if args.get("dtype") is not None:
        return trace.unknown(args, out, "a view of another type")
    return [reshaped(trace, trace.dims(args["self"]), out.shape)]


@rule("t transpose permute transpose_ t_ numpy_T mT permute_copy transpose_copy")
def _permuted(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    dims = list(trace.dims(args["self"]))
    if "dims" in args:
        return [[dims[place] for place in args["dims"]]]
    first, second = args.get("dim0", 0), args.get("dim1", -1)
    if len(dims) > 1:
        dims[first], dims[second] = dims[second], dims[first]
    return [dims]


@rule("expand expand_copy repeat")
def _expanded(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    dims = trace.dims(args["self"])
    dims = [ONE] * (out.dim() - len(dims)) + dims
    if "repeats" in args:
        return [[product(trace.alike(n, "repeated"), dim) for n, dim in zip(args["repeats"], dims, strict=True)]]
    return [[dim if dim.size == n else trace.alike(n, "expanded") for dim, n in zip(dims, out.shape, strict=True)]]


@rule("cat concat concatenate stack")
def _joined(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    along, stacked = args.get("dim", 0) % out.dim(), trace.operation == "stack"
    held = [trace.dims(tensor) for tensor in args["tensors"]]
    if stacked:
        held = [[*dims[:along], ONE, *dims[along:]] for dims in held]
    elif not (held := [dims for dims in held if all(dim.size for dim in dims)]):
        return trace.unknown(args, out, "an empty tensor")
    for dims in held[1:]:
        for place, (one, other) in enumerate(zip(held[0], dims, strict=True)):
            if place != along:
                trace.unite(one, other)
    whole = trace.new(len(held), "the number of stacked tensors") if stacked else joined(*(d[along] for d in held))
    return [[*held[0][:along], whole, *held[0][along + 1 :]]]


@rule("split split_with_sizes chunk unsafe_split unsafe_split_with_sizes unsafe_chunk split_copy split_with_sizes_copy")
@rule("tensor_split")
def _pieces(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    along = args.get("dim", 0) % args["self"].dim()
    dims, results, ends = trace.dims(args["self"]), [], [0]
    for piece in outs:
        ends.append(ends[-1] + piece.shape[along])
        results.append([*dims[:along], span(dims[along], ends[-2], ends[-1]), *dims[along + 1 :]])
    equal(dims[along], ends[1:], trace.where)
    return results


@rule("slice narrow slice_copy narrow_copy")
def _sliced(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    source, along = args["self"], args.get("dim", 0) % args["self"].dim()
    dims = list(trace.dims(source))
    full, size, step = source.shape[along], out.shape[along], args.get("step") or 1
    start = slice(args.get("start"), None).indices(full)[0]
    if size == full and step == 1:
        return [dims]
    if step == 1 and size:
        trace.sliced(dims[along], start, start + size)
        dims[along] = span(dims[along], start, start + size)
    elif full % step == 0 and size == full // step:
        dims[along], inner = divided(trace, dims[along], [size, step], why := "every few entries are taken")
        trace.fix(why, inner)
    else:
        trace.fix("sliced", dims[along])
        dims[along] = trace.new(size, "sliced")
    return [dims]


@rule("select unbind select_copy unbind_copy")
def _selected(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    dims = list(trace.dims(args["self"]))
    trace.fix("single entries are selected", dims.pop(args.get("dim", 0) % len(dims)))
    return [dims] * len(outs)


@rule("constant_pad_nd")
def _padded(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    dims, pad = list(trace.dims(args["self"])), args["pad"]
    for place, before, after in zip(range(-1, -len(dims) - 1, -1), pad[::2], pad[1::2], strict=False):
        left = span(dims[place], max(0, -before), dims[place].size + min(0, after))
        ends = (trace.new(max(0, n), "padding") for n in (before, after))
        dims[place] = joined(next(ends), left, next(ends))
    return [dims]


@rule("glu")
def _glu(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    dims = list(trace.dims(args["self"]))
    along = args.get("dim", -1) % len(dims)
    half = dims[along].size // 2
    equal(dims[along], [half, 2 * half], trace.where)
    dims[along] = span(dims[along], 0, half)
    return [dims]


@rule("pixel_shuffle pixel_unshuffle")
def _pixels(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    *lead, channels, _, _ = trace.dims(args["self"])
    up = args.get("upscale_factor")
    size = up or args["downscale_factor"]
    if up is None:
        channels = product(channels, trace.new(size * size, "positions"))
    else:
        channels, inner = divided(trace, channels, [channels.size // size**2, size**2])
        trace.fix("positions", inner)
    return [[*lead, channels, *trace.fresh(out.shape[-2:], "positions")]]


@rule("channel_shuffle native_channel_shuffle")
def _shuffled(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    batch, channels, *rest = trace.dims(args["self"])
    outer, inner = divided(trace, channels, [args["groups"], channels.size // args["groups"]])
    trace.fix("the number of shuffled groups", outer)
    return [[batch, product(inner, outer), *rest]]


@rule("as_strided as_strided_")
def _strided(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    """Pooling to one pixel gives a tensor in ``channels_last`` the strides of one; no entry moves."""
    source = args["self"]
    strides, before = ([s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1] for t in (out, source))
    if source.shape != out.shape or strides != before or strides != sorted(strides, reverse=True):
        return trace.unknown(args, out)
    return [trace.dims(source)]


@rule("view_as_real view_as_real_copy view_as_complex view_as_complex_copy")
def _complex(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    dims = list(trace.dims(args["self"]))
    if out.dim() > len(dims):
        return [[*dims, trace.new(2, "real and imaginary parts")]]
    trace.fix("real and imaginary parts", dims[-1])
    return [dims[:-1]]


@rule("im2col")
def _columns(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    *lead, channels, height, width = trace.dims(args["self"])
    trace.fix("positions", height, width)
    window, places = trace.fresh([out.shape[-2] // channels.size, out.shape[-1]], "positions")
    return [[*lead, product(channels, window), places]]
