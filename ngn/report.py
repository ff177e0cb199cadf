"""Reports on learned sizes: counts, parameters, milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import arguments, evaluating
from ngn.copying import duplicate
from ngn.cost import cut_to, milliseconds


@dataclass(frozen=True)
class SizeReport:
    """One learned size in a :class:`Report`.

    Attributes:
        name, unit: the names of the size and of its components.
        t: the continuous size.
        before, after: number of components now, and after truncation.
        entries: entries of one component in the activation; None for layers.
        removed: parameters of the removed components. Two sizes that cut one tensor both count the entries they share.
        even: under a budget, the count of the even allocation; else None.
        evidence: under a budget, by how many standard errors the benefit of a component differed at most from the mean
            benefit; negative if it was less. Else None.
    """

    name: str
    unit: str
    t: float
    before: int
    after: int
    entries: int | None
    removed: int
    even: int | None = None
    evidence: float | None = None

    def __str__(self) -> str:
        text = f"{self.name or 'model'}: {self.before} -> {self.after} {self.unit}"
        if self.entries and self.entries > 1:
            text += f", {self.before * self.entries:,} -> {self.after * self.entries:,}"
        text += f", -{_short(self.removed)} parameters"
        if self.even is None or self.evidence is None:
            return f"{text} (t = {self.t:.2f})"
        if self.after == self.even:
            return f"{text} (even)"
        return f"{text} (even: {self.even}; benefit {self.evidence:+.1f} standard errors from the mean)"


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
        budget: how much of the budget is used; None without a budget.
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
            lines.append(f"latency: {before:.2f} -> {after:.2f} ms ({after / before - 1:+.0%}), medians, this machine")
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


@dataclass(frozen=True)
class WholeModel:
    """What reports compare with once a model is cut in place.

    Attributes:
        model: the model before its first cut (of a stack, one model), without gates and without values of parameters.
        parameters: number of its parameters (of a stack, of all), without those that decide sizes.
        sizes: the :func:`anatomy` of each axis.
    """

    model: nn.Module
    parameters: int
    sizes: dict[OrderedAxis, tuple[int, int | None, Tensor]]

    @classmethod
    def of(cls, model: nn.Module, axes: Sequence[OrderedAxis]) -> WholeModel:
        """Describe ``model``, which has not been cut."""
        controllers = (p for axis in axes for p in axis.capacity.controllers() if p.requires_grad)
        parameters = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in controllers)
        small = cut_to(model, axes, [axis.K for axis in axes])
        bare = {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in small.parameters()}
        return cls(duplicate(small, bare)[0], parameters, {axis: anatomy(axis) for axis in axes})

    def on(self, device: torch.device) -> nn.Module:
        """The model with parameters of 0, to measure its latency."""
        zeros = {id(p): nn.Parameter(torch.zeros_like(p, device=device)) for p in self.model.parameters()}
        return duplicate(self.model, zeros)[0]


def anatomy(axis: OrderedAxis) -> tuple[int, int | None, Tensor]:
    """The components of ``axis``, the entries of one (None for layers), and the parameters of each, [K]."""
    tensors = [cut for cut in axis.cuts if not isinstance(getattr(cut.module, cut.name), nn.ModuleList)]
    # a map that reads flattened channels has one column per pixel
    entries = min((cut.width for cut in tensors if cut.fold or cut is tensors[0]), default=None)
    return axis.K, None if entries is None else entries * axis.per, component_parameters(axis)


def size_reports(axes: list[OrderedAxis], names: list[str]) -> list[SizeReport]:
    """Report the sizes of a single model."""
    groups = []
    for axis, name in zip(axes, names, strict=True):
        K, entries, parameters = anatomy(axis) if axis.whole is None else axis.whole.sizes[axis]
        kept, size = axis.retained()[0].cpu(), axis.capacity.size()
        removed = int(parameters[~F.pad(kept, (0, K - len(kept)))].sum())
        groups.append(SizeReport(name, axis.unit, float(size), K, int(kept.sum()), entries, removed))
    return groups


@torch.no_grad()
def latency_of(model: nn.Module, example: Any) -> float:
    """Measure a call of ``model`` in eval mode, ms; ``example`` is a tuple or dictionary for several arguments."""
    args, named = arguments(example)
    with evaluating(model):
        return milliseconds(lambda: model(*args, **named), next(model.parameters()).device)
