"""What has to hold for the copy of a model to be the model: every part found, nothing called behind its back."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ngn.axis import OrderedAxis


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as a model is called with it: a tuple has several arguments, a dictionary named ones."""
    if isinstance(example, dict):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


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
                if id(cut.module) not in paths:
                    raise ValueError(
                        f"{path or 'the axis'} cuts {type(cut.module).__name__}.{cut.name}, "
                        "which is no part of the model"
                    )
    return axes


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a module holds beside its registered parts, and that may hold modules itself."""
    for name, value in vars(module).items():
        nothing = isinstance(value, (bool, int, float, str, Tensor)) or (isinstance(value, dict) and not value)
        if name not in ("_modules", "_parameters", "_buffers") and not nothing:
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


def refuse_closures(model: nn.Module, axes: list[OrderedAxis]) -> None:
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


@torch.no_grad()
def check_equal(model: nn.Module, deployed: nn.Module, example: Any, replica: int | None = None) -> None:
    """Raise a ValueError if the outputs for ``example`` differ by more than their precision explains."""
    args, named = arguments(example)
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        wanted, outputs = tree_leaves(model(*args, **named)), tree_leaves(deployed(*args, **named))
    finally:
        for module in training:
            module.training = True
    for want, got in zip(wanted, outputs, strict=True):
        if isinstance(want, Tensor) and want.is_floating_point():
            want = want if replica is None else want[replica]
            if want.shape != got.shape:
                raise ValueError(f"the deployed model gives {list(got.shape)} on the example, not {list(want.shape)}")
            worst = float((want - got).abs().max()) / max(1e-30, float(want.abs().max()))
            if not worst <= 100 * torch.finfo(want.dtype).eps ** 0.9:
                raise ValueError(f"the deployed model differs from the truncated one on the example, by {worst:.1e}")
