"""Published methods: Torch-Pruning, MorphNet, BAR, and for language Wanda, Minitron and Sheared-LLaMA."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

import ngn
from experiments.methods.gates.l0 import HardConcrete
from experiments.methods.pruning import HALF
from experiments.methods.pruning.cutting import (
    ModuleRun,
    Staged,
    at_the_cut,
    cut_evenly,
    falling,
    kept,
    largest,
    retained,
)
from ngn.budget.cost import Cost

MORPHNET, ALIVE = 1e-2, 1e-2
"""MorphNet's strength, for costs as shares of the whole, and the scale above which a channel counts as alive."""
BARRIER, MARGIN, TOLERANCE, SLOPE, MOST = 1.0, 1e-4, 0.01, 10.0, 1e10
"""BAR's strength, for costs as shares of the whole; its margin, first tolerance, slope of the budget's way, largest
factor."""
TARGET_WARMUP, ASCENT = 0.2, 1.0
"""Sheared-LLaMA's part of the pruning in which the target falls, and the rate of its multipliers."""
SPARSITY = 1e-4
"""Torch-Pruning's own strength of group sparsity."""


def strength(work: ModuleRun) -> float:
    """The factor on a method's own strength."""
    return float(work.config.method.strength)  # type: ignore[attr-defined]


def pruner(work: ModuleRun, module: nn.Module, part: float, sparsity: float | None = None) -> Any:
    """A pruner of Torch-Pruning by group norms; with ``sparsity``, the one that also regularises a training."""
    import torch_pruning as tp

    method: Any = work.config.method
    attention: list[Any] = [each for each in module.modules() if hasattr(each, "head_dim") and hasattr(each, "q_proj")]
    more: dict[str, Any] = {} if sparsity is None else {"reg": sparsity}
    kind: Any = tp.BasePruner if sparsity is None else tp.GroupNormPruner
    return kind(
        module,
        work.example[:1],
        tp.importance.GroupMagnitudeImportance(),
        global_pruning=sparsity is not None or method.ranking == "global",
        pruning_ratio=1 - part,
        ignored_layers=[module.get_submodule(name) for name in work.task.uncut],
        in_channel_groups={},  # their defaults are shared between calls
        out_channel_groups={},
        num_heads={m: m.out_features // a.head_dim for a in attention for m in (a.q_proj, a.k_proj, a.v_proj)},
        prune_num_heads=True,
        prune_head_dims=False,
        head_pruning_ratio=1 - part,
        **more,
    )


def torch_pruning(work: ModuleRun) -> Staged:
    """Cut by Torch-Pruning's group norms, to the largest kept fraction within the limit."""

    def cut(module: nn.Module) -> nn.Module:
        def at(part: float) -> nn.Module:
            small = copy.deepcopy(module)
            pruner(work, small, part).step()
            return small

        return at(largest(lambda part: work.cost(at(part)), work.within))

    staged = at_the_cut(work, cut)
    if sparsity := work.config.method.sparsity:  # type: ignore[attr-defined]
        sparse = pruner(work, staged.model, 1.0, sparsity=SPARSITY * sparsity)
        staged.regularise = lambda: sparse.regularize(staged.model)
    return staged


def cost_per_unit(work: ModuleRun, learner: Any) -> Tensor:
    """The cost of one more unit of each size as a share of the whole, float64 [G], at full sizes."""
    cost = Cost(learner.model, learner.axes, str(work.kind), work.example[:1])
    return cost(torch.tensor(cost.largest, dtype=torch.float64))[1] / cost.full


def morphnet(work: ModuleRun) -> Staged:
    """Shrink by an L1 norm of batch norm's scales, weighted by cost, for half of the steps; widen; train on.

    After Gordon et al., "MorphNet", 2018: channels with a scale above :data:`ALIVE` give the sizes, which one factor
    brings to the limit. A trained network has no channels beyond its own, so the factor stops there.
    """
    whole = retained(work, module := work.module())
    costs = MORPHNET * strength(work) * cost_per_unit(work, whole)

    def scales(of: nn.Module) -> list[Any]:
        return [of.get_submodule(name.replace("conv1", "bn1")).weight for name in whole.names]

    def cut(trained: nn.Module) -> nn.Module:
        magnitudes = [scale.detach().abs() for scale in scales(trained)]
        alive = [int((s > ALIVE).sum()) for s in magnitudes]
        learner = retained(work, trained, falling(dict(zip(whole.names, magnitudes, strict=True))))
        most = max(len(s) / max(1, n) for s, n in zip(magnitudes, alive, strict=True))

        def at(part: float) -> nn.Module:
            return kept(learner, [min(len(s), round(part * most * n)) for s, n in zip(magnitudes, alive, strict=True)])

        return at(largest(lambda part: work.cost(at(part)), work.within))

    staged = Staged(work, module, cut, HALF)
    staged.pressure = lambda _: sum(
        (c * s.abs().sum() for c, s in zip(costs, scales(staged.model), strict=True)), torch.zeros(())
    )
    return staged


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


def bar(work: ModuleRun) -> Staged:
    """Learn hard-concrete gates under a barrier at a falling budget for half of the steps; cut; train on.

    After Lemaire et al., "Structured pruning of neural networks with budget-aware regularization", 2019, without its
    distillation, which no other method gets.
    """
    share = work.within / work.cost(work.module())

    def force(progress: float, expected: Tensor, now: float) -> Tensor:
        return BARRIER * strength(work) * barrier(now, share, progress) * expected

    return Gated(work, force)


class Gated(Staged):
    """Learn hard-concrete gates of all units for half of the steps, then cut.

    What is above the limit at the end loses the gates nearest to closing.

    Args:
        force: the loss for progress in [0, 1], the expected cost and the cost if it were cut now, as shares.
    """

    def __init__(self, work: ModuleRun, force: Callable[[float, Tensor, float], Tensor]) -> None:
        def capacity(name: str, K: int) -> HardConcrete:
            return HardConcrete(K, work.seed, price=0.0, name=name)

        module = work.module()
        costs = cost_per_unit(work, retained(work, module))
        learner = ngn.learn_sizes(
            module, work.task.sizes(module, None), example=work.example, by_importance=None, capacity=capacity
        )
        super().__init__(work, learner, self._within, HALF)
        gates: list[Any] = [axis.capacity for axis in learner.axes]
        all_open = torch.tensor([float(gate.K) for gate in gates])

        def pressure(progress: float) -> Tensor:
            open_now = torch.stack([gate.count() for gate in gates])
            expected = torch.stack([gate.open_probabilities().sum() for gate in gates])
            shares = [1 - (costs * (all_open - left)).sum() for left in (expected, open_now)]
            return force(progress, shares[0], float(shares[1]))

        self.pressure = pressure

    def _within(self, model: nn.Module) -> nn.Module:
        assert isinstance(model, ngn.Learner)
        gates: list[Any] = [axis.capacity for axis in model.axes]
        levels = torch.cat([gate.log_alpha.detach() for gate in gates]).sort().values
        whole = [gate.log_alpha.detach().clone() for gate in gates]

        def cut(part: float) -> nn.Module:  # the part of all units that may stay
            least = levels[round((1 - part) * (len(levels) - 1))]
            for gate, level in zip(gates, whole, strict=True):
                gate.log_alpha.data.copy_(torch.where(level >= torch.minimum(least, level.max()), level, -gate.limit))
                if not int(gate.count()):  # all had closed by themselves: a layer keeps one unit
                    gate.log_alpha.data[level.argmax()] = gate.limit
            small: nn.Module = model.deploy(unsettled="allow")
            return small

        return cut(largest(lambda part: self.work.cost(cut(part)), self.work.within))


class Sheared(Gated):
    """Hard-concrete masks whose expected cost two Lagrange multipliers hold at a target; cut; train on.

    After Xia et al., "Sheared LLaMA", 2024, section 2.1, with masks of the task's sizes alone, and all data alike:

        m_1 (C - a) + m_2 (C - a)^2,  m_1 and m_2 from 0 by gradient ascent,  a from 1 to the limit
    """

    multipliers: Tensor

    def __init__(self, work: ModuleRun) -> None:
        super().__init__(work, self._force)
        self.register_buffer("multipliers", torch.zeros(2, dtype=torch.float64))
        self.share = work.within / work.cost(work.module())

    def _force(self, progress: float, expected: Tensor, now: float) -> Tensor:
        gap = expected - (1 - (1 - self.share) * min(1.0, progress / TARGET_WARMUP))
        first, second = self.multipliers.tolist()
        steps = [float(gap.detach()) ** power for power in (1, 2)]
        self.multipliers += ASCENT * strength(self.work) * torch.tensor(steps, dtype=torch.float64)
        return first * gap + second * gap.square()


sheared = Sheared


def wanda(work: ModuleRun) -> Staged:
    """Cut each size to the same fraction by Wanda's score of its units; train on.

    After Sun et al., "A simple and effective pruning approach for large language models", 2024, summed over outputs.
    """
    return at_the_cut(work, lambda module: cut_evenly(work, module, by_importance="wanda"))


def minitron(work: ModuleRun) -> Staged:
    """Cut each size to the same fraction by the mean activation of its units; train on.

    After Muralidharan et al., "Compact language models via pruning and knowledge distillation", 2024, equation 1: the
    root over batches of the summed squares of means over tokens. All methods heal alike, so there is no distillation.
    """

    @torch.no_grad()
    def cut(module: nn.Module) -> nn.Module:
        module.eval()
        seen: dict[str, list[Tensor]] = {name: [] for name in retained(work, module).names}
        with ExitStack() as hooks:
            for name, means in seen.items():
                *_, last = (part for part in module.get_submodule(name).modules() if isinstance(part, nn.Linear))
                note = functools.partial(lambda means, _, args: means.append(args[0].abs().mean(1)), means)
                hooks.enter_context(last.register_forward_pre_hook(note))
            for inputs in work.calibration():
                module(inputs)
        return cut_evenly(work, module, falling({k: torch.cat(means).square().sum(0) for k, means in seen.items()}))

    return at_the_cut(work, cut)
