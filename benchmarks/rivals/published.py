"""Published methods: Torch-Pruning in three ways, MorphNet, BAR, and for language Wanda, Minitron and Sheared-LLaMA."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from rivals.methods import calibration, cut_evenly, kept, largest, retained, seeded, train, trained
from rivals.models import HEADS, CausalAttention
from rivals.work import Workload
from torch import Tensor, nn

import ngn
from experiments.methods.l0.capacity import HardConcrete
from ngn.cost import Cost

HALF = 0.5
"""Fraction of the steps in which a method with a penalty finds its sizes; the rest trains the small model."""
MORPHNET, ALIVE = 1e-2, 1e-2
"""MorphNet's strength, for costs as shares of the whole, and the scale above which a channel counts as alive."""
BARRIER, MARGIN, TOLERANCE, SLOPE, MOST = 1.0, 1e-4, 0.01, 10.0, 1e10
"""BAR's strength, for costs as shares of the whole; its margin, first tolerance, slope of the budget's way, largest
factor."""

TARGET_WARMUP, ASCENT = 0.2, 1.0
"""Sheared-LLaMA's part of the pruning in which the target falls, and the rate of its multipliers."""


def pruner(work: Workload, model: nn.Module, kept: float, everywhere: bool, sparsity: float | None = None) -> Any:
    """A pruner of Torch-Pruning by group norms; with ``sparsity``, the one that also regularises a training."""
    import torch_pruning as tp

    parts = [m for m in model.modules() if isinstance(m, CausalAttention)]
    more: dict[str, Any] = {} if sparsity is None else {"reg": sparsity}
    kind: Any = tp.BasePruner if sparsity is None else tp.GroupNormPruner
    return kind(
        model,
        work.example[:1],
        tp.importance.GroupMagnitudeImportance(),
        global_pruning=everywhere,
        pruning_ratio=1 - kept,
        ignored_layers=[model.get_submodule(name) for name in work.uncut],
        in_channel_groups={},  # their defaults are shared between calls
        out_channel_groups={},
        num_heads={m: HEADS for part in parts for m in (part.q_proj, part.k_proj, part.v_proj)},
        prune_num_heads=True,
        prune_head_dims=False,
        head_pruning_ratio=1 - kept,
        **more,
    )


def pruned(work: Workload, model: nn.Module, limit: int, everywhere: bool) -> nn.Module:
    """Cut a copy of ``model`` by Torch-Pruning to the largest kept fraction within the limit."""

    def cut(part: float) -> nn.Module:
        small = copy.deepcopy(model)
        pruner(work, small, part, everywhere).step()
        return small

    return cut(largest(lambda part: work.cost(cut(part)), limit))


def torch_pruning(work: Workload, seed: int, limit: int) -> nn.Module:
    """Train; cut by Torch-Pruning's group norms, all sizes ranked together; train on.

    After Fang et al., "DepGraph: towards any structural pruning", 2023. It may cut the residual stream, too.
    """
    small = pruned(work, trained(work, seed), limit, everywhere=True)
    return train(work, small, seed, first=work.settings.before)


def torch_pruning_local(work: Workload, seed: int, limit: int) -> nn.Module:
    """As :func:`torch_pruning`, with the same fraction of every size."""
    small = pruned(work, trained(work, seed), limit, everywhere=False)
    return train(work, small, seed, first=work.settings.before)


def torch_pruning_sparse(work: Workload, seed: int, limit: int) -> nn.Module:
    """Train half of the steps with Torch-Pruning's group sparsity (``GroupNormPruner``); cut; train on."""
    model = seeded(work, seed)
    sparsity = pruner(work, model, 1.0, True, sparsity=1e-4 * work.settings.strength)  # its default
    train(work, model, seed, last=HALF, regularise=lambda: sparsity.regularize(model))
    return train(work, pruned(work, model, limit, everywhere=True), seed, first=HALF)


def cost_per_unit(work: Workload, learner: Any) -> Tensor:
    """The cost of one more unit of each size as a share of the whole, float64 [G], at full sizes."""
    cost = Cost(learner.model, learner.axes, work.limited, work.example[:1])
    return cost(torch.tensor(cost.largest, dtype=torch.float64))[1] / cost.full


def morphnet(work: Workload, seed: int, limit: int) -> nn.Module:
    """Shrink by an L1 norm of batch norm's scales, weighted by cost, for half of the steps; widen; train on.

    After Gordon et al., "MorphNet", 2018: channels with a scale above :data:`ALIVE` give the sizes, which one factor
    brings to the limit. A trained network has no channels beyond its own, so the factor stops there.
    """
    model = seeded(work, seed)
    whole = retained(work, model)
    scales: list[Any] = [model.get_submodule(name.replace("conv1", "bn1")).weight for name in whole.names]
    costs = MORPHNET * work.settings.strength * cost_per_unit(work, whole)

    def penalty(_: float) -> Tensor:
        return sum((c * s.abs().sum() for c, s in zip(costs, scales, strict=True)), torch.zeros(()))

    train(work, model, seed, last=HALF, penalty=penalty)
    alive = [int((s.abs() > ALIVE).sum()) for s in scales]
    orders = {n: s.detach().abs().argsort(descending=True).tolist() for n, s in zip(whole.names, scales, strict=True)}
    learner = retained(work, model, lambda name, K: orders[name])
    most = max(len(s) / max(1, n) for s, n in zip(scales, alive, strict=True))

    def cut(part: float) -> nn.Module:
        return kept(learner, [min(len(s), round(part * most * n)) for s, n in zip(scales, alive, strict=True)])

    small = cut(largest(lambda part: work.cost(cut(part)), limit))
    return train(work, small, seed, first=HALF)


def barrier(cost: float, limit: float, progress: float) -> float:
    """BAR's factor on the cost: 0 well below the limit of the moment, without bound towards it.

        b = (1 - s(p)) (1 + TOLERANCE) + s(p) B;  v = max(0, (C - a) / (b - a));  a = B - MARGIN (1 + TOLERANCE)
        factor = v^2 / (1 - v), at most MOST; s: logistic of slope SLOPE, from 0 to 1

    Args:
        cost: C, of the model as it would be cut now, as a share of the whole.
        limit: B, as a share of the whole.
        progress: p in [0, 1].
    """
    end = 1 / (1 + math.exp(SLOPE / 2))
    way = (1 / (1 + math.exp(SLOPE * (0.5 - progress))) - end) / (1 - 2 * end)
    low = limit - MARGIN * (1 + TOLERANCE)
    now = (1 - way) * (1 + TOLERANCE) + way * limit
    v = max(0.0, (cost - low) / (now - low))
    return min(v**2 / (1 - v), MOST) if v < 1 else MOST


def bar(work: Workload, seed: int, limit: int) -> nn.Module:
    """Learn hard-concrete gates under a barrier at a falling budget for half of the steps; cut; train on.

    After Lemaire et al., "Structured pruning of neural networks with budget-aware regularization", 2019, without its
    distillation, which no other method gets.
    """
    share = limit / work.cost(seeded(work, seed))

    def force(progress: float, expected: Tensor, now: float) -> Tensor:
        return BARRIER * work.settings.strength * barrier(now, share, progress) * expected

    return gated(work, seed, limit, force)


def sheared(work: Workload, seed: int, limit: int) -> nn.Module:
    """Learn hard-concrete masks whose expected cost two Lagrange multipliers hold at a target; cut; train on.

    After Xia et al., "Sheared LLaMA", 2024, section 2.1, with masks of the work's sizes alone, and all data alike:

        m_1 (C - a) + m_2 (C - a)^2,  m_1 and m_2 from 0 by gradient ascent,  a from 1 to the limit
    """
    share, multipliers = limit / work.cost(seeded(work, seed)), [0.0, 0.0]

    def force(progress: float, expected: Tensor, now: float) -> Tensor:
        gap = expected - (1 - (1 - share) * min(1.0, progress / TARGET_WARMUP))
        loss = multipliers[0] * gap + multipliers[1] * gap.square()
        for power in (1, 2):
            multipliers[power - 1] += ASCENT * work.settings.strength * float(gap.detach()) ** power
        return loss

    return gated(work, seed, limit, force)


def gated(work: Workload, seed: int, limit: int, force: Callable[[float, Tensor, float], Tensor]) -> nn.Module:
    """Learn hard-concrete gates of all units for half of the steps; cut; train on.

    What is above the limit at the end loses the gates nearest to closing.

    Args:
        force: the loss for progress in [0, 1], the expected cost and the cost if it were cut now, as shares.
    """

    def capacity(name: str, K: int) -> HardConcrete:
        return HardConcrete(K, seed, price=0.0, name=name)

    model, sizes = seeded(work, seed), work.sizes(None, None)
    costs = cost_per_unit(work, retained(work, model))
    learner = ngn.learn_sizes(model, sizes, example=work.example, by_importance=None, capacity=capacity)
    gates: list[Any] = [axis.capacity for axis in learner.axes]
    all_open = torch.tensor([float(gate.K) for gate in gates])

    def penalty(progress: float) -> Tensor:
        open_now = torch.stack([gate.count() for gate in gates])
        expected = torch.stack([gate.open_probabilities().sum() for gate in gates])
        shares = [1 - (costs * (all_open - left)).sum() for left in (expected, open_now)]
        return force(progress, shares[0], float(shares[1]))

    train(work, learner, seed, last=HALF, penalty=penalty)
    levels = torch.cat([gate.log_alpha.detach() for gate in gates]).sort().values
    whole = [gate.log_alpha.detach().clone() for gate in gates]

    def cut(part: float) -> nn.Module:  # the part of all units that may stay
        least = levels[round((1 - part) * (len(levels) - 1))]
        for gate, level in zip(gates, whole, strict=True):
            gate.log_alpha.data.copy_(torch.where(level >= torch.minimum(least, level.max()), level, -gate.limit))
            if not int(gate.count()):  # all had closed by themselves: a layer keeps one unit
                gate.log_alpha.data[level.argmax()] = gate.limit
        return learner.deploy(unsettled="allow")

    return train(work, cut(largest(lambda part: work.cost(cut(part)), limit)), seed, first=HALF)


def wanda(work: Workload, seed: int, limit: int) -> nn.Module:
    """Cut each size to the same fraction by Wanda's score of its units; train on.

    After Sun et al., "A simple and effective pruning approach for large language models", 2024, summed over outputs.
    """
    model = trained(work, seed)
    return train(work, cut_evenly(work, model, limit, by_importance="wanda"), seed, first=work.settings.before)


def minitron(work: Workload, seed: int, limit: int) -> nn.Module:
    """Cut each size to the same fraction by the mean activation of its units; train on.

    After Muralidharan et al., "Compact language models via pruning and knowledge distillation", 2024, equation 1: the
    root over batches of the summed squares of means over tokens. All methods heal alike, so there is no distillation.
    """
    model = trained(work, seed)
    seen: dict[str, list[Tensor]] = {name: [] for name in retained(work, model).names}
    hooks = []
    for name, means in seen.items():
        *_, last = (part for part in model.get_submodule(name).modules() if isinstance(part, nn.Linear))
        note = functools.partial(lambda means, _, args: means.append(args[0].abs().mean(1)), means)
        hooks.append(last.register_forward_pre_hook(note))
    with torch.no_grad():
        for inputs in calibration(work):
            model(inputs)
    for hook in hooks:
        hook.remove()
    scores = {name: torch.cat(means).square().sum(0) for name, means in seen.items()}
    orders = {name: score.argsort(descending=True).tolist() for name, score in scores.items()}
    small = cut_evenly(work, model, limit, lambda name, K: orders[name])
    return train(work, small, seed, first=work.settings.before)
