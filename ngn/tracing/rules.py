"""Rules: what operations of torch do to the dimensions of their tensors.

A rule takes a trace, the arguments of an operation by name, and its result; it returns the dimensions of each tensor of
the result. Here are elementwise functions and constants; ``movement.py``, ``mixing.py`` and ``products.py`` have the
others. An operation without a rule fixes what it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ngn.tracing.dims import ONE, Dim
from ngn.tracing.record import Trace

Dims: TypeAlias = list[Dim]
Rule: TypeAlias = Callable[[Trace, dict[str, Any], Any], Any]


def rules() -> tuple[dict[str, Rule], Callable[[str], Callable[[Rule], Rule]]]:
    """An empty table of rules by the names of operations, without overloads; and a decorator that adds one to it."""
    table: dict[str, Rule] = {}

    def rule(names: str) -> Callable[[Rule], Rule]:
        def register(function: Rule) -> Rule:
            table.update(dict.fromkeys(names.split(), function))
            return function

        return register

    return table, rule


RULES, rule = rules()


def broadcast(trace: Trace, tensors: Sequence[Tensor], shape: Sequence[int]) -> Dims:
    """Unite the dimensions of ``tensors`` that meet in a result of this ``shape``, and return the result's."""
    dims: Dims = [ONE] * len(shape)
    for tensor in tensors:
        own = trace.dims(tensor)
        for place, dim in enumerate(own, len(shape) - len(own)):
            if dim.size == 1 or place < 0:
                continue
            if dims[place] is ONE:
                dims[place] = dim
            else:
                trace.unite(dims[place], dim)
    return [trace.alike(size, "expanded") if size != dim.size else dim for size, dim in zip(shape, dims, strict=True)]


def elementwise(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    """Every entry of the result depends on the entries at its place alone."""
    given = [value for value in tree_leaves([*args.values()]) if isinstance(value, Tensor)]
    outs = out if isinstance(out, (list, tuple)) else [out]
    dims = broadcast(trace, given, outs[0].shape)
    return [dims for _ in outs]


for _names in (
    "copy_ _to_copy clone contiguous detach detach_ alias lift lift_fresh hardswish hardswish_ hardsigmoid",
    "hardsigmoid_ relu6 gelu_ silu_ mish_ leaky_relu_ elu_ hardtanh_ square_ _prelu_kernel log_sigmoid_forward",
    "rrelu_with_noise masked_fill_ nan_to_num native_dropout _fused_dropout alpha_dropout",
    "bernoulli bernoulli_ normal_ uniform_ complex polar softplus_backward elu_backward leaky_relu_backward",
    "hardswish_backward hardsigmoid_backward hardtanh_backward mish_backward log_sigmoid_backward",
):
    rule(_names)(elementwise)


@rule("zeros_like ones_like empty_like full_like rand_like randn_like fill_ zero_ resize_as_")
def _like(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    dims = trace.dims(args["self"])
    return [dims if len(dims) == out.dim() else trace.fresh(out.shape, "a constant")]


@rule("new_zeros new_ones new_full new_empty new_empty_strided zeros ones empty full empty_strided")
def _alike(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    """A program may make them as long as what they meet. If it types a length, the trial of the cut finds it."""
    return [[trace.alike(size, "a constant of the program") for size in out.shape]]


@rule("arange eye linspace scalar_tensor rand randn randint randperm tril_indices triu_indices")
def _constant(trace: Trace, args: dict[str, Any], out: Any) -> Any:
    return [trace.fresh(out.shape, "a constant of the program")]
