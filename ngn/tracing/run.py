"""Passes of a model on examples, in which every operation is seen."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ngn.checks import NONE, Also, Written, arguments, calls_of, copied, enter, outputs_on, uncompiled, untouched
from ngn.comparison import varied
from ngn.components.attention import use_cuttable_attention
from ngn.tracing import products  # noqa: F401 - its rules, and those that it imports
from ngn.tracing.dims import new
from ngn.tracing.record import AttributeInt, Trace, counting, shape_of, tensors_in
from ngn.tracing.rules import RULES, elementwise

_VIEWS = re.compile(
    "detach|alias|t|transpose|permute|_?(unsafe_)?view|reshape|_reshape_alias|select|slice|narrow|(unsafe_)?split|"
    "split_with_sizes|chunk|unbind|squeeze|unsqueeze|expand|_to_copy|clone|lift_fresh"
)
"""Operations whose results are parts of their first tensor, perhaps in another layout or type."""
_TAKING_SIZES = re.compile(
    "view|reshape|unflatten|split|expand|broadcast_to|repeat|tile|(new_)?(zeros|ones|full|empty)"
)
"""Functions of torch that take lengths of dimensions."""


@torch.no_grad()
def trace(model: nn.Module, example: Any, also: Also = NONE, residual: bool = False) -> Trace:
    """Follow the dimensions of all tensors through passes of ``model``, in eval mode and then in train mode.

    If they leave parameters out, such as experts without a token, passes on random numbers follow. The model is not
    modified: its modes, attributes and values are put back. Without values (``meta``) it is traced without values. The
    inputs are as for ``find_sizes``. It is an :class:`ExampleError` if the model fails on one in eval mode.
    """
    calls = calls_of(example, also)
    if any(p.is_meta for p in model.parameters()):
        calls = tree_map(lambda value: value.to("meta") if isinstance(value, Tensor) else value, calls)
    seen = Trace(model, residual)
    work: list[Any] | None = None
    with untouched(model) as written:
        with written:
            enter(model, training=False)
        for method, given in calls:
            try:
                _follow(seen, written, method, given)
            except Exception:
                outputs_on(model, given, method)
                raise
            work = work or seen.work
            seen.work = []
        with written:
            model.train()
        seen.training = True
        for call in calls:
            _follow_training(seen, written, *call)
        if seen.missed:
            with written:
                model.eval()
            seen.training = False
            for strength in (1.0, 10.0):
                for method, given in calls if seen.missed else ():
                    with suppress(Exception):  # the model need not take random numbers
                        _follow(seen, written, method, varied(given, strength))
    seen.work = work or []
    return seen


def _follow_training(seen: Trace, written: Written, method: str, example: Any) -> None:
    """Follow a pass in train mode; a norm over a batch needs two samples, so one that fails gets one more."""
    faults = []
    for longer in (False, True):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the pass in eval mode gave those that matter
                return _follow(seen, written, method, varied(example, longer=True) if longer else example)
        except Exception as fault:
            faults.append(str(fault).partition("\n")[0] or type(fault).__name__)
    warnings.warn(
        f"in train mode the model fails on the example ({faults[0]}), so what it computes there alone is not known. "
        "Pass an example that it takes in train mode, too",
        stacklevel=2,
    )


def _follow(seen: Trace, written: Written, method: str, example: Any) -> None:
    """Follow one pass, in the present mode."""
    model = seen.model
    args, named = arguments(copied(example))
    for value in tensors_in((args, named)):
        seen.set(value, [new(size, "is that of an input") for size in value.shape])
    seen.stack = [model]
    with uncompiled(), torch_attention(model), _calls(seen), counting(model), _Operations(seen, written), _Sizes(seen):
        outputs = (model if method == "forward" else getattr(model, method))(*args, **named)
    seen.finish(outputs)


@contextmanager
def torch_attention(model: nn.Module) -> Iterator[None]:
    """Give torch's attention modules a forward pass whose heads need not add up to the embedding, in plain products."""
    before = use_cuttable_attention(model.modules())
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        for module, same in before:
            module.__class__, module._qkv_same_embed_dim = nn.MultiheadAttention, same


@contextmanager
def _calls(seen: Trace) -> Iterator[None]:
    """Note which module is at work."""

    def enter(module: nn.Module, args: Any) -> None:
        seen.stack.append(module if id(module) in seen.paths else seen.stack[-1])

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        seen.stack.pop()
        if (held := seen.held.get(id(module))) is not None:
            seen.set(output, held.dims, held)
            seen.reached.add(held)

    every = nn.modules.module
    with every.register_module_forward_pre_hook(enter), every.register_module_forward_hook(leave, always_call=True):
        yield


class _Operations(TorchDispatchMode):
    """Applies the rule of every operation."""

    supports_higher_order_operators = True

    def __init__(self, seen: Trace, written: Written) -> None:
        super().__init__()
        self.seen, self.written = seen, written

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.written.note(func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        outs = [value for value in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(value, Tensor)]
        if not outs and not (isinstance(func, OpOverload) and func._schema.is_mutable):
            return out
        seen = self.seen
        name = seen.operation = func.__name__.partition(".")[0]
        rule = RULES.get(name)
        if isinstance(func, OpOverload):
            named = {arg.name: value for arg, value in zip(func._schema.arguments, args, strict=False)} | (kwargs or {})
            if rule is None and outs and torch.Tag.pointwise in func.tags:
                rule = elementwise
        else:  # with functions among its arguments, such as cond or flex_attention
            named = {"args": args, **(kwargs or {})}
        if any(value.is_nested for value in tensors_in((named, out))):
            seen.operation, rule = f"{name} of nested tensors", None
        with torch._C.DisableTorchFunction():
            made = seen.unknown(named, out) if rule is None else rule(seen, named, *outs)
            made = [*made, *(seen.fresh(shape_of(value), "statistics") for value in outs[len(made) :])]
            if any([dim.size for dim in dims] != shape_of(value) for dims, value in zip(made, outs, strict=False)):
                made = seen.unknown(named, out)
            viewed = tensors_in(args)[:1] if _VIEWS.fullmatch(name) else []
            source = seen.source(viewed[0]) if viewed else None
            for dims, value in zip(made, outs, strict=False):
                seen.set(value, dims, source)
        return out


class _Sizes(TorchFunctionMode):
    """Notes which attributes of modules a program takes for lengths of dimensions."""

    def __init__(self, seen: Trace) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        out = func(*args, **(kwargs or {}))
        if name == "__set__" and getattr(func, "__self__", None) is Tensor.data:
            for one, other in zip(*map(self.seen.dims, args), strict=False):
                self.seen.unite(one, other)
        if not _TAKING_SIZES.fullmatch(name):
            return out
        own, *rest = args if args and isinstance(args[0], Tensor) else (None, *args)
        sizes = [*rest, *(kwargs or {}).values()]
        flat = [part for value in sizes for part in (value if isinstance(value, (list, tuple)) else [value])]
        if not any(isinstance(value, AttributeInt) for value in flat):
            return out
        if name == "split":
            along = (rest[1] if len(rest) > 1 else (kwargs or {}).get("dim", 0)) % own.dim()
            pieces = [flat[0]] * len(out) if not isinstance(sizes[0], (list, tuple)) else list(sizes[0])
            pairs = [(size, self.seen.dims(piece)[along]) for size, piece in zip(pieces, out, strict=False)]
        else:
            at = 0
            if name == "unflatten":
                at, flat = flat[0] % own.dim(), flat[1:]
            pairs = [*zip(flat, self.seen.dims(out)[at:], strict=False)]
        self.seen.counted += [(size, dim) for size, dim in pairs if isinstance(size, AttributeInt) and size == dim.size]
        return out
