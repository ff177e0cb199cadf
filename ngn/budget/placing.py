"""Where the boundaries of continuous counts lie, how sharp their gates are, and what held-out losses say of them.

A gate spans WIDTH of its count (beta = 2 / max(1, WIDTH n_g)), so that the slope at the boundary is that of several
components. Over the last part of the way gates sharpen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ngn.budget import Budget
from ngn.budget.allowance import TRIALS, Allowance
from ngn.budget.evidence import prefers
from ngn.budget.rounding import REMOVALS, order_by_scores, points, thinned
from ngn.checks import summed
from ngn.methods.batch import benefits, place
from ngn.methods.ngn import NOMINAL_ZERO, CountGate

WIDTH = 0.1
"""Fraction of a count that its gate spans."""
SHARPEN = 0.7
"""Fraction of the time before the commit from which gates sharpen, down to NARROWEST components."""
NARROWEST = 0.1
OPEN = 4.0
"""Widths of a gate by which the boundary of a full size lies beyond its last component, so that all gates are open."""
NEARLY_FULL = 0.95
"""Fraction of K above which a boundary moves beyond the last component."""
BEGINNING = 6
"""Parts of the held-out data by which sizes by scores and even ones are compared."""
COARSE = 2.5
"""Components below which rounding, and not evidence, would decide most of a size: it changes it by over a fifth."""


def place_counts(allowance: Allowance, n: Tensor, fraction: float) -> None:
    """Move the boundaries to counts ``n``, [*R, G], at this ``fraction`` of the time before the commit."""
    sharp = max(0.0, min(1.0, (1.0 - fraction) / (1.0 - SHARPEN)))
    width = ((WIDTH * n).clamp(min=1.0) * sharp).clamp(min=NARROWEST)
    full = (n / allowance.most(n.device, before_cuts=True) - NEARLY_FULL).clamp(min=0.0) / (1.0 - NEARLY_FULL)
    t = n - n.new_tensor([gate.smallest_count for gate in allowance.gates]) + OPEN * width * full
    place(allowance.gates, t.clamp(min=NOMINAL_ZERO), 2.0 / width)


def leaning(sizes: Tensor, z: Tensor, budget: Budget) -> Tensor:
    """Move sizes of few components by up to half of one to where the evidence z points: 1.4 heads become 1 or 2."""
    lean = 0.5 * (z / budget.significance).clamp(-1.0, 1.0)
    return torch.where(sizes < COARSE, (sizes + lean).clamp(min=0.5), sizes)


def losses_at(allowance: Allowance, loss: Callable[[int], Tensor], shape: torch.Size, counts: Tensor) -> Tensor:
    """The loss on held-out parts with the gates at ``counts``, of ``shape`` [*R, G]: float64 [TRIALS, R]."""
    place_sharply(allowance, counts.reshape(shape))
    return summed(torch.stack([loss(part).detach().to(counts).reshape(-1) for part in range(TRIALS)]))


def place_sharply(allowance: Allowance, counts: Tensor) -> None:
    """Open ``counts`` components, [*R, G], as a cut would."""
    t = counts - counts.new_tensor([gate.smallest_count for gate in allowance.gates])
    place(allowance.gates, t.clamp(min=NOMINAL_ZERO), torch.full_like(t, 2.0 / NARROWEST))


def scores_of(allowance: Allowance, progress: float) -> list[Tensor] | None:
    """Squared Taylor scores of the components of each size, before the first step; None if one has none."""
    sized, cost = allowance.sized, allowance.cost
    known = [getattr(axis, "worth", None) for axis in sized.axes]
    begun = progress > 0.0 or sized.replicas is not None or len(allowance.gates) == 1
    if begun or allowance.budget.significance == math.inf or any(each is None for each in known):
        return None
    scores = [torch.zeros(K, dtype=torch.float64) for K in cost.largest]
    for size, worth in zip(cost.size_of.tolist(), known, strict=True):
        scores[size] += worth.cpu()  # type: ignore[union-attr]
    return scores


@torch.no_grad()
def preferred(
    allowance: Allowance, scores: Sequence[Tensor], even: Sequence[int], loss: Callable[[int], Tensor]
) -> tuple[int, ...] | None:
    """The knapsack of ``scores`` at the limit if held-out data prefer it to the ``even`` counts, else None."""
    cost, gates, significance = allowance.cost, allowance.gates, allowance.budget.significance
    allowed = thinned([allowance.allowed(g) for g in range(len(gates))], REMOVALS // 4)
    counts = points(order_by_scores(allowed, scores, cost), allowed, cost, [float(allowance.limit)])[0][0]
    models = torch.tensor([cost.largest, even, counts], dtype=torch.float64, device=gates[0].tau.device)

    def loss_at(model: int, part: int) -> Tensor:
        place_sharply(allowance, models[model])
        return loss(part)

    better = counts != even and prefers(allowance.sized.model, [1], [2], 0, loss_at, significance, BEGINNING)
    return counts if better else None


def gain_of(gates: Sequence[CountGate], sizes: Tensor, value: Tensor) -> Tensor:
    """-sum_g n_g dL/dn_g, what more of every size would gain on a held-out loss ``value``, [*R]."""
    taus = [gate.tau for gate in gates if gate.tau.requires_grad]  # not of removed layers
    slope_of = dict(zip(taus, torch.autograd.grad(value.sum(), taus, allow_unused=True), strict=True))
    return summed((sizes * benefits(gates, [slope_of.get(gate.tau) for gate in gates])).sum(-1))
