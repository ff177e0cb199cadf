"""Checks that a deployed copy is faithful: it computes the same on any input, and it does not call the original."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ngn.checks import (
    FAULTS,
    NONE,
    Also,
    ExampleError,
    called,
    calls_of,
    evaluating,
    floating,
    outputs_on,
    summary,
    untouched,
)


def varied(example: Any, strength: float = 0.1, longer: bool = False) -> Any:
    """An input like ``example`` with other values.

    Real numbers get noise of ``strength`` standard deviations. If there are none, integers move by one place, or are
    drawn anew from their range for a strength of 1 and more. ``longer`` repeats the first sample at the end: no index
    then leaves its range.
    """
    source = torch.Generator().manual_seed(0)
    tensors = [part for part in tree_leaves(example) if isinstance(part, Tensor)]
    real = any(part.is_floating_point() or part.is_complex() for part in tensors)
    samples = next((len(part) for part in tensors if part.dim()), 0)

    def vary(part: Any) -> Any:
        if not isinstance(part, Tensor) or part.layout is not torch.strided:
            return part
        part = part.detach()
        if part.is_meta:
            pass  # without values
        elif part.is_floating_point() or part.is_complex():
            known = part[part.isfinite()].abs().float()
            spread = float(known.std(correction=0)) or float(known.mean()) or 1.0 if known.numel() else 1.0
            part = part + (strength * spread * torch.randn(part.shape, generator=source)).to(part)
        elif not real and part.dtype != torch.bool and part.numel() and part.dim():
            low, high = int(part.min()), int(part.max())
            drawn = torch.randint(low, high + 1, part.shape, generator=source).to(part)
            part = drawn if strength >= 1 else part.roll(1, -1)
        return torch.cat([part, part[:1]]) if longer and part.dim() and len(part) == samples else part

    return tree_map(vary, example)


@torch.no_grad()
def check_equal(
    model: nn.Module,
    deployed: nn.Module,
    example: Any,
    replica: int | None = None,
    also: Also = NONE,
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Compare the outputs of two models, with the same random numbers and fresh copies of the input.

    They are compared on ``example``, on the calls of ``also``, and on inputs of other values with one more sample, if
    the model takes them. What differs is compared again in float64, which rounds too little for it: a deep model with
    sharp attention makes of rounding in float32 what a wrong cut would do, with some weights and not with others.

    It is a ValueError if they differ by more than rounding explains, also in float64 if they run in it: 6e-5 of the
    largest output in float32, 1e-2 in float16, 8e-2 in bfloat16, 1e-9 in float64. Also if the deployed model calls a
    module of ``model``. The context ``within`` is for each call on a given input; it may raise one, too.
    """

    def equal(call: tuple[str, Any]) -> None:
        with within():
            compare(model, deployed, call, replica)
        for longer in (True, False):
            with suppress(ExampleError):  # the model is not for this input, which says nothing about its copy
                return compare(model, deployed, (call[0], varied(call[1], longer=longer)), replica, varies=True)

    for call in calls_of(example, also):
        try:
            equal(call)
        except DifferentError as differing:
            try:
                with _in_float64(model, deployed):
                    equal((call[0], tree_map(_double, call[1])))
            except FAULTS:
                raise differing from None


class DifferentError(ValueError):
    """Two models compute other values: from a wrong cut, or from rounding that a model amplifies."""


def _double(value: Any) -> Any:
    rounded = isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float16, torch.bfloat16)
    return value.double() if rounded else value


@contextmanager
def _in_float64(*models: nn.Module) -> Iterator[None]:
    """Let modules hold float64 copies of their parameters and buffers; the tensors themselves stay as they are."""
    parts = {part: None for model in models for part in _hookable(model)}
    tables: list[dict[str, Any]] = [table for part in parts for table in (part._parameters, part._buffers)]
    held = [(table, dict(table)) for table in tables]
    values = {id(value): value for _, own in held for value in own.values()}
    with torch.no_grad():
        copies = {key: _double(value) for key, value in values.items()}
    try:
        for table, own in held:
            table.update((name, copies[id(value)]) for name, value in own.items())
        yield
    finally:
        for table, own in held:
            table.update(own)


@torch.no_grad()
def compare(
    model: nn.Module, deployed: nn.Module, call: tuple[str, Any], replica: int | None = None, varies: bool = False
) -> None:
    """Compare two models on one call, a method and an input; for errors see :func:`check_equal`.

    If it ``varies``, the input is not the user's. The deployed model then comes first: a tensor that it shares with
    ``model`` is still that of another input.
    """
    where = "an input of other values" if varies else "the example"
    method, example = call
    fault: Exception | None = None
    outputs: list[Tensor] = []
    with evaluating(model), torch.random.fork_rng():
        for turn in ("deployed", "model") if varies else ("model", "deployed"):
            torch.manual_seed(0)
            if turn == "model":
                wanted = outputs_on(model, example, method)
                continue
            try:
                with _refusing_calls(model, deployed):
                    outputs = floating(called(deployed, example, method))
            except FAULTS as error:
                fault = error
    if fault is not None:
        raise ValueError(f"on {where} the deployed model fails: {type(fault).__name__}: {summary(fault)}") from fault
    if not wanted:
        raise ValueError("the model returns no floating-point tensor on the example, so there is nothing to compare")
    if len(wanted) != len(outputs):
        raise ValueError(
            f"on {where} the deployed model returns {len(outputs)} tensors, but the truncated model {len(wanted)}"
        )
    wanted = [want if replica is None else want[replica] for want in wanted]
    for want, got in zip(wanted, outputs, strict=True):
        if want.shape != got.shape:
            raise ValueError(f"the deployed model returns {list(got.shape)} on {where}, not {list(want.shape)}")
    for want, got in zip(wanted, outputs, strict=True):
        if (worst := apart(want, got)) is not None:
            raise DifferentError(
                f"on {where} the deployed model differs from the truncated model, by {worst:.1e} of the largest "
                "output. Perhaps a tensor with the axis has no cut, or a layer mixes components."
            )


def in_training(model: nn.Module, part: nn.Module, call: tuple[str, Any]) -> tuple[str | None, list[Tensor]]:
    """A call of ``part``, a model or its copy, in train mode; both are put back.

    The result is why it fails, None if it does not, and the values that it writes into parameters of ``model``.
    """
    method, example = call
    with untouched(part), untouched(model) as written, written, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part.train()
        try:
            outputs_on(part, example, method)
        except ExampleError as fault:
            return str(fault.__cause__).partition("\n")[0], []
        own = (written.own[number][0] for number in sorted(written.kept))
        return None, [value.detach().clone() for value in own if isinstance(value, nn.Parameter)]


@torch.no_grad()
def apart(want: Tensor, got: Tensor) -> float | None:
    """The difference of two tensors relative to the largest of ``want``; None if rounding explains it."""
    if not want.numel():
        return None
    want, got = want.detach(), got.detach()  # a model may return gradients that have some themselves
    same = (want == got) | (want.isnan() & got.isnan())  # covers infinities
    differing = torch.where(same, torch.zeros_like(want), want - got).abs()
    largest = torch.where(want.isfinite(), want, torch.zeros_like(want)).abs().max()
    worst, eps = float(differing.max()) / max(1e-30, float(largest)), torch.finfo(want.dtype).eps
    return None if worst <= max(10 * eps, 6e-5 if eps > 1e-12 else 1e-9) else worst


def _hookable(model: nn.Module) -> Iterator[nn.Module]:
    """The modules of ``model`` that take hooks; scripted code does not."""
    return (part for part in model.modules() if not isinstance(part, torch.jit.ScriptModule))


@contextmanager
def _refusing_calls(model: nn.Module, deployed: nn.Module) -> Iterator[None]:
    """Refuse calls of modules of ``model`` from its copy, except of those that copies share."""
    shared = {*deployed.modules()}

    def refuse(module: nn.Module, args: Any) -> None:
        raise ValueError(
            f"the deployed model calls a {type(module).__name__} of the trained model: a function, a weak reference or "
            "a global holds it and is not copied; make it a submodule"
        )

    with ExitStack() as hooks:
        for part in (part for part in _hookable(model) if part not in shared):
            hooks.enter_context(part.register_forward_pre_hook(refuse))
        yield
