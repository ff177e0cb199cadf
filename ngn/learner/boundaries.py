"""The boundaries' own Adam, in loops that have an optimiser for the weights."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

LR = 5e-2
"""Learning rate of the boundaries."""
BETAS, EPS = (0.9, 0.999), 1e-8


@torch.no_grad()
def adam_step(parameters: Sequence[nn.Parameter], moments: Tensor, lr: float) -> None:
    """Take a step of Adam, without weight decay. None moves if a gradient is not finite; copies nothing to the host.

    Parameters without a gradient stay. ``moments``, [3, entries], are steps, means and mean squares, changed in place.
    """
    if all(p.grad is None for p in parameters):
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    g = torch.cat([gradient.flatten() for gradient in gradients]).to(moments)
    seen = g.new_tensor([p.grad is not None for p in parameters for _ in range(p.numel())]).bool()
    steps, mean, square = moments
    steps, mean, square = steps + 1.0, mean.lerp(g, 1.0 - BETAS[0]), square.lerp(g * g, 1.0 - BETAS[1])
    change = lr * mean / (1.0 - BETAS[0] ** steps) / ((square / (1.0 - BETAS[1] ** steps)).sqrt() + EPS)
    takes = seen & g.isfinite().all()
    moments.copy_(torch.where(takes, torch.stack([steps, mean, square]), moments))
    changes = torch.where(takes, change, 0.0).split([p.numel() for p in parameters])
    for p, part in zip(parameters, changes, strict=True):
        if p.grad is not None:
            p.sub_(part.view_as(p))


def moved_elsewhere(
    parameters: Sequence[nn.Parameter], before: Sequence[Tensor] | None, optimizers: Sequence[Optimizer]
) -> bool | None:
    """Whether an optimiser is there to move the boundaries: one with a group of them alone, or none of torch's.

    ``before``: their values before the optimisers' steps, None if unknown. The result is None if it cannot be told yet.
    Warns of weight decay in a group of boundaries.
    """
    if all(p.grad is None for p in parameters):
        return None
    own = {id(p) for p in parameters}
    groups = [({id(p) for p in group["params"]}, group) for each in optimizers for group in each.param_groups]
    holding = [(held, group) for held, group in groups if held & own]
    if not holding:
        if before is None or all(map(torch.equal, parameters, before)):
            return None if before is None else False
        living = [each for each in gc.get_objects() if issubclass(type(each), Optimizer)]  # one that was not passed
        return moved_elsewhere(parameters, None, living) is not False
    apart = [group for held, group in holding if held <= own]
    if decay := max((group.get("weight_decay", 0.0) for group in apart), default=0.0):
        warnings.warn(
            f"weight_decay={decay:g} pulls the boundaries of your optimiser's own group for them: set it to 0 in that "
            "group. Or give the optimiser learner.parameters() in one group, and learner.step moves the boundaries "
            "without weight decay",
            stacklevel=4,
        )
    return bool(apart)
