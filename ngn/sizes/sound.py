"""What has to hold before sizes are learned, so that no training ends in a model that cannot be cut."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ngn.axis import OrderedAxis
from ngn.books import value_of
from ngn.checks import ExampleError, apart, axes_of, check_equal, evaluating, outputs_on
from ngn.components.low_rank import Bottleneck
from ngn.methods.ngn import CountGate
from ngn.sizes.base import taken_by
from ngn.truncation import deploy, is_stack, owned


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[None]:
    """Whatever is done to the modules of ``model`` within is undone if it ends in an exception."""
    before = [(module, type(module), dict(vars(module))) for module in model.modules()]
    tables = [(value, copy.copy(value)) for _, _, held in before for value in held.values() if isinstance(value, dict)]
    trained = [(p, p.requires_grad) for p in model.parameters()]
    try:
        yield
    except BaseException:
        for value, content in tables:  # the same dictionaries, as handles of hooks refer to them
            value.clear()
            value.update(content)
        for module, kind, held in before:
            module.__class__ = kind
            vars(module).clear()
            vars(module).update(held)
        for p, wanted in trained:
            p.requires_grad_(wanted)
        raise


def refuse_different(model: nn.Module, axes: Sequence[OrderedAxis], example: Any) -> None:
    """Cut every size to half and to one for a trial, and refuse what then computes something else than the model
    without the others; where gates are at hand that can be put there.

    Raises:
        ValueError: naming the size; ``ExampleError`` if the model fails by itself.
    """
    sized = [(axis, axis.capacity) for axis in axes if isinstance(axis.capacity, CountGate)]

    def half(axis: OrderedAxis) -> int:
        return max(1, axis.K // 2)

    trials: list[tuple[str, Callable[[OrderedAxis], int]]] = [("half", half), ("one", lambda axis: 1)]
    if len({_of_layers(axis) for axis, _ in sized}) > 1:  # with all layers, what is within them can be compared
        trials.append(("half", lambda axis: axis.K if _of_layers(axis) else half(axis)))
    for said, count in trials:
        if sized and (reason := _difference(model, sized, example, count)):
            alone = ((each[0].name, _difference(model, [each], example, count)) for each in sized)
            name, reason = next(((name, found) for name, found in alone if found), (sized[0][0].name, reason))
            parts = _parts_of(model, next(axis for axis in axes if axis.name == name))
            raise ValueError(
                f"{name}: cut to {said} it is not what the model computes without the others ({reason}); {parts}"
            )
    if sized:
        _warn_of_untried(model, [axis for axis, _ in sized], example)
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
    sized: Sequence[tuple[OrderedAxis, CountGate]],
    example: Any,
    count: Callable[[OrderedAxis], int],
) -> str | None:
    """Why ``model`` with these sizes at a ``count`` does not deploy to what it computes; None if it does."""
    before = [gate.tau.detach().clone() for _, gate in sized]
    try:
        for axis, gate in sized:
            gate.put_at(count(axis))
            axis.mode = "hard"
        small = deploy(model, share_frozen=True)
        with _activations(model, small, [axis for axis, _ in sized]) as pairs:
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
        with torch.no_grad():
            for value, (axis, gate) in zip(before, sized, strict=True):
                gate.tau.copy_(value)
                axis.mode = "soft"
    return None


@contextmanager
def _activations(
    model: nn.Module, small: nn.Module, axes: Sequence[OrderedAxis]
) -> Iterator[Callable[[], list[tuple[str, Tensor, Tensor]]]]:
    """What is kept of the activations at the axes that hooks call, in the model and in its cut copy: what lies behind
    them may hide that they differ, a map of zeros or a layer scale of 1e-6. Nothing if layers are cut, which changes
    the names of the others."""
    seen: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
    handles = []
    whole = all(bool(axis.retained()[0].all()) for axis in axes_of(model) if _of_layers(axis))
    for path, consumer in [*model.named_modules()] if whole else ():
        axis = taken_by(consumer)
        if axis is None or axis not in axes:
            continue
        kept, dim = axis.placed(axis.retained()[0]), axis.along(consumer)
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


_KNOWN = (nn.Linear, _ConvNd)


def _plain(kind: type[nn.Module]) -> bool:
    """Whether a linear map or a convolution computes what torch's do; a parametrised one has a class of its own."""
    return kind.forward.__module__.startswith("torch.nn.")


def refuse_uncuttable(model: nn.Module, axes: Sequence[OrderedAxis], tried: bool) -> None:
    """Refuse cuts of tensors that are not there or too short, that something else has, too, or that another axis cuts;
    and, unless they are to be ``tried`` on an example, of maps that compute something of their own.

    Raises:
        ValueError: naming the size and the tensor.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    bases = {id(module.base): path for path, module in model.named_modules() if isinstance(module, Bottleneck)}
    holders: dict[int, list[tuple[int, str]]] = {}
    for module in model.modules():
        for name, value in module._parameters.items():
            holders.setdefault(id(value), []).append((id(module), name))
    taken: list[tuple[tuple[int, int], range, OrderedAxis]] = []
    for axis in axes:
        if axis.guessed and not tried:
            raise ValueError(
                f"{axis.name}: {axis.guessed}, whose forward pass may use them otherwise: give example=, on which the "
                "cut is tried, or name what takes them with into="
            )
        own = {(id(cut.module), cut.name) for cut in axis.cuts}
        for cut in axis.cuts:
            what = f"{axis.name}: {paths[id(cut.module)]}.{cut.name}".replace(" .", " ")
            held, value = owned(cut), value_of(cut.module, cut.name)
            if not isinstance(value, Tensor):
                continue
            if not tried and isinstance(cut.module, _KNOWN) and not _plain(type(cut.module)):
                raise ValueError(
                    f"{what} is of a {type(cut.module).__name__}, which has a forward pass of its own: give example=, "
                    "on which the cut is tried"
                )
            if id(cut.module) in bases:
                raise ValueError(
                    f"{what} has a learned rank beside it, {bases[id(cut.module)]}, which is not cut with it"
                )
            dim, span = cut.dim % value.dim(), range(max(0, cut.start), cut.start + axis.K * cut.width)
            if span.stop > value.shape[dim]:
                raise ValueError(f"{what} has {value.shape[dim]} entries along dimension {dim}, not {span.stop}")
            if others := [place for place in holders.get(id(held), []) if place not in own]:
                raise ValueError(f"{what} is tied to {paths[others[0][0]]}.{others[0][1]}, which is not cut with it")
            for place, other, by in taken:
                if place == (id(held), dim) and by is not axis and other[0] <= span[-1] and span[0] <= other[-1]:
                    raise ValueError(f"{what} is cut by {by.name}, too: learn one of the two sizes")
            taken.append(((id(held), dim), span, axis))
