"""A trial of every cut on an example, before sizes are learned: names and shapes do not show what a model computes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import ExampleError, apart, check_equal, evaluating, outputs_on
from ngn.methods.base import Capacity
from ngn.methods.fixed import Retained
from ngn.sizes.hooked import taken_by
from ngn.truncation import deploy_axes, is_stack, owned


def refuse_different(model: nn.Module, axes: Sequence[OrderedAxis], example: Any) -> None:
    """Cut every size to half and to one for a trial, whatever learns it, and refuse what then computes something else
    than the model without the others.

    Args:
        axes: all sizes of the model.

    Raises:
        ValueError: naming the size; ``ExampleError`` if the model fails by itself.
    """

    def half(axis: OrderedAxis) -> int:
        return max(1, axis.K // 2)

    trials: list[tuple[str, Callable[[OrderedAxis], int]]] = [("half", half), ("one", lambda axis: 1)]
    if len({_of_layers(axis) for axis in axes}) > 1:  # with all layers, what is within them can be compared
        trials.append(("half", lambda axis: axis.K if _of_layers(axis) else half(axis)))
    for said, count in trials:
        if axes and (reason := _difference(model, axes, example, count)):

            def alone(axis: OrderedAxis, count: Callable[[OrderedAxis], int] = count) -> str | None:
                return _difference(model, axes, example, lambda each: count(each) if each is axis else each.K)

            axis, reason = next(((axis, found) for axis in axes if (found := alone(axis))), (axes[0], reason))
            parts = _parts_of(model, axis)
            raise ValueError(
                f"{axis.name}: cut to {said} it is not what the model computes without the others ({reason}); {parts}"
            )
    _warn_of_untried(model, axes, example)
    for axis in axes:
        axis.called = False  # in a training


def _parts_of(model: nn.Module, axis: OrderedAxis) -> str:
    """What an axis cuts, and where it goes."""
    paths = {id(module): path for path, module in model.named_modules()}
    having, taking = (
        list(dict.fromkeys(paths[id(cut.module)] or "the model" for cut in axis.cuts if cut.fold is fold))
        for fold in (False, True)
    )
    text = f"what has it was taken to be {_listed(having)}"
    return f"{text}, and what takes it {_listed(taking)}" if taking else text


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


@torch.no_grad()
def _warn_of_untried(model: nn.Module, axes: Sequence[OrderedAxis], example: Any) -> None:
    """Warn of sizes on which the example is no trial: which it does not reach, or with nothing but zeros."""
    live: set[str] = set()
    hooked: set[str] = set()
    handles = []
    for consumer in model.modules():
        if (axis := taken_by(consumer)) is None or axis not in axes:
            continue
        hooked.add(axis.name)

        def note(_: nn.Module, args: Any, kwargs: Any, name: str = axis.name) -> None:
            h = args[0] if args else next(iter(kwargs.values()))
            if bool(h.any()):
                live.add(name)

        handles.append(consumer.register_forward_pre_hook(note, prepend=True, with_kwargs=True))
    try:
        with evaluating(model), torch.random.fork_rng():
            outputs_on(model, example)
    finally:
        for handle in handles:
            handle.remove()
    if untried := sorted(hooked - live):
        warnings.warn(
            f"the example is no trial of {_listed(untried)}: it does not get there, or nothing but zeros does. Give an "
            "input like your data",
            stacklevel=4,
        )


def _of_layers(axis: OrderedAxis) -> bool:
    """Whether its components are the layers of a stack."""
    return any(is_stack(owned(cut)) for cut in axis.cuts)


def _difference(
    model: nn.Module,
    axes: Sequence[OrderedAxis],
    example: Any,
    count: Callable[[OrderedAxis], int],
) -> str | None:
    """Why ``model`` with these sizes at a ``count`` does not deploy to what it computes; None if it does."""
    learned = [axis.capacity for axis in axes]
    try:
        for axis in axes:
            axis.capacity, axis.mode = _leading(axis.capacity, count(axis)), "hard"
        small = deploy_axes(model, axes, share_frozen=True)
        with _activations(model, small, axes) as pairs:
            check_equal(model, small, example)
        for name, want, got in pairs():
            if want.shape != got.shape:
                return f"of {name} {list(got.shape)} is kept, not {list(want.shape)}"
            if (worst := apart(want, got)) is not None:
                return f"what is kept of {name} differs by {worst:.1e}"
    except ExampleError:
        raise
    except (ValueError, RuntimeError, TypeError, IndexError, ArithmeticError, AssertionError) as fault:
        return str(fault).partition("\n")[0]
    finally:
        for axis, capacity in zip(axes, learned, strict=True):
            axis.capacity, axis.mode = capacity, "soft"
    return None


def _leading(learned: Capacity, count: int) -> Capacity:
    """In place of a ``learned`` capacity one that retains its ``count`` leading components, with its weights."""
    capacity = Retained(learned.K)
    capacity.w = learned.weights().detach().to(torch.float64)
    capacity.left.fill_(count)
    return capacity.to(capacity.w.device)


@contextmanager
def _activations(
    model: nn.Module, small: nn.Module, axes: Sequence[OrderedAxis]
) -> Iterator[Callable[[], list[tuple[str, Tensor, Tensor]]]]:
    """What is kept of the activations at the axes that hooks call, in the model and in its cut copy: what lies behind
    them may hide that they differ, a map of zeros or a layer scale of 1e-6. Nothing if layers are cut, which changes
    the names of the others."""
    seen: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
    handles = []
    whole = all(bool(axis.retained()[0].all()) for axis in axes if _of_layers(axis))
    for path, consumer in [*model.named_modules()] if whole else ():
        axis = taken_by(consumer)
        if axis is None or axis not in axes:
            continue
        kept, dim = axis.in_place(axis.retained()[0]), axis.dim_at(consumer)
        wanted, got = seen.setdefault(f"{axis.name} in {path}" if axis.name in seen else axis.name, ([], []))

        def note(module: nn.Module, args: Any, kwargs: Any, kept: Any = kept, dim: int = dim, to: Any = wanted) -> None:
            h = args[0] if args else next(iter(kwargs.values()))
            index = kept.repeat_interleave(h.shape[dim] // len(kept)).nonzero().flatten()
            to.append(h.index_select(dim, index.to(h.device)))

        def note_cut(module: nn.Module, args: Any, kwargs: Any, to: list[Tensor] = got) -> None:
            to.append(args[0] if args else next(iter(kwargs.values())))

        handles += [
            consumer.register_forward_pre_hook(note, prepend=True, with_kwargs=True),
            small.get_submodule(path).register_forward_pre_hook(note_cut, with_kwargs=True),
        ]
    try:
        yield lambda: [(name, *pair) for name, lists in seen.items() for pair in zip(*lists, strict=True)]
    finally:
        for handle in handles:
            handle.remove()
