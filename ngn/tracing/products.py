"""What products, convolutions, normalisations and pooling do to the dimensions of their tensors."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from torch import Tensor

from ngn.tracing.dims import Misfit, factored, product, reason
from ngn.tracing.movement import divided
from ngn.tracing.record import Trace, tensors_in
from ngn.tracing.rules import Dims, rule

_FACTORS = ("mat1 mat2", "batch1 batch2", "self mat2", "self other", "input weight", "self vec", "self tensor")
"""Names of the two arguments that an operation multiplies; first those of a sum, which has ``self``, too."""


@rule("mm bmm matmul mv dot linear addmm baddbmm _addmm_activation _sparse_addmm")
def _product(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    """Products of matrices, or of batches of them, and of a matrix and a vector; a bias or a matrix may be added."""
    names = next((one, two) for one, two in map(str.split, _FACTORS) if one in args and two in args)
    a, b = (args[name] for name in names)
    *rows, inner = trace.dims(a)
    of_b = trace.dims(b)[::-1] if "weight" in args else trace.dims(b)
    batch, (other, *columns) = of_b[:-2], of_b[-2:]
    for one, two in zip(rows, batch, strict=False):
        trace.unite(one, two)
        trace.batches.append(one)
    trace.contract(a, b, (inner, other))
    trace.work.append([*rows, inner, *columns])
    added = None if "self" in names else args.get("bias" if "weight" in args else "self")
    if added is not None:
        trace.unite_last(trace.dims(added), [*rows, *columns])
    return [[*rows, *columns]]


@rule("mkldnn_rnn_layer _cudnn_rnn miopen_rnn")
def _recurrent(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    """Nothing of a recurrent layer is cut; every weight matrix meets every sample of every step."""
    dims = trace.unknown(args, outs)
    weights = [args["weight0"], args["weight1"]] if "weight0" in args else args["weight"]
    trace.work += [[*trace.dims(args["input"])[:-1], *trace.dims(w)] for w in weights if w.dim() > 1]
    return dims


@rule("_grouped_mm")
def _grouped(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    a, b = trace.dims(args["self"]), trace.dims(args["mat2"])
    if len(a) != 2 or len(b) != 3 or args.get("bias") is not None:
        return trace.unknown(args, out)
    trace.fix("entries are sent to experts", a[0], b[0])
    trace.contract(args["self"], args["mat2"], (a[1], b[1]))
    block = 16 // args["mat2"].element_size()
    for dim in b[1:]:
        if dim.size % block == 0 and reason(dim) is None:
            with suppress(Misfit):
                _, dim = factored(dim, block)
            trace.fix("rows of a grouped product take whole blocks of 16 bytes,", dim)
    trace.work.append([a[0], a[1], b[2]])
    return [[a[0], b[2]]]


@rule("convolution _convolution convolution_overrideable")
def _convolution(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    batch, channels, *places = trace.dims(args["input"])
    first, second, *kernel = trace.dims(args["weight"])
    transposed, groups = args["transposed"], args["groups"]
    trace.fix("positions", *places, *kernel)
    if groups == 1:
        into, produced = (first, second) if transposed else (second, first)
        trace.contract(args["input"], args["weight"], (channels, into))
    else:
        both = [(dim, [groups, dim.size // groups]) for dim in (channels, first)]
        (group, within), (of_weight, each) = (divided(trace, *pair, "a grouped convolution") for pair in both)
        trace.unite(group, of_weight)
        into = each if transposed else second
        trace.unite(within, into)
        trace.fix("a grouped convolution loses whole groups only,", within, each, second)
        produced = product(of_weight, second if transposed else each)
    if args.get("bias") is not None:
        trace.unite(trace.dims(args["bias"])[0], produced)
    after = trace.fresh(out.shape[2:], "positions")
    trace.work.append([batch, *(places if transposed else after), *kernel, into, produced])
    return [[batch, produced, *after]]


@rule("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm batch_norm")
@rule("miopen_batch_norm _batch_norm_with_update _batch_norm_no_update _native_batch_norm_legit_functional")
@rule("native_layer_norm _fused_rms_norm rms_norm layer_norm native_group_norm")
def _norm(trace: Trace, args: dict[str, Any], out: Tensor, *more: Tensor) -> list[Dims]:
    dims = trace.dims(args["input"])
    own = dims[len(dims) - len(args["normalized_shape"]) :] if "normalized_shape" in args else [dims[1]]
    for name in ("weight", "bias", "running_mean", "running_var"):
        if args.get(name) is not None:
            for dim, one in zip(trace.dims(args[name]), own, strict=True):
                trace.unite(dim, one)
    if "normalized_shape" in args and len(own) == 1:
        trace.normalise("a norm over it", *own)
    elif "normalized_shape" in args:
        trace.fix("a norm over it", *own)
    elif "group" in args:
        _, within = divided(trace, dims[1], [args["group"], dims[1].size // args["group"]], "a group norm over it")
        trace.fix("a group norm loses whole groups only,", within)
    else:
        if args.get("training"):  # the trace is in eval mode, so the program asks for it: to standardise a weight
            trace.fix("a norm over it", dims[0], *dims[2:])
        return [dims, *([dims[1]] if o.dim() == 1 and len(o) else trace.fresh(o.shape, "statistics") for o in more)]
    return [dims]


@rule("avg_pool1d avg_pool2d avg_pool3d max_pool2d max_pool1d max_pool3d max_pool2d_with_indices")
@rule("max_pool3d_with_indices _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d adaptive_max_pool2d")
@rule("adaptive_max_pool3d mkldnn_max_pool2d upsample_nearest1d upsample_nearest2d upsample_nearest3d")
@rule("upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact2d")
@rule("_upsample_bilinear2d_aa _upsample_bicubic2d_aa reflection_pad1d reflection_pad2d reflection_pad3d")
@rule("replication_pad1d replication_pad2d replication_pad3d max_unpool2d max_unpool3d upsample_nearest2d_aa")
@rule("adaptive_avg_pool1d adaptive_max_pool1d grid_sampler_2d")
def _spatial(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    """Positions become other positions; batch and channels stay."""
    dims = trace.dims(args["self"] if "self" in args else args["input"])
    number = next((int(digit) for digit in trace.operation if digit.isdigit()), 2)
    lead = dims[: len(dims) - number]
    trace.fix("positions", *dims[len(lead) :])
    for dim, own in zip(trace.dims(args["indices"]) if "indices" in args else (), lead, strict=False):
        trace.unite(dim, own)
    return [[*lead, *trace.fresh(o.shape[len(lead) :], "positions")] for o in outs]


@rule("_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention scaled_dot_product_attention")
@rule("_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math")
@rule("_scaled_dot_product_fused_attention_overrideable")
def _attention(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    query, key, value = (trace.dims(args[name]) for name in ("query", "key", "value"))
    if query[-3].size != key[-3].size:
        return trace.unknown(args, outs)
    for a, b, c in zip(query[:-2], key[:-2], value[:-2], strict=True):
        trace.unite(a, b)
        trace.unite(a, c)
    trace.unite(query[-1], key[-1])
    trace.fix("attention", query[-2], query[-1], key[-2], value[-2])
    mask = args.get("attn_mask", args.get("attn_bias"))
    if mask is not None:
        trace.unite_last(trace.dims(mask), [*query[:-1], key[-2]])
    trace.batches += query[:-2]
    trace.work += [[*query, key[-2]], [*query[:-1], key[-2], value[-1]]]
    return [[*query[:-1], value[-1]]]


@rule("flex_attention")
def _flexible(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    """Attention with functions of positions; if these read tensors, or blocks differ by head, nothing is known."""
    query, key, value, *others = args["args"]
    if any(each.dim() < 3 or each.shape[1] != 1 for each in tensors_in(others)):
        return trace.unknown(args, outs)
    return _attention(trace, {"query": query, "key": key, "value": value}, *outs)
