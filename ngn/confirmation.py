"""Do held-out data confirm that training, or capacity, helps?

A network that memorises noise gains from every component, on its training data alone. So sizes part only while one of
two tests on held-out batches speaks for it, each by more than a number of standard errors:

    learning   L_i(first) - L_i(now), the fall of the loss of part i of the held-out data, over the parts; it has
               to be FALL of the loss, too
    capacity   -sum_g n_g dL/dn_g, what a larger model would gain, over the held-out batches

A network that learns passes the first, a trained network that shrinks the second, one that memorises noise neither. Its
held-out loss falls a little while it shrinks, since a smaller network memorises less: hence FALL.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FALL = 0.02
"""Fraction of the held-out loss by which it has to fall."""
PARTS = 16
"""Parts of the held-out data. The tests count no more independent samples than parts."""


class Confirmation(nn.Module):
    """The two tests for each replica.

    >>> test = Confirmation(None)
    >>> for step in range(64):
    ...     test.add(step, torch.tensor(1.0 / (1 + step) + 0.01 * (step % 16)), torch.tensor(0.0))
    >>> bool(test.given), bool(test.confirms(3.0))
    (True, True)
    """

    first: Tensor
    """Loss of each part when it was first seen: float64 [PARTS, *R]."""
    last: Tensor
    seen: Tensor
    """How often each part was seen: float64 [PARTS]."""
    moments: Tensor
    """Decayed sums of the gain of capacity and of its square: float64 [2, *R]."""
    weight: Tensor

    def __init__(self, replicas: int | None) -> None:
        super().__init__()
        shape = () if replicas is None else (replicas,)
        self.register_buffer("first", torch.zeros(PARTS, *shape, dtype=torch.float64))
        self.register_buffer("last", torch.zeros(PARTS, *shape, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(PARTS, dtype=torch.float64))
        self.register_buffer("moments", torch.zeros(2, *shape, dtype=torch.float64))
        self.register_buffer("weight", torch.zeros((), dtype=torch.float64))

    @property
    def given(self) -> Tensor:
        """Whether any held-out batch was seen."""
        return self.weight > 0

    def clear(self) -> None:
        """Forget everything: a new training begins."""
        for value in (self.first, self.last, self.seen, self.moments, self.weight):
            value.zero_()

    @torch.no_grad()
    def add(self, number: int, loss: Tensor, gain: Tensor) -> None:
        """Add held-out batch ``number``: its loss and what capacity would gain on it, both [*R]."""
        part, value = number % PARTS, loss.detach().to(self.last).reshape(self.last.shape[1:])
        self.first[part] = torch.where(self.seen[part] > 0, self.first[part], value)
        self.last[part] = value
        self.seen[part] += 1.0
        rate = 1.0 - 0.5 / PARTS
        self.moments.mul_(rate).add_(torch.stack([gain, gain**2]).reshape(self.moments.shape))
        self.weight.mul_(rate).add_(1.0)

    def confirms(self, significance: float) -> Tensor:
        """Whether a test passes: bool [*R]. False until every part was seen twice."""
        fall = self.first - self.last
        least = FALL * self.first.mean(0).abs()
        learning = fall.mean(0) > (significance * fall.std(0) / PARTS**0.5).maximum(least)
        mean, square = self.moments / self.weight.clamp(min=1.0)
        capacity = mean > significance * ((square - mean**2).clamp(min=0.0) / (PARTS - 1)).sqrt()
        return (learning | capacity) & (self.seen > 1).all()
