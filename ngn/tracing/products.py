"""What products, convolutions, normalisations and pooling do to the dimensions of their tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ngn.tracing.dims import Dim, Misfit, factored, product, reason
from ngn.tracing.record import Trace
from ngn.tracing.rules import Dims, broadcast, rule


def _matrices(trace: Trace, a: Tensor, b: Tensor) -> list[Dim]:
    """The dimensions of the product of matrices, or of batches of them."""
    *batch_a, rows, inner = trace.dims(a)
    *batch_b, other, columns = trace.dims(b)
    for one, two in zip(batch_a, batch_b, strict=True):
        trace.unite(one, two)
        trace.batches.append(one)
    trace.contract(a, b, (inner, other))
    trace.work.append([*batch_a, rows, inner, columns])
    return [*batch_a, rows, columns]


@rule("mm bmm matmul")
def _mm(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    return [_matrices(trace, args["self"], args["mat2"] if "mat2" in args else args["other"])]


@rule("addmm baddbmm _addmm_activation _sparse_addmm")
def _addmm(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    a, b = (args["mat1"], args["mat2"]) if "mat1" in args else (args["batch1"], args["batch2"])
    dims = _matrices(trace, a, b)
    trace.unite_last(trace.dims(args["self"]), dims)
    return [dims]


@rule("linear")
def _linear(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    *lead, inner = trace.dims(args["input"])
    columns, other = trace.dims(args["weight"])
    trace.contract(args["input"], args["weight"], (inner, other))
    if args.get("bias") is not None:
        trace.unite(trace.dims(args["bias"])[0], columns)
    trace.work.append([*lead, inner, columns])
    return [[*lead, columns]]


@rule("mv dot")
def _mv(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    a, b = args["self"], args["vec"] if "vec" in args else args["tensor"]
    *lead, inner = trace.dims(a)
    trace.contract(a, b, (inner, trace.dims(b)[0]))
    trace.work.append([*lead, inner])
    return [lead]


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
    for dim in (a[0], b[0]):
        trace.fix(dim, "entries are sent to experts")
    trace.contract(args["self"], args["mat2"], (a[1], b[1]))
    block = 16 // args["mat2"].element_size()
    for dim in b[1:]:
        if dim.size % block == 0 and reason(dim) is None:
            try:
                trace.fix(factored(dim, block)[1], "rows of a grouped product take whole blocks of 16 bytes,")
            except Misfit:
                trace.fix(dim, "rows of a grouped product take whole blocks of 16 bytes,")
    trace.work.append([a[0], a[1], b[2]])
    return [[a[0], b[2]]]


@rule("convolution _convolution convolution_overrideable")
def _convolution(trace: Trace, args: dict[str, Any], out: Tensor) -> list[Dims]:
    batch, channels, *places = trace.dims(args["input"])
    first, second, *kernel = trace.dims(args["weight"])
    transposed, groups = args["transposed"], args["groups"]
    for dim in (*places, *kernel):
        trace.fix(dim, "positions")
    if groups == 1:
        into, produced = (first, second) if transposed else (second, first)
        trace.contract(args["input"], args["weight"], (channels, into))
    else:
        try:
            group, within = factored(channels, channels.size // groups)
            of_weight, each = factored(first, first.size // groups)
        except Misfit:
            return trace.unknown(args, out)
        trace.unite(group, of_weight)
        into = each if transposed else second
        trace.unite(within, into)
        for dim in (within, each, second):
            trace.fix(dim, "a grouped convolution loses whole groups only,")
        produced = product(of_weight, second if transposed else each)
    if args.get("bias") is not None:
        trace.unite(trace.dims(args["bias"])[0], produced)
    after = trace.fresh(out.shape[2:], "positions")
    trace.work.append([batch, *(places if transposed else after), *kernel, into, produced])
    return [[batch, produced, *after]]


@rule("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm batch_norm")
@rule("miopen_batch_norm _batch_norm_with_update _batch_norm_no_update _native_batch_norm_legit_functional")
def _batch_norm(trace: Trace, args: dict[str, Any], out: Tensor, *more: Tensor) -> list[Dims]:
    dims = trace.dims(args["input"])
    for name in ("weight", "bias", "running_mean", "running_var"):
        if args.get(name) is not None:
            trace.unite(trace.dims(args[name])[0], dims[1])
    if args.get("training"):  # the trace is in eval mode, so the program asks for it: to standardise a weight
        for dim in (dims[0], *dims[2:]):
            trace.fix(dim, "a norm over it")
    return [dims, *([dims[1]] if o.dim() == 1 and len(o) else trace.fresh(o.shape, "statistics") for o in more)]


@rule("native_layer_norm _fused_rms_norm rms_norm layer_norm")
def _layer_norm(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    dims = trace.dims(args["input"])
    last = dims[len(dims) - len(args["normalized_shape"]) :]
    for name in ("weight", "bias"):
        if args.get(name) is not None:
            for dim, own in zip(trace.dims(args[name]), last, strict=True):
                trace.unite(dim, own)
    for dim in last:
        trace.fix(dim, "a norm over it")
    return [dims]


@rule("native_group_norm")
def _group_norm(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    dims = trace.dims(args["input"])
    for name in ("weight", "bias"):
        if args.get(name) is not None:
            trace.unite(trace.dims(args[name])[0], dims[1])
    try:
        _, within = factored(dims[1], dims[1].size // args["group"])
        trace.fix(within, "a group norm loses whole groups only,")
    except Misfit:
        trace.fix(dims[1], "a group norm over it")
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
    for dim in dims[len(lead) :]:
        trace.fix(dim, "positions")
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
    for dim in (query[-2], query[-1], key[-2], value[-2]):
        trace.fix(dim, "attention")
    mask = args.get("attn_mask", args.get("attn_bias"))
    if mask is not None:
        broadcast(trace, [mask], [*(dim.size for dim in query[:-1]), key[-2].size])
        for dim, own in zip(trace.dims(mask)[::-1], [key[-2], *query[-2::-1]], strict=False):
            if dim.size != 1:
                trace.unite(dim, own)
    trace.batches += query[:-2]
    trace.work += [[*query, key[-2]], [*query[:-1], key[-2], value[-1]]]
    return [[*query[:-1], value[-1]]]


@rule("flex_attention")
def _flexible(trace: Trace, args: dict[str, Any], *outs: Tensor) -> list[Dims]:
    """Attention with functions of positions; if these read tensors, or blocks differ by head, nothing is known."""
    query, key, value, *others = args["args"]
    tensors = [each for each in tree_leaves(others) if isinstance(each, Tensor)]
    if any(each.dim() < 3 or each.shape[1] != 1 for each in tensors):
        return trace.unknown(args, outs)
    return _attention(trace, {"query": query, "key": key, "value": value}, *outs)
