"""The evidence on which sizes part: what a component is worth, and whether the slope at the boundary agrees.

    importance   I_g = (dL/dt_g)^2 / (beta_g C_g), the mean square of the slope at a boundary, per cost: an estimate of
                 the curvature of the loss (Fisher), so of what the loss of a component would do to a trained model.
                 Dividing by beta_g makes it that of one component, as a gate spans 2 / beta_g of them
    slope        u_g = -(dL/dt_g) / C_g, what one more component would gain at once, per cost

Both less their mean over the sizes, weighted by cost. The importance alone knows no compensation: components that share
the work of others all look important. The slope alone sees only weights that still move. So the importance decides, and
a slope that points the other way by more than DOUBT standard errors stops it. Noise has a mean square, too. So without
held-out data both must say the same, and the weaker counts.

A network that memorises noise gains from every component, on its training data alone. So with held-out data, sizes part
only while one of two tests on them speaks for it, each by more than a number of standard errors:

    learning   L_i(first) - L_i(now), the fall of the loss of part i of the held-out data, over the parts; it has
               to be FALL of the loss, too
    capacity   -sum_g n_g dL/dn_g, what a larger model would gain, over the held-out batches

A network that learns passes the first, a trained network that shrinks the second, one that memorises noise neither. Its
held-out loss falls a little while it shrinks, since a smaller network memorises less: hence FALL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_map

from ngn.axis import having
from ngn.checks import summed

AVERAGE = 50
"""Steps over which values are averaged."""
DOUBT = 1.0
"""Standard errors by which a slope must point the other way to stop what the importance says."""
FALL = 0.02
"""Fraction of the held-out loss by which it has to fall."""
JUDGED, NEAR = 2, 0.7
"""Steps from one held-out batch to the next; the part of the needed |z| that a size must have before the first."""
IN_TIME = 0.75
"""Part of the steps to the commit within which held-out data must be able to confirm; else they are not asked."""
JUDGINGS = 64
"""Largest number of held-out batches after each part was seen twice, about: in long trainings they come less often."""
PARTS = 16
"""Parts of the held-out data. The tests count no more independent samples than parts."""
FEWEST = 4
"""Parts of the held-out data without which two models are not compared."""


class BenefitMoments(nn.Module):
    """Decayed sums of values, [*R, G], from which follow their mean and its standard error.

    mean     sum_i w_i x_i / sum_i w_i, w_i = (1 - 1 / AVERAGE)^(age of value i)
    error    sqrt(variance / (effective number - 1)), effective number (sum_i w_i)^2 / sum_i w_i^2
    """

    moments: Tensor
    """Decayed sums of values and of their squares: float64 [2, *R, G]."""
    weights: Tensor
    """Sums of the weights and of their squares: float64 [2, *R]."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.register_buffer("moments", torch.zeros(2, *shape, dtype=torch.float64))
        self.register_buffer("weights", torch.zeros(2, *shape[:-1], dtype=torch.float64))

    def add(self, values: Tensor, counts: Tensor) -> None:
        """Add ``values``, float64 [*R, G], where ``counts``, float64 [*R], is 1; those with 0 change nothing."""
        left = 1.0 - counts / AVERAGE
        values = values * counts.unsqueeze(-1)
        self.moments.mul_(left.unsqueeze(-1)).add_(torch.stack([values, values**2]))
        self.weights.mul_(torch.stack([left, left**2])).add_(counts)

    def standard_errors(self) -> Tensor:
        """The mean in units of its standard error: float64 [*R, G]; 0 if unknown."""
        (total, squares), (weight, of_squares) = self.moments, self.weights.unsqueeze(-1)
        mean = total / weight.clamp(min=1.0)
        effective = (weight**2 / of_squares.clamp(min=1e-300) - 1.0).clamp(min=1.0)
        error = ((squares / weight.clamp(min=1.0) - mean**2).clamp(min=0.0) / effective).sqrt()
        return torch.where((weight > 1.0) & (error > 0.0), mean / error.clamp(min=1e-300), 0.0)


class BoundaryEvidence(nn.Module):
    """The running importance and slope of each size; equations above."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.importance, self.slope = BenefitMoments(shape), BenefitMoments(shape)

    def add(self, slopes: Tensor, beta: Tensor, costs: Tensor, counts: Tensor, valid: Tensor) -> None:
        """Add the slopes -dL/dt_g of a step, with beta_g, C_g = dC/dn_g and n_g, all float64 [*R, G].

        ``valid``: 0 where the step says nothing, float64 [*R].
        """
        share = costs * counts
        share = share / share.sum(-1, keepdim=True)
        for moments, value in ((self.importance, slopes**2 / beta), (self.slope, slopes)):
            worth = value / costs
            moments.add(worth - (share * worth).sum(-1, keepdim=True), valid)

    def standard_errors(self, held_out: bool) -> Tensor:
        """The evidence in standard errors, float64 [*R, G]: 0 if there is none, positive if a size deserves more.

        ``held_out``: whether held-out data confirm that there is something to learn.
        """
        important, slope = self.importance.standard_errors(), self.slope.standard_errors()
        agreement = important.sign() * slope
        if held_out:
            return torch.where(agreement < -DOUBT, 0.0, important)
        return important.sign() * torch.minimum(important.abs(), agreement.clamp(min=0.0))


class Confirmation(nn.Module):
    """The two tests for each replica."""

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

    @torch.no_grad()
    def add(self, number: int, loss: Tensor, gain: Tensor | None) -> None:
        """Add held-out batch ``number``: its loss and, where known, what capacity would gain on it, both [*R]."""
        part, value = number % PARTS, summed(loss.detach().clone()).to(self.last).reshape(self.last.shape[1:])
        self.first[part] = torch.where(self.seen[part] > 0, self.first[part], value)
        self.last[part] = value
        self.seen[part] += 1.0
        if gain is None:
            return
        rate = 1.0 - 0.5 / PARTS
        self.moments.mul_(rate).add_(torch.stack([gain, gain**2]).reshape(self.moments.shape))
        self.weight.mul_(rate).add_(1.0)

    def asks(self, step: int, commit: int, z: float) -> bool | None:
        """Whether to judge now, where sizes commit in step ``commit`` and the largest |z| is ``z`` of what it needs.

        None in the steps between two judgements.
        """
        every = max(JUDGED, commit // JUDGINGS * int(self.seen.min() > 1))
        if step % every:
            return None
        in_time = every * float((2.0 - self.seen).clamp(min=0.0).sum()) <= IN_TIME * (commit - step)
        return in_time and (z >= NEAR or bool(self.seen.any()))

    def confirms(self, significance: float) -> Tensor:
        """Whether a test passes: bool [*R]. False until every part was seen twice."""
        fall = self.first - self.last
        least = FALL * self.first.mean(0).abs()
        learning = fall.mean(0) > (significance * fall.std(0) / PARTS**0.5).maximum(least)
        mean, square = self.moments / self.weight.clamp(min=1.0)
        capacity = mean > significance * ((square - mean**2).clamp(min=0.0) / (PARTS - 1)).sqrt()
        return (learning | capacity) & (self.seen > 1).all()


def tracks(part: nn.Module) -> bool:
    """Whether a module has running statistics."""
    return isinstance(part, _NormBase) and part.running_mean is not None


def batch_statistics(model: nn.Module) -> AbstractContextManager[None]:
    """Let the normalisations of ``model`` use the statistics of each batch, and change nothing, within the context."""
    norms = [part for part in model.modules() if tracks(part)]
    return having(norms, momentum=lambda part: 0.0, training=lambda part: True, num_batches_tracked=lambda part: None)


@contextmanager
def mismatched(model: nn.Module) -> Iterator[None]:
    """Let the outputs of ``model`` meet the targets of other samples within the context: they move by one sample.

    Where the model computes its loss itself, from ``labels``, those move.
    """

    def moved(value: Any) -> Any:
        return value.roll(1, 0) if isinstance(value, Tensor) and value.dim() else value

    def before(module: nn.Module, args: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        return (args, named | {"labels": moved(named["labels"])}) if "labels" in named else None

    def after(module: nn.Module, args: Any, named: dict[str, Any], output: Any) -> Any:
        return None if "labels" in named else tree_map(moved, output)

    first = model.register_forward_pre_hook(before, with_kwargs=True)
    with first, model.register_forward_hook(after, with_kwargs=True):
        yield


@torch.no_grad()
def prefers(
    model: nn.Module,
    even: Sequence[int],
    scored: Sequence[int],
    whole: int,
    loss_at: Callable[[int, int], Tensor],
    significance: float,
    parts: int = PARTS,
) -> bool:
    """Whether held-out data prefer members by scores to even ones of the same costs.

    The whole model must know the targets, too: with those of other samples its loss must be larger, by a part of it.
    A trained network under other targets is better, the closer a member is to it or to a constant, which says nothing.
    Both must hold by ``significance`` standard errors over the ``parts`` of the data, on which ``loss_at`` gives the
    loss of a member.
    """
    found: list[Tensor] = []
    for part in range(parts):
        with batch_statistics(model):
            each = [loss_at(member, part) for member in (whole, *even, *scored)]
            with mismatched(model):
                each.append(loss_at(whole, part))
        new = summed(torch.stack([value.detach().double().mean() for value in each]))  # both tests know no scale
        if found and torch.equal(new, found[0]):  # the data start again
            break
        found.append(new)
    if len(found) < FEWEST:
        return False
    best, evens, others, mixed = torch.stack(found).split([1, len(even), len(scored), 1], 1)
    knows, gain = (mixed - best)[:, 0], evens.mean(1) - others.mean(1)
    clear = [d.mean() > significance * d.std() / len(found) ** 0.5 for d in (knows, gain)]
    return bool(knows.mean() > FALL * best.mean().abs()) and all(map(bool, clear))
