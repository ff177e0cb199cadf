"""Reports on learned sizes: counts, parameters, milliseconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import arguments, evaluating
from ngn.cut import cut_to, distinct
from ngn.cut.copying import duplicate
from ngn.cuts import is_stack, owned
from ngn.measuring import in_turns
from ngn.tracing.found import aligned

MODE_WORDS = {"soft": "as trained", "kept": "with gates on what is kept", "hard": "as deployed"}
"""What the modes of a score are."""


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
        return f"{self.name or 'model'}: {self.before} -> {self.after} {self.unit}, -{_short(self.removed)} parameters"


@dataclass(frozen=True)
class Report:
    """The result of :meth:`~ngn.learner.Learner.report` for G learned sizes; a stack has one list per model.

    ``print(report)`` prints a table of the sizes, what the model costs, and what the words mean.

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
        lines = _table(self.groups) if self.groups else [f"count {self.count}, t {self.size}"]
        left = self.deployed if isinstance(self.deployed, list) else [self.deployed]
        smaller = ", ".join(f"{n:,} ({n / max(1, self.parameters) - 1:+.0%})" for n in left)
        lines.append(f"parameters: {self.parameters:,} -> {smaller}")
        if self.milliseconds is not None:
            before, after = self.milliseconds
            lines.append(f"latency: {before:.2f} -> {after:.2f} ms ({after / before - 1:+.0%}), medians, this machine")
        if self.scores:
            each = (f"{_number(value)} {MODE_WORDS[mode]} ({mode})" for mode, value in self.scores.items())
            lines.append(f"score: {', '.join(each)}")
        if self.budget is not None:
            lines.append(f"budget: {self.budget}")
        return "\n".join(lines + _explained(self.groups))


def _uneven(groups: Sequence[SizeReport]) -> bool:
    return any(group.even is not None and group.even != group.after for group in groups)


def _explained(groups: Sequence[SizeReport]) -> list[str]:
    """What the columns of :func:`_table` mean."""
    if _uneven(groups):
        return [
            "even: the count if all sizes had shrunk alike",
            "benefit: what a component is worth against the mean, in standard errors; sizes part beyond 3 "
            "(significance=)",
        ]
    if len(groups) > 1 and groups[0].even is not None:
        return ["even: all sizes shrank alike, as no component was clearly worth more than the mean (significance=)"]
    return ["t: the boundary between kept and cut components"] if any(group.even is None for group in groups) else []


def _table(groups: Sequence[SizeReport]) -> list[str]:
    """A line for each size, in aligned columns below their names."""
    first, last = (max(len(str(getattr(group, name))) for group in groups) for name in ("before", "after"))
    columns = {
        "size": [group.name or "model" for group in groups],
        "before -> after": [f"{group.before:{first}} -> {group.after:{last}} {group.unit}" for group in groups],
    }
    entries = [group.entries or 1 for group in groups]
    if max(entries) > 1:
        pairs = zip(groups, entries, strict=True)
        columns["entries"] = [f"{g.before * n:,} -> {g.after * n:,}" if n > 1 else "" for g, n in pairs]
    columns["change"] = [f"{group.after / max(1, group.before) - 1:.0%}" for group in groups]
    columns["parameters"] = [f"{'-' * (group.removed > 0)}{_short(group.removed)}" for group in groups]
    if _uneven(groups):
        columns["even"] = [str(group.even) for group in groups]
        columns["benefit"] = [f"{group.evidence or 0.0:+.1f}" for group in groups]
    elif any(group.even is None for group in groups):
        columns["t"] = [f"{group.t:.2f}" for group in groups]
    return aligned([[*columns], *zip(*columns.values(), strict=True)])


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
    """Count the parameters of each component of ``axis``, in order: int64 [K], for one model of a stack.

    A parameter counts once, with the component whose removal frees it: the last of the layers that share it, and the
    first of two components where the axis lies along both dimensions of a weight.
    """
    parts, lead = torch.zeros(axis.K, dtype=torch.int64), 0 if axis.capacity.replicas is None else 1
    at = torch.arange(axis.places) // axis.per if axis.ranks is None else axis.ranks
    counted: set[int] = set()
    owners: dict[int, tuple[Tensor, dict[int, Tensor]]] = {}
    for cut in distinct(axis).values():
        value = owned(cut)
        if is_stack(value):
            for place in at.argsort().tolist():
                new = {id(p): p.numel() for p in value[place].parameters() if id(p) not in counted}
                parts[at[place]] += sum(new.values())
                counted |= new.keys()
        elif isinstance(value, nn.Parameter):
            dim, first = cut.dim % (value.dim() - lead) + lead, max(0, cut.start)
            along = owners.setdefault(id(value), (value, {}))[1]
            owner = along.setdefault(dim, torch.full((value.shape[dim],), -1))
            owner[first : cut.start + axis.places * cut.width] = at.repeat_interleave(cut.width)[first - cut.start :]
    for value, along in owners.values():
        owner = torch.tensor(-1)
        for own in along.values():
            owner = torch.maximum(owner.unsqueeze(-1), own)
        each = value.numel() // max(1, owner.numel()) // (len(value) if lead else 1)
        parts += each * torch.bincount(owner[owner >= 0], minlength=axis.K)
    return parts


@dataclass(frozen=True)
class WholeModel:
    """What reports compare with once a model is cut in place.

    Attributes:
        model: the model before its first cut (of a stack, one model), without gates and without values of parameters.
        parameters: their number (of a stack, of all models), without those that decide sizes.
        sizes: the :func:`anatomy` of each axis.
    """

    model: nn.Module
    parameters: int
    sizes: dict[OrderedAxis, tuple[int, int | None, Tensor]]

    @classmethod
    def of(cls, model: nn.Module, axes: Sequence[OrderedAxis]) -> WholeModel:
        """Describe ``model``, which has not been cut."""
        controllers = {p for axis in axes for p in axis.capacity.controllers() if p.requires_grad}
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


def latencies_of(whole: nn.Module, small: nn.Module, example: Any) -> tuple[float, float]:
    """Measure calls of two models in turns, in eval mode, ms; ``example`` is a tuple or dictionary for arguments."""
    args, named = arguments(example)
    with evaluating(whole), evaluating(small):
        device = next(small.parameters()).device
        before, after = in_turns([partial(model, *args, **named) for model in (whole, small)], device)
    return statistics.median(before), statistics.median(after)


def distance_of(axes: Sequence[OrderedAxis], t: Tensor) -> Tensor:
    """|t - round(t)| of boundaries ``t``, [*R, G]; beyond the last component it is 0."""
    t = t.minimum(t.new_tensor([axis.K - axis.capacity.smallest_count for axis in axes]))
    return (t - t.round()).abs()
