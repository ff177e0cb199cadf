"""Measure what the gate costs in the 1D bank, and how fast a truncated model is.

    python benchmarks/bench_models.py [--quick]

One thread. The variants of a group take turns in one process. The result is the median over rounds of the ratio within
a round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_1d import LOSS, data, fused

from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from experiments.models.trainer import Trainer
from experiments.runs import host
from ngn.components.base import Bank, OrderedSum
from ngn.learner import CapacityLearner
from ngn.methods.fixed import FixedCount
from ngn.methods.ngn import CountGate
from ngn.train.batches import FullBatches, Split
from ngn.train.losses import Supervised, cross_entropy
from ngn.train.plan import TrainPlan

Variants = dict[str, tuple[Callable[[int], None], int]]
"""Name → (function that makes a number of steps, models trained at once). The first one is the rival."""


def trained(bank: Bank, gated: bool, x: Any, y: Tensor, t0: float) -> Callable[[int], None]:
    """Return a function that runs one of the suite's trainers, with the boundary fixed at ``t0``."""
    batches = FullBatches(Split(x, y))
    capacity = CountGate(bank.K, t0=t0, replicas=bank.replicas) if gated else FixedCount(bank.K, replicas=bank.replicas)
    learner = CapacityLearner(ParallelModel(OrderedSum(bank, capacity)))
    plan = TrainPlan(steps=10**9, lr=1e-6, lr_boundary=1e-12)

    class Enough(Exception):
        pass

    def run(steps: int) -> None:
        def stop(step: int) -> None:
            if step == steps:
                raise Enough

        try:
            Trainer(learner, batches, Supervised(cross_entropy), plan, progress="never", on_step=stop).fit()
        except Enough:
            return

    return run


def blocks() -> Variants:
    """Compare training with and without the gate in the 1D bank, with all 32 blocks active."""
    x = torch.linspace(-3, 3, 512).unsqueeze(-1)
    y = torch.randint(2, (512,))

    def bank(seeds: int | list[int]) -> MLPBank:
        return MLPBank([1, 16, 16, 2], 32, seeds)

    ten = list(range(10))
    return {
        "ungated, 32 blocks": (trained(bank(0), False, x, y, 32.0), 1),
        "NGN, 32 active blocks": (trained(bank(0), True, x, y, 32.0), 1),
        "ungated, 10 stacked": (trained(bank(ten), False, x, y, 32.0), 10),
        "NGN, 10 stacked": (trained(bank(ten), True, x, y, 32.0), 10),
    }


def kernel_blocks() -> Variants:
    """Compare the same in the compiled kernel on the 1D study; return nothing if it cannot be built."""
    if not fused():
        return {}

    def bank() -> MLPBank:
        return MLPBank([1, 16, 16, 1], 32, 0)

    return {
        "ungated, 32 blocks": (kernel_steps(bank(), FixedCount(32)), 1),
        "NGN, 32 active blocks": (kernel_steps(bank(), CountGate(32, t0=32.0)), 1),
    }


def kernel_steps(bank: MLPBank, capacity: CountGate | FixedCount) -> Callable[[int], None]:
    """Train 100 steps at a time in the compiled kernel, on the data and the loss of the 1D study."""
    learner = CapacityLearner(ParallelModel(OrderedSum(bank, capacity)))

    def run(steps: int) -> None:
        plan = TrainPlan(steps=100 * steps, lr=1e-6, lr_boundary=1e-12, clip=0.003)
        KernelTrainer(learner, data(), LOSS, plan, progress="never").fit()

    return run


def deployed() -> Variants:
    """Compare forward passes of a model trained at a fixed size and of a model truncated to it."""
    x = torch.linspace(-3, 3, 512).unsqueeze(-1)
    fixed = CapacityLearner(OrderedSum(MLPBank([1, 16, 16, 1], 8, 0), FixedCount(8)))
    learned = CapacityLearner(OrderedSum(MLPBank([1, 16, 16, 1], 32, 0), CountGate(32, t0=7.0)))

    def forward(model: Callable[[Tensor], Tensor]) -> Callable[[int], None]:
        def run(steps: int) -> None:
            with torch.no_grad():
                for _ in range(100 * steps):
                    model(x)

        return run

    return {
        "fixed model of 8 blocks": (forward(fixed), 1),
        "truncated to 8 of 32 blocks": (forward(learned.deploy()), 1),
        "the same before truncation": (forward(learned), 1),
    }


GROUPS: dict[str, Callable[[], Variants]] = {
    "1D blocks, torch engine: what the gate costs in training": blocks,
    "1D blocks, compiled kernel: what the gate costs in 100 training steps": kernel_blocks,
    "1D blocks: 100 forward passes of 512 samples": deployed,
}


def bench(groups: dict[str, Callable[[], Variants]], quick: bool) -> list[tuple[str, str, float, float]]:
    """Return (group, variant, milliseconds per model-step, speed relative to the first variant)."""
    rounds = 1 if quick else 5
    rows = []
    for title, make in groups.items():
        variants = make()
        if not variants:
            continue
        each: dict[str, list[float]] = {name: [] for name in variants}
        steps = 1
        for run, _ in variants.values():
            began = time.perf_counter()
            run(1)
            # so many short steps that the setup does not count
            steps = 1 if quick else max(steps, min(100, int(0.5 / (time.perf_counter() - began))))
        for _ in range(rounds):
            for name, (run, models) in variants.items():
                began = time.perf_counter()
                run(steps)
                each[name].append((time.perf_counter() - began) / steps / models)
        first = each[next(iter(variants))]
        for name, seconds in each.items():
            ratio = statistics.median(a / b for a, b in zip(first, seconds, strict=True))
            rows.append((title, name, statistics.median(seconds) * 1e3, ratio))
    return rows


def show(what: str, groups: dict[str, Callable[[], Variants]], arguments: list[str] | None) -> None:
    """Measure on one thread, and print one table per group."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="one round; the numbers mean little")
    torch.set_num_threads(1)
    before = ""
    with host.tuned_for_training():  # for all variants of a group alike
        for title, name, milliseconds, ratio in bench(groups, parser.parse_args(arguments).quick):
            if title != before:
                print(f"{title}\n  {'variant':34} {'ms / model-step':>16} {'x the first':>12}")
                before = title
            print(f"  {name:34} {milliseconds:16.2f} {ratio:12.2f}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    show("What the gate costs, and what truncation gains, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
