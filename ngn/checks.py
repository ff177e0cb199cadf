"""What has to hold for the copy of a model to be the model: every part found, nothing called behind its back."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ngn.axis import Cut, OrderedAxis


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as a model is called with it: a tuple has several arguments, a dictionary named ones."""
    if isinstance(example, dict):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """What ``state_dict`` holds, a tied tensor once."""
    seen: set[int] = set()
    tensors = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            seen.add(id(value))
            tensors[name] = value
    return tensors


def is_frozen(value: Tensor) -> bool:
    """Whether ``value`` is a parameter that is not trained."""
    return isinstance(value, nn.Parameter) and not value.requires_grad


def axes_of(model: nn.Module) -> list[OrderedAxis]:
    """The axes of ``model`` whose size is learned, in the order of the model.

    Raises:
        ValueError: if an axis cannot be found from the model, or cuts what is no tensor of the model.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    axes = []
    for path, module in model.named_modules():
        for name, value in _attributes(module):
            if any(id(lost) not in paths and _has_axis(lost) for lost in _held(value)):
                raise ValueError(
                    f"{path or 'the model'}: .{name} holds an ordered axis that is no submodule; "
                    "use nn.ModuleList, or its parameters are neither trained nor saved"
                )
        if isinstance(module, OrderedAxis) and module.capacity is not None:
            axes.append(module)
            for cut in module.cuts:
                if id(cut.module) not in paths and not _replaced(model, cut):
                    raise ValueError(
                        f"{path or 'the axis'} cuts {type(cut.module).__name__}.{cut.name}, "
                        "which is no part of the model"
                    )
    return axes


def _replaced(model: nn.Module, cut: Cut) -> bool:
    """Whether another module of ``model`` holds the tensor of ``cut`` under its name, as SyncBatchNorm does of a
    BatchNorm that was converted."""
    value = getattr(cut.module, cut.name, None)
    each = (held.get(cut.name) for module in model.modules() for held in (module._parameters, module._buffers))
    return value is None or any(value is other for other in each)


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a module holds beside its registered parts, and that may hold modules itself."""
    for name, value in vars(module).items():
        nothing = isinstance(value, (bool, int, float, str, Tensor)) or (isinstance(value, dict) and not value)
        # the last is what module.compile() has made, which copies are without
        if name not in ("_modules", "_parameters", "_buffers", "_compiled_call_impl") and not nothing:
            yield name, value


def _held(value: Any) -> Iterator[nn.Module]:
    """Modules in plain lists, tuples, sets and dictionaries."""
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, (list, tuple, set, frozenset, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _held(part)


def _has_axis(module: nn.Module) -> bool:
    return any(isinstance(part, OrderedAxis) for part in module.modules())


def refuse_closures(model: nn.Module, axes: Sequence[OrderedAxis]) -> None:
    """Refuse functions that hold parts which are to be cut: a copy of the model would go on calling the original's.

    Raises:
        ValueError: naming the attribute.
    """
    changed = {id(cut.module) for axis in axes for cut in axis.cuts}

    def reached(value: Any, inside: bool, seen: set[int]) -> bool:
        """Whether a function within ``value`` (or ``value`` itself, if it is ``inside`` one) reaches such a part."""
        if id(value) in seen:
            return False
        seen.add(id(value))
        if isinstance(value, nn.Module):
            return inside and (_has_axis(value) or any(id(part) in changed for part in value.modules()))
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
                raise ValueError(
                    f"{path or 'the model'}: .{name} is a function that holds a part with an ordered axis, "
                    "which a copy cannot follow; make it a method or a module"
                )


def floating(outputs: Any) -> list[Tensor]:
    """The tensors of real or complex numbers in what a model gives, those of data classes among them."""
    if dataclasses.is_dataclass(outputs) and not isinstance(outputs, (type, Mapping)):
        outputs = vars(outputs)
    if isinstance(outputs, Tensor):
        return [outputs] if outputs.is_floating_point() or outputs.is_complex() else []
    leaves = tree_leaves(outputs)
    return [part for leaf in leaves if leaf is not outputs for part in floating(leaf)]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in ``eval()`` mode; afterwards every module is as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@torch.no_grad()
def check_equal(model: nn.Module, deployed: nn.Module, example: Any, replica: int | None = None) -> None:
    """Raise a ValueError if the outputs for ``example`` differ by more than their precision explains: by 6e-5 of the
    largest in float32, 1e-2 in float16, 8e-2 in bfloat16; or if the deployed model calls a part of the other one that
    has an axis. Both models draw the same random numbers, and each is given the example anew."""
    with evaluating(model), torch.random.fork_rng():
        torch.manual_seed(0)
        wanted = outputs_on(model, example)
        torch.manual_seed(0)
        args, named = arguments(_copied(example))
        with _refusing_calls(model):
            outputs = floating(deployed(*args, **named))
    if not wanted:
        raise ValueError("the model gives no tensor of real numbers on the example, so there is nothing to compare")
    if len(wanted) != len(outputs):
        raise ValueError(
            f"on the example the deployed model returns {len(outputs)} tensors, the truncated one {len(wanted)}"
        )
    for want, got in zip(wanted, outputs, strict=True):
        want = want if replica is None else want[replica]
        if want.shape != got.shape:
            raise ValueError(f"the deployed model gives {list(got.shape)} on the example, not {list(want.shape)}")
        if (worst := apart(want, got)) is not None:
            raise ValueError(f"the deployed model differs from the truncated one on the example, by {worst:.1e}")


class ExampleError(ValueError):
    """An example on which the model itself fails, whatever its sizes are."""


def outputs_on(model: nn.Module, example: Any) -> list[Tensor]:
    """The tensors of real numbers that ``model`` gives for a copy of ``example``.

    Raises:
        ExampleError: with what the model says, if it fails.
    """
    args, named = arguments(_copied(example))
    try:
        return floating(model(*args, **named))
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError, AssertionError) as fault:
        reason = str(fault).partition("\n")[0] or type(fault).__name__
        raise ExampleError(f"the model fails on the example: {reason}") from fault


def apart(want: Tensor, got: Tensor) -> float | None:
    """By which part of the largest of ``want`` two tensors of one shape differ, if precision does not explain it."""
    if not want.numel():
        return None
    same = (want == got) | (want.isnan() & got.isnan())  # equal infinities, too
    differing = torch.where(same, torch.zeros_like(want), want - got).abs()
    largest = torch.where(want.isfinite(), want, torch.zeros_like(want)).abs().max()
    worst = float(differing.max()) / max(1e-30, float(largest))
    eps = torch.finfo(want.dtype).eps
    return None if worst <= min(100 * eps**0.9, max(10 * eps, 1e-4)) else worst


def _copied(example: Any) -> Any:
    """An example that may be written into; a cache that it holds is copied, too."""
    tensors = [part for part in tree_leaves(example) if isinstance(part, Tensor)]
    return copy.deepcopy(example, {id(tensor): tensor.detach().clone() for tensor in tensors})


@contextmanager
def _refusing_calls(model: nn.Module) -> Iterator[None]:
    """Refuse calls of the parts of ``model`` that have an axis: a copy that makes them was not cut there."""
    cut = {id(cut.module) for axis in model.modules() if isinstance(axis, OrderedAxis) for cut in axis.cuts}
    parts = [part for part in model.modules() if any(id(inner) in cut for inner in part.modules())]

    def refuse(module: nn.Module, args: Any) -> None:
        raise ValueError(
            f"the deployed model calls a {type(module).__name__} of the model that was trained: what holds it (a "
            "function, a weak reference, a global) is not copied; make it a submodule"
        )

    handles = [part.register_forward_pre_hook(refuse) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
