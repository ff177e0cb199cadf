"""A test of every cut on an example, before training: names and shapes do not show what a model computes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis, having
from ngn.checks import FAULTS, NONE, Also, ExampleError, called, calls_of, enter, outputs_on, summary, untouched
from ngn.comparison import DifferentError, apart, check_equal, in_training
from ngn.cut.copying import CopyError
from ngn.cut.truncation import deploy
from ngn.cuts import is_stack, owned
from ngn.learner.hooked import taken_by
from ngn.learner.shrinking import why_whole
from ngn.methods.base import Capacity
from ngn.methods.fixed import Retained
from ngn.tracing.found import listed
from ngn.tracing.groups import traced_sizes

TrialCount = Callable[[OrderedAxis, int], int]
"""The components of an axis, which has this number among all axes, in a trial."""


MOST_NEEDED = 8
"""Components that a model may need of a size at least, such as the experts of a sample."""
_TRIALS: tuple[tuple[str, TrialCount], ...] = (
    ("half", lambda axis, number: max(1, axis.K // 2)),
    ("one", lambda axis, number: 1),
    ("a different part each", lambda axis, number: max(1, axis.K * (number % 3 + 1) // 4)),
)
"""Sizes of the trials. In the last one a program that divides a length by the number of pieces finds them unequal."""


def failed_trials(
    model: nn.Module, axes: Sequence[OrderedAxis], example: Any, also: Also = NONE
) -> dict[OrderedAxis, str]:
    """Cut all sizes, and compare with the model in which the other components are masked.

    Returns the sizes whose cuts change what the model computes, each with the difference. Capacities are back in
    place. It is a ValueError if the uncut model fails, or cannot be copied.
    """
    # only calls in training count as such
    with untouched(model) as written, having(axes, called=lambda axis: False):
        with written:
            enter(model, training=False)
        calls = calls_of(example, also)
        for call in calls:
            fault, values = in_training(model, model, call)
            with _at(axes, lambda axis: axis.K):  # without the parameters of sizes
                alone, others = in_training(model, model, call)
            same = len(values) == len(others) and all(apart(v, o) is None for v, o in zip(values, others, strict=True))
            if alone is None and (fault is not None or not same):
                raise ValueError(
                    f"with learned sizes the model fails in train mode: {fault or 'it writes other values'}. A size "
                    "adds a parameter to the layer that reads it. Does the model pair parameters by their order? Pair "
                    "them by name"
                )
        failed = _failed(model, axes, example, also)
        needed = {axis.capacity: axis.capacity.least for axis in axes}
        _warn_of_untried(model, [axis for axis in axes if axis not in failed], calls)
    for capacity, least in needed.items():
        capacity.least = least
    return failed


def _failed(model: nn.Module, axes: Sequence[OrderedAxis], example: Any, also: Also) -> dict[OrderedAxis, str]:
    trials = [*_TRIALS]
    if len({_of_layers(axis) for axis in axes}) > 1:  # with all layers kept, activations inside them can be compared
        trials.append(("half", lambda axis, number: axis.K if _of_layers(axis) else max(1, axis.K // 2)))
    numbers = {axis: number for number, axis in enumerate(axes)}
    failed: dict[OrderedAxis, str] = {}
    for name, count in trials:

        def differs(some: Sequence[OrderedAxis], count: TrialCount = count) -> str | None:
            counts = {
                axis: max(count(axis, numbers[axis]), axis.capacity.least) if axis in some else axis.K for axis in axes
            }
            return difference(model, axes, example, counts.__getitem__, also)

        left = [axis for axis in axes if axis not in failed]
        narrow = [axis for axis in left if axis.normalised]
        wrong = _culprits([axis for axis in left if not axis.normalised], differs)
        sound = [axis for axis in left if axis not in wrong and not axis.normalised]
        for axis, reason in (wrong | _culprits(narrow, differs, sound)).items():
            # what takes the two best of some experts fails on one alone
            fails = name == "one" and "the deployed model fails" in reason and axis.capacity.takes_bounds
            able = range(2, min(MOST_NEEDED, axis.K // 2, axis.capacity.most or axis.K) + 1) if fails else ()
            tried = ((n, {each: each.K for each in axes} | {axis: n}) for n in able)
            works = (n for n, at in tried if difference(model, axes, example, at.__getitem__, also) is None)
            if least := next(works, None):
                axis.capacity.least = max(axis.capacity.least, least)
            else:
                failed[axis] = f"cut to {name}, the model computes something else ({reason})"
    for axis in (axis for axis in axes if axis.normalised and axis not in failed):
        why = why_whole(axis, axis.K - 1)
        if why is None and axis.K > 3:  # no value can be compared, but a trace of half of it must find its lengths
            with _at(axes, lambda each, axis=axis: axis.K // 2 if each is axis else each.K):  # type: ignore[misc]
                small = deploy(model, share_frozen=True, axes=axes)
                wanted = sorted((int(each.retained()[0].sum()), len(each.cuts)) for each in axes if each.normalised)
            found = sorted((g.length, len(g.cuts)) for g in traced_sizes(small, example, also, True) if g.normalised)
            why = None if wanted == found else f"cut to half, its parts have other lengths: {found}, not {wanted}"
        if why is not None:
            failed[axis] = why
    return failed


def _culprits(
    axes: Sequence[OrderedAxis],
    differs: Callable[[Sequence[OrderedAxis]], str | None],
    sound: Sequence[OrderedAxis] = (),  # whose cuts are right, and which are cut, too
    known: bool = False,  # that some of ``axes`` are wrong, since all before them are right
) -> dict[OrderedAxis, str]:
    """The axes whose cuts are wrong, found by halving; of axes that are wrong only together, the later ones."""
    if not axes:
        return {}
    reason = None
    if (not known or len(axes) == 1) and (reason := differs([*sound, *axes])) is None:
        return {}
    if reason is not None and len(axes) == 1:
        return {axes[0]: reason}
    first, second = axes[: len(axes) // 2], axes[len(axes) // 2 :]
    failed = _culprits(first, differs, sound)
    right = [axis for axis in first if axis not in failed]
    return failed | _culprits(second, differs, [*sound, *right], known=not failed)


def parts_of(model: nn.Module, axis: OrderedAxis) -> str:
    """Say what an axis cuts, for an error message."""
    paths = {id(module): path for path, module in model.named_modules()}
    having, taking = (
        list(dict.fromkeys(paths[id(cut.module)] or "the model" for cut in axis.cuts if cut.fold is fold))
        for fold in (False, True)
    )
    text = f"the size was found in {listed(having, 6)}"
    return f"{text}, its consumer is {listed(taking, 6)}" if taking else text


@torch.no_grad()
def _warn_of_untried(model: nn.Module, axes: Sequence[OrderedAxis], calls: Sequence[tuple[str, Any]]) -> None:
    """Warn of sizes that the example does not test: it never reaches them, or only with zeros."""
    live: set[str] = set()
    hooked: set[str] = set()
    with ExitStack() as hooks:
        for consumer in model.modules():
            names = {axis.name for axis in taken_by(consumer) if axis in axes}
            hooked |= names

            def note(_: nn.Module, args: Any, kwargs: Any, names: set[str] = names) -> None:
                h = _input(args, kwargs)
                if h is None or bool(h.any()):
                    live.update(names)

            if names:
                hooks.enter_context(consumer.register_forward_pre_hook(note, prepend=True, with_kwargs=True))
        for method, given in calls:
            outputs_on(model, given, method)
    if untried := sorted(hooked - live):
        warnings.warn(
            f"the example does not test {listed(untried, 6)}: it never reaches it, or only with zeros. Pass an input "
            "like your data",
            stacklevel=5,
        )


def _input(args: Any, kwargs: Any) -> Tensor | None:
    """The first input of a module; None if it exists only within a transform of ``torch.func``, such as ``vmap``."""
    h = args[0] if args else next(iter(kwargs.values()))
    return None if torch._C._functorch.is_functorch_wrapped_tensor(h) else h


def _of_layers(axis: OrderedAxis) -> bool:
    """Tell whether the components are layers of a stack."""
    return any(is_stack(owned(cut)) for cut in axis.cuts)


def difference(
    model: nn.Module,
    axes: Sequence[OrderedAxis],
    example: Any,
    count: Callable[[OrderedAxis], int],
    also: Also = NONE,
) -> str | None:
    """Say how ``model``, with each axis at its ``count``, differs from its deployed copy; None if it does not."""
    try:
        with _at(axes, count):
            small = deploy(model, share_frozen=True, axes=axes)
            if narrow := any(axis.normalised and count(axis) < axis.K for axis in axes):  # masks are no reference
                for method, given in calls_of(example, also):
                    called(small, given, method)
            else:
                check_equal(model, small, example, also=also, within=lambda: _activations(model, small, axes))
            for call in calls_of(example, also):
                fault, _ = in_training(model, small, call)
                with _at(axes, lambda axis: axis.K) if narrow else nullcontext():
                    if fault is not None and in_training(model, model, call)[0] is None:
                        return f"it fails in train mode: {fault}"
            return None
    except (ExampleError, CopyError):
        raise
    except FAULTS as fault:
        return summary(fault)


@contextmanager
def _at(axes: Sequence[OrderedAxis], count: Callable[[OrderedAxis], int]) -> Iterator[None]:
    """Let each axis retain its leading components, ``count`` of them, with their weights."""

    def leading(axis: OrderedAxis) -> Capacity:
        capacity = Retained(axis.K, count(axis))
        capacity.w = axis.capacity.weights().detach().to(torch.float64)
        return capacity.to(capacity.w.device)

    with having(axes, capacity=leading, mode=lambda axis: "hard"):
        yield


@contextmanager
def _activations(model: nn.Module, small: nn.Module, axes: Sequence[OrderedAxis]) -> Iterator[None]:
    """Compare the activations of hooked axes within the context, in the model and its cut copy."""
    # Outputs alone could hide a difference behind a layer of zeros, or a layer scale of 1e-6.
    seen: dict[str, tuple[list[Tensor], list[Tensor], int]] = {}
    hooks = ExitStack()
    # If layers are cut, the remaining ones change their names, and nothing is compared.
    whole = all(bool(axis.retained()[0].all()) for axis in axes if _of_layers(axis))
    for path, consumer in [*model.named_modules()] if whole else ():
        having = [axis for axis in taken_by(consumer) if axis in axes]
        if not having:
            continue
        name, dim = having[0].name, having[0].dim_at(consumer)
        wanted, got, _ = seen.setdefault(f"{name} in {path}" if name in seen else name, ([], [], dim))

        def note(
            module: nn.Module, args: Any, kwargs: Any, having: Any = having, dim: int = dim, to: Any = wanted
        ) -> None:
            if (h := _input(args, kwargs)) is not None:
                kept = [axis.along(module, axis.in_place(axis.retained()[0]), h) for axis in having]
                index = functools.reduce(torch.logical_and, kept).nonzero().flatten()
                to.append(h.index_select(dim, index.to(h.device)))

        def note_cut(module: nn.Module, args: Any, kwargs: Any, to: list[Tensor] = got) -> None:
            if (h := _input(args, kwargs)) is not None:
                to.append(h.clone())  # the model may write to it later

        for part, hook in ((consumer, note), (small.get_submodule(path), note_cut)):  # before hooks of the user's
            hooks.enter_context(part.register_forward_pre_hook(hook, prepend=True, with_kwargs=True))

    with hooks:
        yield
    each = ((name, *pair, dim) for name, (*lists, dim) in seen.items() for pair in zip(*lists, strict=True))
    # where another dimension is shorter, too, another size lies along it
    pairs = [(n, a, b) for n, a, b, dim in each if a.shape == b.shape or a.shape[dim] != b.shape[dim]]
    for name, want, got in pairs:
        if want.shape != got.shape:
            raise ValueError(f"the activation of {name} has the shape {list(got.shape)}, not {list(want.shape)}")
    for name, want, got in pairs:
        if (worst := apart(want, got)) is not None:
            raise DifferentError(f"the activation of {name} differs by {worst:.1e}")
