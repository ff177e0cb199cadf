"""Training steps of the convolution and graph models, what the gate costs, and how fast a truncated model is.

    python benchmarks/bench_models.py [--quick]

One thread. The variants of a group take turns in one process; the median of the rounds counts, and the ratio is taken
within a round. The first variant of a group is what one would write without this suite: a list of plain modules.
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
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_1d import data, loss

from ngn.components.base import Bank, OrderedSum
from ngn.components.conv import ConvBank
from ngn.components.gcn import GCNBank, GraphInput
from ngn.components.mlp import MLPBank
from ngn.components.parallel import ParallelModel
from ngn.engine import process
from ngn.engine.batches import Batches, FullBatches, MiniBatches, Split
from ngn.engine.fused import BranchesTrainer, FusedTrainer
from ngn.engine.fused.kernel import compiled
from ngn.engine.phases import learner_of, plan_of
from ngn.engine.trainer import Trainer, TrainPlan
from ngn.methods.fixed import FixedCount
from ngn.methods.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.schema import Config
from ngn.tasks import make_task
from ngn.tasks.images import ImageTask

Variants = dict[str, tuple[Callable[[int], None], int]]
"""Name → (what does a number of steps, how many models those train at once). The first one is the rival."""


def trained(
    bank: Bank, gated: bool, x: Any, y: Tensor, t0: float, kind: type[Trainer] = Trainer
) -> Callable[[int], None]:
    """Runs one of the suite's own trainers for a number of steps, the boundary held at ``t0``."""
    split = Split(x, y)
    batches: Batches = FullBatches(split) if kind is Trainer else MiniBatches(split, len(y), 0, lambda inputs: inputs)
    task = object.__new__(ImageTask)  # only its loss is used, which needs no data
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
            kind(learner, batches, task.loss, plan, progress="never", on_step=stop).fit()
        except Enough:
            return

    return run


def fitted(config: Config, kind: type[Trainer], at_once: int) -> Callable[[int], None]:
    """Trains the model of a configuration, from where it stands, for ``at_once`` times a number of steps."""
    task = make_task(config, torch.device("cpu"))
    learner = learner_of([config], task)

    def run(steps: int) -> None:
        train = config.train.model_copy(update={"steps": at_once * steps})
        plan = plan_of([config.model_copy(update={"train": train})], task.samples(train))
        kind(learner, task.batches(train, 0), task.loss, plan, progress="never").fit()

    return run


def plain(branches: nn.ModuleList, call: Callable[[nn.Module], Tensor], y: Tensor) -> Callable[[int], None]:
    """A list of modules, gated by hand, under torch's Adam."""
    tau = nn.Parameter(torch.tensor(5.0, dtype=torch.float64))
    w = 0.5 ** torch.arange(len(branches))
    optimizer = torch.optim.Adam([*branches.parameters(), tau], lr=1e-6)

    def run(steps: int) -> None:
        for _ in range(steps):
            t = nn.functional.softplus(tau)
            g = torch.sigmoid(4 * (t - torch.arange(len(branches)) + 0.5)) * w
            output: Any = sum(g[k].float() * call(branch) for k, branch in enumerate(branches))
            loss = nn.functional.cross_entropy(output, y) + 1e-4 * t
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def cnn(K: int, channels: tuple[int, int], image: tuple[int, int, int]) -> Variants:
    """Name → (run, models trained at once) for a convolution model, batch 128."""
    x, y = torch.randn(128, *image), torch.randint(10, (128,))
    flat = channels[1] * (image[1] // 4) * (image[2] // 4)
    branches = nn.ModuleList(
        nn.Sequential(
            nn.Conv2d(image[0], channels[0], 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels[0], channels[1], 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(flat, 10),
        )
        for _ in range(K)
    )  # fmt: skip

    def bank(seeds: int | list[int]) -> ConvBank:
        return ConvBank(image, channels, 10, K, seeds)

    found: Variants = {
        "list of modules, one seed": (plain(branches, lambda b: b(x), y), 1),
        "torch engine, one seed": (trained(bank(0), True, x, y, float(K)), 1),
        "torch engine, ungated": (trained(bank(0), False, x, y, float(K)), 1),
        "torch engine, 2 stacked seeds": (trained(bank([0, 1]), True, x, y, float(K)), 2),
    }
    if compiled("branches") is not None:
        found["compiled gradients, one seed"] = (trained(bank(0), True, x, y, float(K), BranchesTrainer), 1)
        found["compiled gradients, ungated"] = (trained(bank(0), False, x, y, float(K), BranchesTrainer), 1)
    return found


def graph() -> Variants:
    """The same for a graph of Cora's size (made here), 8 branches."""
    from torch_geometric.nn import GCNConv

    source = torch.Generator().manual_seed(0)
    nodes, features = 2708, 1433
    one_way = torch.randint(nodes, (2, 5278), generator=source)
    edges = torch.cat([one_way, one_way.flip(0)], 1)
    x = (torch.rand(nodes, features, generator=source) < 0.0127).float()
    targets, y = torch.arange(140), torch.randint(7, (140,), generator=source)

    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(features, 16), GCNConv(16, 7)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.second(torch.relu(self.first(x, edges)), edges)[targets]
            return out

    branches = nn.ModuleList(Branch() for _ in range(8))
    given = GraphInput.of(x, edges, targets)

    def bank(seeds: int | list[int]) -> GCNBank:
        return GCNBank(features, 16, 7, 8, seeds)

    return {
        "list of GCNConv, one seed": (plain(branches, lambda b: b(x), y), 1),
        "this suite, one seed": (trained(bank(0), True, given, y, 8.0), 1),
        "this suite, ungated": (trained(bank(0), False, given, y, 8.0), 1),
        "this suite, 10 stacked seeds": (trained(bank(list(range(10))), True, given, y, 8.0), 10),
    }


def blocks() -> Variants:
    """What the gate costs in the 1D bank: all 32 blocks active with and without it."""
    x = torch.linspace(-3, 3, 512).unsqueeze(-1)
    y = torch.randint(2, (512,))

    def bank(seeds: int | list[int]) -> MLPBank:
        return MLPBank([1, 16, 16, 2], 32, seeds)

    return {
        "ungated, 32 blocks": (trained(bank(0), False, x, y, 32.0), 1),
        "NGN, 32 active blocks": (trained(bank(0), True, x, y, 32.0), 1),
    }


def kernel_blocks() -> Variants:
    """The same in the compiled kernel, on the data and the loss of the 1D study; nothing where it cannot be built."""
    if compiled() is None:
        return {}

    def steps_of(gated: bool) -> Callable[[int], None]:
        capacity = CountGate(32, t0=32.0) if gated else FixedCount(32)
        learner = CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, 16, 16, 1], 32, 0), capacity)))

        def run(steps: int) -> None:
            plan = TrainPlan(steps=100 * steps, lr=1e-6, lr_boundary=1e-12, clip=0.003)
            FusedTrainer(learner, data(), loss(), plan, progress="never").fit()

        return run

    return {"ungated, 32 blocks": (steps_of(False), 1), "NGN, 32 active blocks": (steps_of(True), 1)}


def deployed() -> Variants:
    """Forward passes: a model trained at the fixed size, and the truncated one of that size."""
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
        "fixed model of 8 blocks": (forward(fixed.soft_forward), 1),
        "truncated to 8 of 32 blocks": (forward(learned.deploy()), 1),
        "the same before truncation": (forward(learned.soft_forward), 1),
    }


GROUPS: dict[str, Callable[[], Variants]] = {
    "MNIST convolution, K = 8, channels 8-16, batch 128: training": lambda: cnn(8, (8, 16), (1, 28, 28)),
    "CIFAR-10 convolution, K = 16, channels 16-16, batch 128: training": lambda: cnn(16, (16, 16), (3, 32, 32)),
    "a graph of Cora's size, K = 8: training": graph,
    "1D blocks, torch engine: what the gate costs in training": blocks,
    "1D blocks, compiled kernel: what the gate costs in 100 training steps": kernel_blocks,
    "1D blocks: 100 forward passes of 512 samples": deployed,
}


def bench(groups: dict[str, Callable[[], Variants]], quick: bool) -> list[tuple[str, str, float, float]]:
    """(group, variant, milliseconds a model-step, times as fast as the first variant)."""
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
            # enough of the short steps that setting up a training does not count
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
    """Measure on one thread, and print a table a group."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="one round; the numbers mean little")
    torch.set_num_threads(1)
    before = ""
    with process.prepared():  # for all variants of a group alike
        for title, name, milliseconds, ratio in bench(groups, parser.parse_args(arguments).quick):
            if title != before:
                print(f"{title}\n  {'variant':34} {'ms a model-step':>16} {'x the first':>12}")
                before = title
            print(f"  {name:34} {milliseconds:16.2f} {ratio:12.2f}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    show("Training steps of the vision and graph models, as ratios.", GROUPS, arguments)


if __name__ == "__main__":
    main()
