"""Truncation: copy a model and cut every ordered axis to its retained components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import places_in
from ngn.components.attention import with_stock_attention
from ngn.cut import cut_copy
from ngn.cuts import Choice, Cut, Stacked


def deploy(
    model: nn.Module,
    replica: int | None = None,
    share_frozen: bool = False,
    most: int | None = None,
    axes: Sequence[OrderedAxis] | None = None,
) -> nn.Module:
    """Return a copy of ``model`` in eval mode with only the retained components of every axis and no capacity.

    Args:
        model: any module with ordered axes, or a learner of one; other modules are copied unchanged.
        replica: which model of a stack.
        share_frozen: share frozen parameters that are not cut with ``model``; do not copy them.
        most: keep at most this many leading components of every axis.
        axes: the axes of ``model`` if they are known: the result of :func:`axes_of`.

    Raises:
        ValueError: if a stack is given without ``replica``, a single model with it, or part of the model cannot be
            copied faithfully.
    """
    if hasattr(model, "controller_parameters"):  # a learner, such as an average of one
        model = model.model  # type: ignore[assignment]
    stacked = any(isinstance(module, Stacked) and module.replicas is not None for module in model.modules())
    if stacked and replica is None:
        raise ValueError("the model is a stack of several models: choose one with replica=0, 1, ...")
    if replica is not None and not stacked:
        raise ValueError("this is a single model, not a stack of replicas: leave replica= out")
    if most is not None and most < 1:
        raise ValueError(f"most must be at least 1, not {most}")
    choices = {}
    for axis in axes_of(model) if axes is None else axes:
        kept, c = (part if replica is None else part[replica] for part in axis.retained())
        c = F.pad(c, (0, len(kept) - len(c)))
        if most is not None:
            kept = kept & (torch.arange(len(kept), device=kept.device) < most)
        kept, c = axis.in_place(kept), axis.in_place(c)
        choices[axis] = Choice(kept.cpu(), c.cpu(), _scale(axis, kept, c))
    return with_stock_attention(cut_copy(model, choices, replica, "frozen" if share_frozen else None).eval())


def _scale(axis: OrderedAxis, kept: Tensor, coefficients: Tensor) -> Tensor | None:
    """The coefficients that the axis must keep, [count]; None if a cut folds them, or if all are 1.

    If components without tensors (an identity, say) are removed, ones are kept, too: their number records the removal.
    """
    scale = coefficients[kept]
    complete = bool(kept[: without_tensors(axis)].all())
    if any(cut.fold for cut in axis.cuts) or (complete and bool((scale == 1).all())):
        return None
    first = next((t for cut in axis.cuts if isinstance(t := getattr(cut.module, cut.name), Tensor)), None)
    return scale if first is None else scale.to(first)


def without_tensors(axis: OrderedAxis) -> int:
    """The number of leading components without entries in any cut tensor."""
    return max((-cut.start // cut.width for cut in axis.cuts if cut.start < 0), default=0)


def axes_of(model: nn.Module) -> list[OrderedAxis]:
    """The axes of ``model`` that learn a size, in order; a ValueError if one or its tensors are not part of it."""
    paths = {id(module): path for path, module in model.named_modules()}
    axes = []
    for path, module in model.named_modules():
        for name, lost in _held(module):
            # a learner also lists the axes of removed layers, which cut nothing any more
            if id(lost) not in paths and any(isinstance(part, OrderedAxis) and part.cuts for part in lost.modules()):
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
    return value is None or any(value is other and name == cut.name for _, _, name, other in places_in(model))


def _held(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules in plain attributes of ``module``, and in lists, tuples, sets and dictionaries there."""
    if hasattr(type(module), "_opt_mod_attributes"):  # torch.compile(module) makes its functions again in a copy
        return
    tables = ("_modules", "_parameters", "_buffers", "_compiled_call_impl")  # the last is of module.compile()
    work, seen = [each for each in vars(module).items() if each[0] not in tables], set[int]()
    while work:
        name, value = work.pop()
        if isinstance(value, nn.Module):
            yield name, value
        elif isinstance(value, (list, tuple, set, frozenset, dict)) and id(value) not in seen:
            seen.add(id(value))
            work += [(name, part) for part in (value.values() if isinstance(value, dict) else value)]
