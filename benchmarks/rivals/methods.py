"""Methods without a package or paper of their own: each returns a plain module within its limit."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from rivals.clock import CLOCK
from rivals.models import HEADS
from rivals.work import Workload
from torch import Tensor, nn

import ngn
from ngn.checks import evaluating

STEP, COARSE = 512, 64
"""Widths and kept fractions are multiples of 1 / STEP; the search begins with multiples of COARSE / STEP."""
CALIBRATION = 8
"""Batches of the training from which an order by data is computed."""
EARLY = 0.1
"""Fraction of the steps after which sizes of a trained network are fixed."""
RETAINED: Any = {"capacity": lambda name, K: ngn.Retained(K)}


def seeded(work: Workload, seed: int, width: float = 1.0) -> nn.Module:
    """Make a new model; at width 1 it is the same for every method."""
    torch.manual_seed(seed)
    return work.model(width)


def train(
    work: Workload,
    model: nn.Module,
    seed: int,
    first: float = 0.0,
    last: float = 1.0,
    penalty: Callable[[float], Tensor] | None = None,
    regularise: Callable[[], Any] | None = None,
) -> nn.Module:
    """Train in place from ``first`` to ``last``, fractions of a training; a learner also learns its sizes.

    Args:
        penalty: fraction of the steps from ``first`` to ``last`` → a term of the loss.
        regularise: changes gradients before they are clipped.
    """
    settings, batches, held_out = work.settings, work.batches(seed), work.held_out
    start, end = round(first * settings.steps), round(last * settings.steps)
    learner = model if isinstance(model, ngn.Learner) else None
    sizes = [] if learner is None else learner.controller_parameters()
    held = {id(p) for p in sizes}
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if id(p) not in held]}]
    groups += [{"params": sizes, "lr": settings.lr_boundary, "weight_decay": 0.0}] if sizes else []
    optimizer = torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    model.train()
    for step in range(start, end):
        p = (step - start) / (end - start) if settings.restart else step / settings.steps
        optimizer.param_groups[0]["lr"] = settings.lr * min(20 * p + 0.02, 0.5 + 0.5 * math.cos(math.pi * p))
        loss = work.loss(model, batches.at(step))
        if learner is not None:
            loss = loss + learner.penalty()
        if penalty is not None:
            loss = loss + penalty((step - start) / (end - start))
        optimizer.zero_grad()
        loss.backward()
        if learner is not None and held_out is not None and (number := learner.held_out_batch(step)) is not None:
            with evaluating(learner):
                learner.judge(lambda part: work.loss(learner, held_out.at(part)), number)
        if regularise is not None:
            regularise()
        nn.utils.clip_grad_norm_(groups[0]["params"], 1.0)
        optimizer.step()
        if learner is not None:
            learner.step((step + 1 - start) / (end - start), optimizer)
    return model.eval()


def dense(work: Workload, seed: int, limit: int) -> nn.Module:
    """Train the whole dense model."""
    return train(work, seeded(work, seed), seed)


def given(work: Workload, seed: int, limit: int) -> nn.Module:
    """Return the trained network that the others begin with."""
    return seeded(work, seed).eval()


def uniform(work: Workload, seed: int, limit: int) -> nn.Module:
    """Train a model with all widths smaller by one factor, from the start."""
    return train(work, seeded(work, seed, largest(lambda part: work.cost(work.model(part)), limit)), seed)


@CLOCK.shared
def trained(work: Workload, seed: int) -> nn.Module:
    """Return the dense model at the time of the cut."""
    return train(work, seeded(work, seed), seed, last=work.settings.before)


def even(work: Workload, seed: int, limit: int) -> nn.Module:
    """Train a model whose learnable sizes are all smaller by one factor, from the start."""
    return train(work, cut_evenly(work, seeded(work, seed), limit), seed)


def magnitude(work: Workload, seed: int, limit: int) -> nn.Module:
    """Train; cut the components of smallest L1 norm, the same fraction of each size; train on.

    After Li et al., "Pruning filters for efficient ConvNets", 2017. The sizes are those that NGN learns.
    """
    learner = retained(work, trained(work, seed))
    orders = {}
    for name, axis in zip(learner.names, learner.axes, strict=True):
        norms = sum(part.detach().abs().flatten(1).sum(1) for part in axis.component_parameters())
        orders[name] = norms.argsort(descending=True).tolist()
    small = cut_evenly(work, trained(work, seed), limit, lambda name, K: orders[name])
    return train(work, small, seed, first=work.settings.before)


def retained(work: Workload, model: nn.Module, order: Any = None, by_importance: Any = None) -> Any:
    """Copy ``model`` and make its sizes cuttable to a prefix of ``order``, or of the order of importance."""
    sizes, more = work.sizes(None, order), ordering(work, by_importance)
    return ngn.learn_sizes(copy.deepcopy(model), sizes, example=work.example, **more, **RETAINED)


def ordering(work: Workload, by_importance: Any) -> dict[str, Any]:
    """Arguments of ``ngn.learn_sizes`` for an order of importance; one by data reads the first training batches."""
    if by_importance in (None, "magnitude"):
        return {"by_importance": by_importance}
    return {"by_importance": by_importance, "calibration": calibration(work)}


def calibration(work: Workload) -> list[Tensor]:
    """The inputs of the first training batches of seed 0, for orders by data."""
    batches = work.batches(0)
    return [batches.at(number)[0] for number in range(CALIBRATION)]


def kept(learner: Any, counts: Sequence[int]) -> nn.Module:
    """Cut a learner of :func:`retained` to the first ``counts`` components of its sizes, at least one of each."""
    for axis, count in zip(learner.axes, counts, strict=True):
        axis.capacity.left.fill_(max(1, count))
    return learner.deploy(unsettled="allow")


def cut_evenly(work: Workload, model: nn.Module, limit: int, order: Any = None, by_importance: Any = None) -> nn.Module:
    """Cut each size of ``model`` to the same fraction, the first of an order, within the budget.

    A model has few heads. Of their numbers, the one counts whose fraction is nearest to the units' that then fit.
    """
    learner = retained(work, model, order, by_importance)
    lengths = [axis.K for axis in learner.axes]

    def cut(part: float, heads: int) -> nn.Module:
        return kept(learner, [round(part * K) if K > HEADS else heads for K in lengths])

    def of_units(heads: int) -> float:
        return largest(lambda part: work.cost(cut(part, heads)), limit)

    parts = {heads: of_units(heads) for heads in (range(1, HEADS + 1) if min(lengths) <= HEADS else [HEADS])}
    apart = {heads: abs(math.log(part * HEADS / heads)) for heads, part in parts.items() if part > 0}
    nearest = min(apart, key=lambda heads: apart[heads])
    return cut(parts[nearest], nearest)


@CLOCK.shared
def learner(work: Workload, seed: int, limit: int, significance: float = 3.0) -> ngn.CapacityLearner:
    """Learn the sizes with the weights, within the budget."""
    limited: Any = {work.limited: limit}
    budget = ngn.Budget(**limited, example=work.example[:1], significance=significance)
    sizes = work.sizes(work.settings.K, None)
    settings: Any = {"budget": budget, "commit": work.settings.commit} | ordering(work, work.order)
    made = ngn.learn_sizes(seeded(work, seed), sizes, example=work.example, **settings)
    train(work, made, seed)
    return made


def learned(work: Workload, seed: int, limit: int) -> nn.Module:
    """Learn the sizes: see :func:`learner`."""
    return learner(work, seed, limit).deploy(example=work.example)


@functools.cache
def changed(work: Workload, **settings: Any) -> Workload:
    """The same work with other settings of those that :func:`train` and :func:`learner` read."""
    return replace(work, settings=replace(work.settings, **settings))


def learned_early(work: Workload, seed: int, limit: int) -> nn.Module:
    """Learn the sizes of a trained network in the first tenth of the steps, then train it in them."""
    return learned(changed(work, commit=EARLY), seed, limit)


def shrunk(work: Workload, seed: int, limit: int) -> nn.Module:
    """Shrink as NGN does, but to even sizes: no evidence is enough to part."""
    return learner(work, seed, limit, math.inf).deploy(example=work.example)


def scratch(work: Workload, seed: int, limit: int) -> nn.Module:
    """Train a new (or trained) model, cut to the sizes that NGN has learned with this seed."""
    return train(work, of_sizes(work, seed, learner(work, seed, limit)), seed)


def of_sizes(work: Workload, seed: int, found: ngn.CapacityLearner) -> nn.Module:
    """Cut a new (or trained) model to the sizes that ``found`` has learned."""
    counts = dict(zip(found.names, found.count().tolist(), strict=True))
    more = ordering(work, work.order) | RETAINED
    sizes = work.sizes(work.settings.K, None)
    keeper = ngn.learn_sizes(seeded(work, seed), sizes, example=work.example, **more)
    return kept(keeper, [counts[name] for name in keeper.names])


def cut(work: Workload, seed: int, limit: int) -> nn.Module:
    """Train; cut each size to the same fraction, by index; train on."""
    return train(work, cut_evenly(work, trained(work, seed), limit), seed, first=work.settings.before)


def largest(count: Callable[[float], int], limit: int) -> float:
    """Return the largest fraction n / STEP whose count is at most ``limit``; the count grows with n.

    It may fall again at small fractions: a pruner that may not empty a size then cuts none of it.
    """
    low = next((n for n in range(STEP, 0, -COARSE) if count(n / STEP) <= limit), 0)
    high = min(low + COARSE, STEP + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle / STEP) <= limit else (low, middle)
    return low / STEP
