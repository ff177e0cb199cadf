"""Checks that a deployed copy is faithful: it contains every axis, and it does not call the original model."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ngn.axis import Cut, OrderedAxis


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of an example: a tuple has several, a dictionary named ones."""
    if isinstance(example, dict):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of ``state_dict``, a tied one once."""
    seen: set[int] = set()
    tensors = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            seen.add(id(value))
            tensors[name] = value
    return tensors


def is_frozen(value: Tensor) -> bool:
    """Whether ``value`` is a parameter that does not require gradients."""
    return isinstance(value, nn.Parameter) and not value.requires_grad


def axes_of(model: nn.Module) -> list[OrderedAxis]:
    """The axes of ``model`` that learn a size, in the order of its modules.

    Raises:
        ValueError: if an axis is not a submodule, or cuts a tensor of a module outside the model.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    axes = []
    for path, module in model.named_modules():
        for name, value in _attributes(module):
            if any(id(lost) not in paths and _has_axis(lost) for lost in _held(value)):
                raise ValueError(
                    f"{path or 'the model'}: .{name} holds an ordered axis that is not a submodule, so it would be "
                    "neither trained nor saved; use nn.ModuleList"
                )
        if isinstance(module, OrderedAxis) and module.capacity is not None:
            axes.append(module)
            for cut in module.cuts:
                if id(cut.module) not in paths and not _replaced(model, cut):
                    raise ValueError(
                        f"{path or 'the axis'} cuts {type(cut.module).__name__}.{cut.name}, "
                        "which is not part of the model; add that module to it"
                    )
    return axes


def _replaced(model: nn.Module, cut: Cut) -> bool:
    """Whether another module of ``model`` holds the tensor of ``cut``, as after conversion to SyncBatchNorm."""
    value = getattr(cut.module, cut.name, None)
    each = (held.get(cut.name) for module in model.modules() for held in (module._parameters, module._buffers))
    return value is None or any(value is other for other in each)


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the plain attributes of a module that may hold modules."""
    compiled = hasattr(type(module), "_opt_mod_attributes")  # torch.compile(module) makes its functions again in a copy
    for name, value in vars(module).items() if not compiled else ():
        plain = isinstance(value, (bool, int, float, str, Tensor)) or (isinstance(value, dict) and not value)
        # _compiled_call_impl comes from module.compile(); deepcopy drops it
        if name not in ("_modules", "_parameters", "_buffers", "_compiled_call_impl") and not plain:
            yield name, value


def _held(value: Any) -> Iterator[nn.Module]:
    """Yield the modules in plain lists, tuples, sets and dictionaries."""
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, (list, tuple, set, frozenset, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _held(part)


def _has_axis(module: nn.Module) -> bool:
    return any(isinstance(part, OrderedAxis) for part in module.modules())


class CopyError(ValueError):
    """A part of the model cannot be copied, at any size."""


def refuse_closures(model: nn.Module, axes: Sequence[OrderedAxis]) -> None:
    """Refuse functions that hold modules to be cut: a copy of the model would still call the original modules.

    Raises:
        CopyError: naming the attribute.
    """
    changed = {id(cut.module) for axis in axes for cut in axis.cuts}

    def reached(value: Any, inside: bool, seen: set[int]) -> bool:
        """Whether a function within ``value`` reaches such a module; ``inside``: ``value`` is held by a function."""
        if id(value) in seen:
            return False
        seen.add(id(value))
        if isinstance(value, nn.Module):
            return inside and any(part in axes or id(part) in changed for part in value.modules())
        if isinstance(value, types.FunctionType):
            parts = [*inspect.getclosurevars(value).nonlocals.values(), *(value.__defaults__ or ())]
            return any(reached(part, True, seen) for part in (*parts, *(value.__kwdefaults__ or {}).values()))
        if isinstance(value, types.MethodType):
            return reached(value.__self__, inside, seen)
        if isinstance(value, functools.partial):
            return any(reached(part, inside, seen) for part in (value.func, *value.args, *value.keywords.values()))
        if isinstance(value, dict):
            value = list(value.values())
        return isinstance(value, (list, tuple, set)) and any(reached(part, inside, seen) for part in value)

    for path, module in model.named_modules():
        for name, value in _attributes(module):
            if reached(value, False, set()):
                raise CopyError(
                    f"{path or 'the model'}: .{name} is a function that holds a module with a learned size, which "
                    "a copy cannot follow; make it a method or a module"
                )


def floating(outputs: Any) -> list[Tensor]:
    """The real or complex tensors in the output of a model, also within data classes."""
    if dataclasses.is_dataclass(outputs) and not isinstance(outputs, (type, Mapping)):
        outputs = vars(outputs)
    if isinstance(outputs, Tensor):
        return [outputs] if outputs.is_floating_point() or outputs.is_complex() else []
    leaves = tree_leaves(outputs)
    return [part for leaf in leaves if leaf is not outputs for part in floating(leaf)]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into ``eval()`` mode, and restore the mode of every module afterwards."""
    training = [module for module in model.modules() if getattr(module, "training", False)]  # frozen scripts have none
    try:
        model.eval()
    except NotImplementedError as fault:
        raise ExampleError(
            f"a part of the model has no eval mode ({fault}): an exported program computes in one mode only. Use the "
            "module that it was exported from"
        ) from fault
    try:
        yield
    finally:
        for module in training:
            module.training = True


@torch.no_grad()
def check_equal(model: nn.Module, deployed: nn.Module, example: Any, replica: int | None = None) -> None:
    """Compare the outputs of two models on ``example``, with the same random numbers and fresh copies of the input.

    Raises:
        ValueError: if they differ by more than rounding explains: 6e-5 of the largest output in float32, 1e-2 in
            float16, 8e-2 in bfloat16, or more where :func:`rounding_bounds` finds that the model amplifies it. Also if
            the deployed model calls a module of ``model`` that has an axis.
    """
    with evaluating(model), torch.random.fork_rng():
        torch.manual_seed(0)
        wanted = outputs_on(model, example)
        torch.manual_seed(0)
        args, named = arguments(copied(example))
        with _refusing_calls(model), uncompiled():
            outputs = floating(deployed(*args, **named))
    if not wanted:
        raise ValueError("the model returns no floating-point tensor on the example, so there is nothing to compare")
    if len(wanted) != len(outputs):
        raise ValueError(
            f"on the example the deployed model returns {len(outputs)} tensors, but the truncated model {len(wanted)}"
        )
    wanted = [want if replica is None else want[replica] for want in wanted]
    for want, got in zip(wanted, outputs, strict=True):
        if want.shape != got.shape:
            raise ValueError(f"the deployed model returns {list(got.shape)} on the example, not {list(want.shape)}")
    differing = [apart(want, got) for want, got in zip(wanted, outputs, strict=True)]
    if any(worst is not None for worst in differing):
        bounds = rounding_bounds(deployed, lambda: outputs_on(deployed, example))
        differing = [beyond(worst, bound) for worst, bound in zip(differing, bounds, strict=True)]
    for worst in differing:
        if worst is not None:
            raise ValueError(
                f"on the example the deployed model differs from the truncated model, by {worst:.1e} of the largest "
                "output. Perhaps a tensor with the axis has no cut, or a layer mixes components."
            )


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled parts as they are written, so that a trace sees all operations, and hooks compile nothing."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and the import takes seconds
        yield
    else:
        with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
            for said in ("Using `torch.compile", "flex_attention called without"):  # what is not compiled, or is hooked
                warnings.filterwarnings("ignore", said)
            yield


class ExampleError(ValueError):
    """The model itself fails on the example, at any size."""


def summary(fault: Exception) -> str:
    """The first line of a message; TorchScript says at the end what is wrong."""
    lines = str(fault).strip().splitlines() or [type(fault).__name__]
    return lines[-1 if "TorchScript" in lines[0] else 0]


def outputs_on(model: nn.Module, example: Any) -> list[Tensor]:
    """The floating-point tensors that ``model`` returns for a copy of ``example``.

    Raises:
        ExampleError: if the model fails; with the first line of its message.
    """
    args, named = arguments(copied(example))
    try:
        with uncompiled():
            return floating(model(*args, **named))
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError, AssertionError) as fault:
        hint = {list: ". Give several arguments as a tuple", np.ndarray: ". Give a tensor: torch.from_numpy(example)"}
        raise ExampleError(f"the model fails on the example: {summary(fault)}{hint.get(type(example), '')}") from fault


def apart(want: Tensor, got: Tensor) -> float | None:
    """The difference of two tensors relative to the largest of ``want``; None if rounding explains it."""
    worst = _relative(want, got)
    return None if worst <= _tolerance(want.dtype) else worst


def beyond(worst: float | None, bound: float) -> float | None:
    """A difference of :func:`apart`, unless a bound of :func:`rounding_bounds` explains it."""
    return None if worst is None or worst <= bound else worst


def _relative(want: Tensor, got: Tensor) -> float:
    if not want.numel():
        return 0.0
    want, got = want.detach(), got.detach()  # a model may return gradients that have some themselves
    same = (want == got) | (want.isnan() & got.isnan())  # covers infinities
    differing = torch.where(same, torch.zeros_like(want), want - got).abs()
    largest = torch.where(want.isfinite(), want, torch.zeros_like(want)).abs().max()
    return float(differing.max()) / max(1e-30, float(largest))


def _tolerance(dtype: torch.dtype) -> float:
    eps = torch.finfo(dtype).eps
    return min(100 * eps**0.9, max(10 * eps, 1e-4))


@torch.no_grad()
def rounding_bounds(model: nn.Module, collect: Callable[[], list[Tensor]]) -> list[float]:
    """How far rounding alone may move tensors that ``model`` computes, relative to the largest of each.

    A product of another size may add in another order, and a deep model amplifies that: on a GPU, 30 layers in float32
    move by 1e-4. So three passes move all outputs of the innermost modules up or down at random, by the rounding of the
    largest number in their last dimension. A bound is ten times the largest change, but at most 20 times the usual
    tolerance and 0.3, because a model with a decision in it may jump by any amount. It is 0 if the outputs of a module
    cannot be moved.

    Args:
        collect: runs ``model`` and returns the tensors, as many at each call.
    """
    source = torch.Generator().manual_seed(0)

    def moved(module: nn.Module, args: Any, output: Any) -> Any:
        def move(part: Any) -> Any:
            if not isinstance(part, Tensor) or not part.is_floating_point():
                return part
            signs = torch.randint(2, part.shape, generator=source, dtype=torch.int8).to(part.device)
            largest = part.abs().amax(-1, keepdim=True) if part.dim() else part.abs()
            return part + largest * torch.finfo(part.dtype).eps * (2 * signs - 1)

        return tree_map(move, output)

    def run() -> list[Tensor]:
        torch.manual_seed(0)
        return collect()

    innermost = [part for part in model.modules() if next(part.children(), None) is None]
    with evaluating(model), torch.random.fork_rng():
        exact = run()
        handles = [part.register_forward_hook(moved) for part in innermost]
        try:
            changes = [[_relative(want, got) for want, got in zip(exact, run(), strict=True)] for _ in range(3)]
        except (RuntimeError, ValueError, TypeError):  # an output that cannot be moved, or another length behind it
            return [0.0] * len(exact)
        finally:
            for handle in handles:
                handle.remove()
    most = [10 * max(each) for each in zip(*changes, strict=True)]
    return [min(bound, 20 * _tolerance(want.dtype), 0.3) for bound, want in zip(most, exact, strict=True)]


def copied(example: Any) -> Any:
    """A copy of the example, which the model may write into; caches in it are copied, too."""
    tensors = [part for part in tree_leaves(example) if isinstance(part, Tensor)]
    return copy.deepcopy(example, {id(tensor): tensor.detach().clone() for tensor in tensors})


@contextmanager
def _refusing_calls(model: nn.Module) -> Iterator[None]:
    """Refuse calls of modules of ``model`` that have an axis: a copy that makes them is not fully cut."""
    cut = {id(cut.module) for axis in model.modules() if isinstance(axis, OrderedAxis) for cut in axis.cuts}
    parts = [part for part in model.modules() if any(id(inner) in cut for inner in part.modules())]

    def refuse(module: nn.Module, args: Any) -> None:
        raise ValueError(
            f"the deployed model calls a {type(module).__name__} of the trained model: a function, a weak reference or "
            "a global holds it and is not copied; make it a submodule"
        )

    handles = [part.register_forward_pre_hook(refuse) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
