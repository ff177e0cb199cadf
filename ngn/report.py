"""Reports on learned sizes: counts, parameters, milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import arguments, evaluating
from ngn.cost import milliseconds


@dataclass(frozen=True)
class SizeReport:
    """One learned size in a :class:`Report`.

    Attributes:
        name, unit: the names of the size and of its components.
        t: the continuous size.
        before, after: number of components now, and after truncation.
        entries: entries of one component in the activation; None for layers.
        removed: parameters of the removed components. Two sizes that cut one tensor both count the entries they share.
    """

    name: str
    unit: str
    t: float
    before: int
    after: int
    entries: int | None
    removed: int

    def __str__(self) -> str:
        text = f"{self.name or 'model'}: {self.before} -> {self.after} {self.unit}"
        if self.entries and self.entries > 1:
            text += f", {self.before * self.entries:,} -> {self.after * self.entries:,}"
        return f"{text}, -{_short(self.removed)} parameters (t = {self.t:.2f})"


@dataclass(frozen=True)
class Report:
    """The result of :meth:`~ngn.contract.Learner.report` for G learned sizes; a stack has one list per model.

    ``print(report)`` prints a line for each size.

    Attributes:
        size, count: continuous sizes (t for a boundary) and retained components, [G].
        distance: distance from t to the nearest integer, [G]; None if sizes are not boundaries.
        parameters: parameters of one model now, without those that decide its sizes.
        deployed: parameters that deployment leaves.
        groups: the sizes of one model by name.
        milliseconds: one call of the model with all components, and of the deployed model; None without ``latency=``.
        scores: scores of the model by mode; empty without ``score=``.
        budget: how much of the budget is used, and whether the task asked for less; None without a budget.
    """

    size: list[Any]
    count: list[Any]
    distance: list[Any] | None
    parameters: int
    deployed: int | list[int]
    groups: list[SizeReport] = field(default_factory=list, repr=False)
    milliseconds: tuple[float, float] | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    budget: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        lines = [str(group) for group in self.groups] or [f"count {self.count}, t {self.size}"]
        left = self.deployed if isinstance(self.deployed, list) else [self.deployed]
        smaller = ", ".join(f"{n:,} ({n / max(1, self.parameters) - 1:+.0%})" for n in left)
        lines.append(f"parameters: {self.parameters:,} -> {smaller}")
        if self.milliseconds is not None:
            before, after = self.milliseconds
            lines.append(
                f"latency: {before:.2f} -> {after:.2f} ms ({after / before - 1:+.0%}), medians on this machine"
            )
        if self.scores:
            lines.append(f"score: {', '.join(f'{mode} {_number(value)}' for mode, value in self.scores.items())}")
        if self.budget is not None:
            lines.append(f"budget: {self.budget}")
        return "\n".join(lines)


def _number(value: Any) -> str:
    """Format a number with four digits, and anything else with ``str``."""
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    return f"{number:.4g}" if isinstance(number, float) else str(number)


def _short(n: int) -> str:
    """12,300,000 → 12.3 M."""
    for unit, word in ((10**9, " G"), (10**6, " M")):
        if n >= unit:
            return f"{n / unit:.1f}{word}"
    return f"{n:,}"


def component_parameters(axis: OrderedAxis) -> Tensor:
    """Count the parameters of each component of ``axis``, in order: int64 [K], for one model of a stack."""
    parts = torch.zeros(axis.K, dtype=torch.int64)
    stacks = [m for m in (getattr(cut.module, cut.name) for cut in axis.cuts) if isinstance(m, nn.ModuleList)]
    for layers in stacks:
        parts += torch.tensor([sum(p.numel() for p in layer.parameters()) for layer in layers])
    for part in () if stacks else axis.component_parameters():
        at = 0 if axis.capacity.replicas is None else 1
        held = part.shape[at]
        parts[axis.K - held :] += part[0].numel() // (1 if at == 0 else held)
    return parts if axis.ranks is None or not stacks else parts[axis.ranks.argsort()]


def size_reports(axes: list[OrderedAxis], names: list[str]) -> list[SizeReport]:
    """Report the sizes of a single model."""
    groups = []
    for axis, name in zip(axes, names, strict=True):
        kept, size = axis.retained()[0].cpu(), axis.capacity.size()
        tensors = [cut for cut in axis.cuts if not isinstance(getattr(cut.module, cut.name), nn.ModuleList)]
        # a map that reads flattened channels has one column per pixel
        entries = min((cut.width for cut in tensors if cut.fold or cut is tensors[0]), default=None)
        removed = int(component_parameters(axis)[~kept].sum())
        groups.append(SizeReport(name, axis.unit, float(size), axis.K, int(kept.sum()), entries, removed))
    return groups


@torch.no_grad()
def latency_of(model: nn.Module, example: Any) -> float:
    """Measure a call of ``model`` in eval mode, ms; ``example`` is a tuple or dictionary for several arguments."""
    args, named = arguments(example)
    with evaluating(model):
        return milliseconds(lambda: model(*args, **named), next(model.parameters()).device)
