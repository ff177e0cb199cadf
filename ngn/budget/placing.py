"""Where the boundaries of continuous counts lie, how sharp their gates are, and what held-out losses say of them.

A gate spans WIDTH of its count (beta = 2 / max(1, WIDTH n_g)), so that the slope at the boundary is that of several
components. Over the last part of the way gates sharpen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ngn.budget import Budget
from ngn.budget.allowance import TRIALS, Allowance
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
COARSE = 2.5
"""Components below which rounding, and not evidence, would decide most of a size: it changes it by over a fifth."""


def reach(n: Tensor) -> Tensor:
    """The components whose gates are not closed, at counts ``n``."""
    return n + OPEN * (WIDTH * n).clamp(min=1.0)


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


def gain_of(gates: Sequence[CountGate], sizes: Tensor, value: Tensor) -> Tensor:
    """-sum_g n_g dL/dn_g, what more of every size would gain on a held-out loss ``value``, [*R]."""
    taus = [gate.tau for gate in gates if gate.tau.requires_grad]  # not of removed layers
    slope_of = dict(zip(taus, torch.autograd.grad(value.sum(), taus, allow_unused=True), strict=True))
    return summed((sizes * benefits(gates, [slope_of.get(gate.tau) for gate in gates])).sum(-1))
