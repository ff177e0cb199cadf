"""The members of a front: nested counts, from the smallest to the whole model, and running statistics of their own.

A path is an order in which components are removed, so each of its points has the components of all smaller ones. Two
orders exist:

    even     one factor f for all sizes, n_g = f K_g: a count falls from a to the next allowed b where f passes
             (a + b) / 2 K_g; of several at once, the last size gives way first
    scores   the component of least score per cost goes next, of those that are last in their size

Points are taken where the cost comes just within evenly spaced limits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import having
from ngn.budget import share
from ngn.budget.evidence import tracks
from ngn.budget.rounding import Allowed, NestedCounts
from ngn.checks import arguments
from ngn.tracing.found import aligned

FINE = 8192
"""Largest number of removals on an even path."""
Within = Callable[[Allowed], NestedCounts]
Slots = dict[str, Any]
"""The parameters, the buffers or the attributes of a module."""
RUNNING = ("running_mean", "running_var")
READ = 20
"""Batches that are read to measure statistics again, at most."""


def even_order(allowed: Allowed, whole: Sequence[int], through: Sequence[Within] = ()) -> list[int]:
    """The sizes in the order in which one factor for all takes their components; ``whole``: K of each.

    Args:
        through: largest first: allowed counts → those of them that the path leads through.

    >>> even_order([[1, 2, 3, 4], [1, 2]], [4, 2])
    [0, 1, 0, 0]
    >>> even_order([[1, 2, 3, 4], [1, 2]], [4, 2], [lambda allowed: (2, 2)])
    [0, 0, 1, 0]
    """
    order: list[int] = []
    for counts in (*through, lambda allowed: tuple(n[0] for n in allowed)):
        low = counts(allowed)
        taken = [(n[bisect_left(n, least) :], K) for n, least, K in zip(allowed, low, whole, strict=True)]
        steps = [((a + b) / (2 * K), g) for g, (n, K) in enumerate(taken) for a, b in pairwise(n)]
        order += [g for _, g in sorted(steps, reverse=True)]
        allowed = [n[: bisect_right(n, least)] for n, least in zip(allowed, low, strict=True)]
    return order


def member_with(point: int, counts: Sequence[Sequence[int]], places: Sequence[int]) -> int:
    """The number of the smallest member, of those at ``places``, that has all components of a point."""
    return next(number for number, place in enumerate(places) if place >= point or counts[place] == counts[point])


def place_of(budget: str | float, costs: Sequence[float], kind: str) -> int:
    """The number of the largest point within a budget.

    Args:
        budget: a cost, or a share of the largest, such as "40%".
        costs: those of all points, ascending.

    Raises:
        TypeError, ValueError: if it is neither, or no point has such a cost.
    """
    if isinstance(budget, bool) or not isinstance(budget, (str, int, float)):
        raise TypeError(f"budget= is a number of {kind}, or a share of the whole model as in '40%', not {budget!r}")
    limit = share(budget, "the whole model") * costs[-1] if isinstance(budget, str) else float(budget)
    if not costs[0] * (1 - 1e-9) <= limit <= costs[-1] * (1 + 1e-9):
        digits = 3 if kind == "milliseconds" else 0
        raise ValueError(
            f"a budget of {limit:,.{digits}f} {kind} is outside of the front: it goes from {costs[0]:,.{digits}f} "
            f"({costs[0] / costs[-1]:.1%}) to {costs[-1]:,.{digits}f}"
        )
    return max(n for n, cost in enumerate(costs) if cost <= limit * (1 + 1e-9) or not n)


@dataclass(frozen=True)
class Members:
    """The members of a front, smallest first; ``print`` shows a table.

    Attributes:
        kind: the name of the cost.
        rows: of each member its cost under the name of ``kind``, its "share" of the whole model's, its "score" if one
            was asked for, and its "sizes" by name.
    """

    kind: str
    rows: list[dict[str, Any]]

    def __str__(self) -> str:
        digits, rows = 3 if self.kind == "milliseconds" else 0, []
        for row in self.rows:
            score = [_short(row["score"])] if "score" in row else []
            rows.append(
                [f"{row[self.kind]:,.{digits}f}", f"{row['share']:.1%}", *score, *map(str, row["sizes"].values())]
            )
        titles = [self.kind, "share", *["score"] * ("score" in self.rows[0]), *self.rows[0]["sizes"]]
        return "\n".join(aligned([titles, *rows]))

    def save(self, path: str | Path) -> None:
        """Draw the scores above the costs; the ending of ``path`` says the format.

        Raises:
            ValueError: without scores, of one number each.
            ImportError: if matplotlib is not installed.
        """
        if "score" not in self.rows[0]:
            raise ValueError("a picture shows scores: call learner.front(score) with a function of a model")
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.plot([row[self.kind] for row in self.rows], [float(row["score"]) for row in self.rows], marker="o")
        axes.set(xlabel=self.kind, ylabel="score")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path)


def _short(score: Any) -> str:
    try:
        return f"{float(score):.4g}"
    except (TypeError, ValueError):
        return str(score)


class Statistics(nn.Module):
    """The running statistics of normalisations, for each of ``members`` but the largest, which has the model's own."""

    values: Tensor
    """Means and variances of all layers, [members, entries]."""
    batches: Tensor
    """Batches seen, int64 [members, layers]."""
    passes: Tensor
    """What a training has seen of its passes: 0 nothing yet, 1 none is computed again in the backward pass, 2 some."""

    def __init__(self, model: nn.Module, members: int) -> None:
        super().__init__()
        self.names = [name for name, part in model.named_modules() if tracks(part)]
        parts: list[Any] = [model.get_submodule(name) for name in self.names]
        self.sizes = [len(part.running_mean) for part in parts]
        entries = [value for part in parts for value in (part.running_mean, part.running_var)]
        counts = [0 if part.num_batches_tracked is None else int(part.num_batches_tracked) for part in parts]
        device = entries[0].device if entries else None
        values = torch.cat(entries).detach() if entries else torch.zeros(0)
        self.register_buffer("values", values.repeat(members, 1).clone())
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self.register_buffer("batches", torch.tensor(counts, dtype=torch.int64, device=device).repeat(members, 1))

    def of(self, model: nn.Module, member: int) -> Iterator[tuple[Slots, str, Tensor]]:
        """The places in ``model`` of the statistics of a member, and these, as views of the buffers."""
        parts: list[Any] = [model.get_submodule(name) for name in self.names]
        for like in [part.running_mean for part in parts[:1]]:
            if (like.device, like.dtype) != (self.values.device, self.values.dtype):  # the model was moved alone
                self.to(like.device, like.dtype)
        sizes = [size for size in self.sizes for _ in range(2)]
        each = [value.data for value in self.values[member].split(sizes)]  # each with a version of its own for autograd
        for number, part in enumerate(parts):
            yield part._buffers, "running_mean", each[2 * number]
            yield part._buffers, "running_var", each[2 * number + 1]
            if part.num_batches_tracked is not None:
                yield part._buffers, "num_batches_tracked", self.batches[member, number]


@torch.no_grad()
def measure_again(model: nn.Module, batches: Iterable[Any]) -> nn.Module:
    """``model`` whose normalisations have the mean statistics of the first :data:`READ` of ``batches``.

    The model is in eval mode, in which all else stays. Of a batch that is a list, as a ``DataLoader`` makes of pairs,
    the first entry is the input. It is a ValueError if there is no batch.
    """
    norms: list[Any] = [part for part in model.modules() if tracks(part)]
    for part in norms:
        part.reset_running_stats()
    read = 0
    with having(norms, momentum=lambda part: None, training=lambda part: True):  # the mean over all batches
        for read, batch in enumerate(islice(batches, READ), 1):  # noqa: B007
            given = batch[0] if isinstance(batch, list) else dict(batch) if isinstance(batch, Mapping) else batch
            args, named = arguments(given)
            model(*args, **named)
    if not read:
        raise ValueError("calibration= has no batches, so no statistics can be measured: pass batches of inputs")
    return model
