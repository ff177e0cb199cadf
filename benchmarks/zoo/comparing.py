"""Models with random weights, their outputs, and whether two of them compute the same."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from zoo.models import Model

from ngn.checks import arguments, copied, floating

EQUAL = 1e-4
"""Largest difference of two outputs that rounding explains, relative to the largest entry."""
NOISE, MOST = 1e-6, 1e-2
"""Some models amplify rounding: a difference may be as large as that from this noise in all weights, up to MOST."""
MODES = ("eval", "train")
Row = dict[str, Any]


def fresh(model: Model, seed: int = 0) -> nn.Module:
    """The model with random weights in which nothing hides a difference: no zeros, no layer scale of 1e-6."""
    torch.manual_seed(seed)
    made = model.build().eval()
    with torch.no_grad():
        for value in made.parameters():
            if value.dim() <= 1 or float(value.abs().max()) < 1e-3 or not float(value.std()) > 0:
                value.add_(0.1 * torch.randn_like(value))
        for name, buffer in made.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.1 * torch.randn_like(buffer))
            if name.endswith("running_var"):
                buffer.mul_(0.5 + torch.rand_like(buffer))
    return made


def batch_of(make: Callable[[], Any], seed: int = 1) -> Any:
    """An input that ``make`` draws."""
    torch.manual_seed(seed)
    return make()


class WithoutDropout(TorchFunctionMode):
    """Leave dropout out: it would draw other numbers for a model of other lengths.

    What drops the layers of a whole example draws the same ones for every model.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if "dropout" in name:
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention":
            args, kwargs["dropout_p"] = args[:4], 0.0
        return func(*args, **kwargs)


@torch.no_grad()
def outputs(model: nn.Module, example: Any, training: bool = False) -> list[Tensor]:
    """The floating-point tensors that ``model`` returns, in eval or in train mode; it is left in eval mode.

    Running statistics stay as they are.
    """
    before = [(buffer, buffer.clone()) for buffer in model.buffers()] if training else []
    torch.manual_seed(2)
    args, named = arguments(copied(example))
    try:
        with WithoutDropout() if training else nullcontext():
            return [value.clone() for value in floating(model.train(training)(*args, **named))]
    finally:
        model.eval()
        for buffer, value in before:
            buffer.copy_(value)


def apart(wanted: list[Tensor], got: list[Tensor]) -> float | str:
    """The largest difference of outputs relative to the largest entry, or how they differ in shape."""
    if [value.shape for value in wanted] != [value.shape for value in got]:
        return "another shape"
    if not sum(value.numel() for value in wanted):
        return "no output to compare"
    worst = 0.0
    for want, other in zip(wanted, got, strict=True):
        if want.numel():
            worst = max(worst, float((want - other).abs().max()) / max(1e-30, float(want.abs().max())))
    return worst if worst == worst else "not a number"


def verdict(difference: float | str, explained: float = 0.0) -> str:
    """ "yes" for equal outputs, else how they differ."""
    if isinstance(difference, str):
        return difference
    return "yes" if difference <= max(EQUAL, explained) else f"differs by {difference:.1e}"


@torch.no_grad()
def explained(model: nn.Module, example: Any, training: bool) -> float:
    """How much a little noise in all weights changes the outputs, at most MOST."""
    before = [(value, value.clone()) for value in model.parameters()]
    wanted = outputs(model, example, training)
    try:
        torch.manual_seed(5)
        for value, _ in before:
            value.add_(NOISE * value * torch.randn_like(value))
        change = apart(wanted, outputs(model, example, training))
    finally:
        for value, kept in before:
            value.copy_(kept)
    return 0.0 if isinstance(change, str) else min(MOST, change)


def in_both_modes(model: nn.Module, batch: Any) -> dict[str, list[Tensor]]:
    """The outputs in eval and in train mode."""
    return {mode: outputs(model, batch, mode == "train") for mode in MODES}


def differ(row: Row, check: str, wanted: dict[str, list[Tensor]], got: nn.Module, batch: Any) -> None:
    """Note whether ``got`` computes what is ``wanted`` in each mode; the largest difference of several calls counts."""
    largest = row.setdefault("differences", {}).setdefault(check, {})
    for mode, values in wanted.items():
        difference = apart(values, outputs(got, batch, mode == "train"))
        if (said := verdict(difference)) != "yes":
            said = verdict(difference, explained(got, batch, mode == "train"))
        if said != "yes" and row.get(check, "yes") == "yes":
            row[check] = f"{said} in {mode} mode"
        if isinstance(difference, str) or not isinstance(largest.get(mode, 0.0), str):
            largest[mode] = difference if isinstance(difference, str) else max(difference, largest.get(mode, 0.0))


def said(fault: Exception) -> str:
    """The kind of an error and the first line of its message."""
    lines = str(fault).strip().splitlines() or [""]
    return f"{type(fault).__name__}: {lines[0]}"[:200]


@contextmanager
def noted(row: Row, check: str, quiet: bool = False) -> Iterator[None]:
    """Note whether a check passes: a failure is kept as its kind and the first line of its message.

    Args:
        quiet: do not print where it fails.
    """
    try:
        yield
        row.setdefault(check, "yes")
    except Exception as fault:
        if not quiet:
            traceback.print_exc()
        row[check] = said(fault)


def parameters(model: nn.Module) -> int:
    """The number of parameters, a tied one once."""
    return sum(value.numel() for value in model.parameters())


def loss_of(model: nn.Module, example: Any) -> Tensor:
    """The mean square of all outputs.

    Raises:
        ValueError: if it is not finite.
    """
    args, named = arguments(copied(example))
    losses = [value.float().square().mean() for value in floating(model(*args, **named)) if value.requires_grad]
    loss = sum(losses)
    if not isinstance(loss, Tensor) or not bool(torch.isfinite(loss)):
        raise ValueError(f"the loss is {loss}")
    return loss
