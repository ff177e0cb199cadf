"""Measure what the gate costs in the 1D bank, and how fast a truncated model is.

    python benchmarks/bench_models.py [--quick]

One thread. The variants of a group take turns in one process. The result is the median over rounds of the ratio within
a round.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from bench_1d import LOSS, data, fused
from timing import in_turns, ratio, seconds
from torch import Tensor

from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from experiments.models.trainer import StudyTrainer
from experiments.runs import host
from ngn.components.base import Bank, OrderedSum
from ngn.learner import Learner
from ngn.losses import Loss, Supervised, cross_entropy
from ngn.methods.base import Capacity
from ngn.methods.fixed import FixedCount
from ngn.methods.ngn import CountGate
from ngn.train.batches import Batches, FullBatches, Split
from ngn.train.plan import TrainPlan

Run = Callable[[int], object]
Variants = dict[str, tuple[Run, int]]
"""Name → (function that makes a number of steps, models trained at once). The first one is the rival."""
Groups = Mapping[str, Callable[[], Variants]]
HELD = TrainPlan(steps=1, lr=1e-6, lr_boundary=1e-12, clip=0.003)
"""A plan under which boundaries stay where they start."""


def trained(
    learner: Learner, batches: Batches, loss: Loss, plan: TrainPlan, kind: type[StudyTrainer], times: int
) -> tuple[Run, int]:
    """A variant that trains ``times`` a number of steps by one of the suite's trainers."""

    def run(steps: int) -> None:
        kind(learner, batches, loss, replace(plan, steps=times * steps), progress="never").fit()

    return run, learner.replicas or 1


def learner_of(bank: Bank, capacity: Capacity) -> Learner:
    return Learner(ParallelModel(OrderedSum(bank, capacity)))


def blocks() -> Variants:
    """Compare training with and without the gate in the 1D bank, with all 32 blocks active."""
    batches = FullBatches(Split(torch.linspace(-3, 3, 512).unsqueeze(-1), torch.randint(2, (512,))))

    def variant(seeds: int | list[int], gate: bool) -> tuple[Run, int]:
        bank = MLPBank([1, 16, 16, 2], 32, seeds)
        capacity = CountGate(32, t0=32.0, replicas=bank.replicas) if gate else FixedCount(32, replicas=bank.replicas)
        return trained(learner_of(bank, capacity), batches, Supervised(cross_entropy), HELD, StudyTrainer, 1)

    ten = list(range(10))
    return {
        "ungated, 32 blocks": variant(0, False),
        "NGN, 32 active blocks": variant(0, True),
        "ungated, 10 stacked": variant(ten, False),
        "NGN, 10 stacked": variant(ten, True),
    }


def kernel_blocks() -> Variants:
    """Compare the same in the compiled kernel on the 1D study; return nothing if it cannot be built."""
    capacities = {"ungated, 32 blocks": FixedCount(32), "NGN, 32 active blocks": CountGate(32, t0=32.0)}
    return {
        name: trained(learner_of(MLPBank([1, 16, 16, 1], 32, 0), capacity), data(), LOSS, HELD, KernelTrainer, 100)
        for name, capacity in capacities.items()
        if fused()
    }


def deployed() -> Variants:
    """Compare forward passes of a model trained at a fixed size and of a model truncated to it."""
    x = torch.linspace(-3, 3, 512).unsqueeze(-1)
    fixed = Learner(OrderedSum(MLPBank([1, 16, 16, 1], 8, 0), FixedCount(8)))
    learned = Learner(OrderedSum(MLPBank([1, 16, 16, 1], 32, 0), CountGate(32, t0=7.0)))

    @torch.no_grad()
    def forward(model: Callable[[Tensor], Tensor], steps: int) -> None:
        for _ in range(100 * steps):
            model(x)

    return {
        "fixed model of 8 blocks": (functools.partial(forward, fixed), 1),
        "truncated to 8 of 32 blocks": (functools.partial(forward, learned.deploy()), 1),
        "the same before truncation": (functools.partial(forward, learned), 1),
    }


GROUPS: Groups = {
    "1D blocks, torch engine: what the gate costs in training": blocks,
    "1D blocks, compiled kernel: what the gate costs in 100 training steps": kernel_blocks,
    "1D blocks: 100 forward passes of 512 samples": deployed,
}


def show(what: str, groups: Groups, arguments: list[str] | None) -> None:
    """Measure on one thread, and print a table per group: milliseconds per model-step, and the speed x the first."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="one round; the numbers mean little")
    quick = parser.parse_args(arguments).quick
    torch.set_num_threads(1)
    with host.tuned_for_training():  # for all variants of a group alike
        for title, make in groups.items():
            if variants := make():
                print(f"{title}\n  {'variant':34} {'ms / model-step':>16} {'x the first':>12}")
                _show_group(variants, quick)


def _show_group(variants: Variants, quick: bool) -> None:
    def timed(run: Run, steps: int, models: int = 1) -> float:
        return seconds(lambda: run(steps), time.perf_counter) / steps / models

    # so many short steps that the setup does not count
    first = [timed(run, 1) for run, _ in variants.values()]
    steps = 1 if quick else min(100, max(1, int(0.5 / min(first))))
    each = [functools.partial(timed, run, steps, models) for run, models in variants.values()]
    found = in_turns(each, 1 if quick else 5)
    for name, one in zip(variants, found, strict=True):
        print(f"  {name:34} {statistics.median(one) * 1e3:16.2f} {ratio(found[0], one):12.2f}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    show("What the gate costs, and what truncation gains, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
