"""Measure how fast the 1D study trains (32 blocks of width 16, 512 samples), as ratios to a plain training loop.

    python benchmarks/bench_1d.py [--quick] [--rounds N]

Every variant runs in separate processes, which gives each its own peak memory. The variants take turns; the median over
rounds counts. Variants that depend on the active window continue the same training: ten seeds of the baseline after
5,000 of 25,000 steps. At most the next 1,000 steps are timed. Run-steps per second are summed over the processes of a
variant.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from processes import Rate, TimedStepsDone, measure, options

from experiments.core import checkpoint
from experiments.models.kernels.libraries import library
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from experiments.models.trainer import Trainer
from experiments.runs import host
from experiments.tasks.regression1d import Regression1D
from experiments.tasks.regression1d.task import inputs, target
from ngn.components.base import OrderedSum
from ngn.gate import active_components, gates, ordering_weights, snapping
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE, shape_at
from ngn.train.batches import FullBatches, Split
from ngn.train.losses import Supervised, mean_squared_error
from ngn.train.plan import TrainPlan

K, H, SAMPLES = 32, 16, 512
LOSS = Supervised(mean_squared_error)


@dataclass(frozen=True)
class TimedSteps:
    """The timed steps: ``start`` to ``stop`` of ``steps``, for at most ``seconds``."""

    steps: int
    start: int
    stop: int
    seconds: float


FULL = TimedSteps(steps=25_000, start=5_000, stop=6_000, seconds=2.0)
QUICK = TimedSteps(steps=25_000, start=200, stop=400, seconds=0.2)


def data() -> FullBatches:
    """Return the points of the task."""
    x = inputs(Regression1D(name="regression1d", points=SAMPLES))
    return FullBatches(Split(x.float(), target(x).float()))


def learner_of(seeds: int | list[int]) -> CapacityLearner:
    """Return the model of the baseline setting."""
    bank = MLPBank([1, H, H, 1], K, seeds)
    return CapacityLearner(ParallelModel(OrderedSum(bank, CountGate(K, replicas=bank.replicas))))


def plan_of(course: TimedSteps) -> TrainPlan:
    return TrainPlan(steps=course.steps, lr_shape=COSINE, clip=0.003)


def fused() -> bool:
    """Return whether the kernel can be built here."""
    return library("bank1d") is not None


PREPARED = 10
"""Number of seeds trained in preparation; larger stacks repeat them."""


@dataclass(frozen=True)
class Variant1D:
    """A timed variant: ``kind`` is "loop" (plain modules), "torch" or "fused"; ``replicas`` per process."""

    letter: str
    name: str
    kind: str
    replicas: int
    processes: int
    threads: int


VARIANTS = (
    Variant1D("a", "loop over 32 modules, one process per seed", "loop", 1, 2, 1),
    Variant1D("b", "batched blocks, one seed", "torch", 1, 2, 1),
    Variant1D("c", "10 stacked replicas", "torch", 10, 2, 1),
    Variant1D("d", "compiled kernel, 10 replicas", "fused", 10, 1, 1),
    Variant1D("d", "compiled kernel, 10 replicas", "fused", 10, 2, 1),
)


def prepare(folder: Path, course: TimedSteps) -> None:
    """Train :data:`PREPARED` seeds up to ``course.start`` and leave the checkpoint in ``folder``."""

    def halt(step: int) -> None:
        if step > course.start:
            raise TimedStepsDone

    learner, batches, plan = learner_of(list(range(PREPARED))), data(), plan_of(course)
    settings: dict[str, Any] = {"folder": folder, "checkpoint_seconds": 0.0, "progress": "never", "on_step": halt}
    kind = KernelTrainer if fused() else Trainer
    if kind is KernelTrainer:
        settings["chunk"] = math.gcd(100, course.start)
    try:
        kind(learner, batches, LOSS, plan, **settings).fit()
    except TimedStepsDone:
        return
    raise RuntimeError("the training ended before the timed steps began")


def place(source: Path, folder: Path, replicas: int) -> float:
    """Turn the prepared checkpoint into one for a stack of ``replicas`` (1: a single model).

    Returns:
        The number of blocks with an open gate, averaged over the replicas.
    """
    found = checkpoint.latest(source)
    assert found is not None
    step, tensors, meta = found
    pick = torch.arange(replicas) % PREPARED if replicas > 1 else 0
    kept = {}
    for name, value in tensors.items():
        if name.startswith("curve."):
            continue
        # These tensors and single numbers, such as the progress, have no replica axis.
        shared = value.ndim == 0 or name.startswith(("allocated", "random"))
        kept[name] = value if shared else value[pick]
    kept["diverged_at"] = torch.full((replicas,), -1, dtype=torch.int64)
    checkpoint.save(folder, step, kept, meta)
    gate = CountGate(K)
    gate.set_progress(step / int(meta["steps"]))
    t = nn.functional.softplus(tensors["model.group.capacity.tau"].reshape(-1))
    return statistics.mean(active_components(one, K, gate.beta, gate.delta) for one in t)


def timed(step: Callable[[], int], course: TimedSteps, replicas: int) -> float:
    """Return run-steps per second of ``step``, which returns the number of finished steps."""
    first = step()
    began = time.perf_counter()
    while True:
        done = step()
        elapsed = time.perf_counter() - began
        if elapsed >= course.seconds or done >= course.stop:
            return (done - first) * replicas / elapsed


def loop_rate(course: TimedSteps, seed: int = 0) -> float:
    """Time (a): the same model as a plain list of modules. It always computes all blocks."""
    torch.manual_seed(seed)
    x, wanted = data().at(0)
    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(1, H), nn.Tanh(), nn.Linear(H, H), nn.Tanh(), nn.Linear(H, 1)) for _ in range(K)
    )
    tau = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    w = ordering_weights(0.5, K)
    body = list(blocks.parameters())
    optimizer = torch.optim.Adam([{"params": body, "lr": 1e-3}, {"params": [tau], "lr": 5e-2}])
    schedule, finished = CountGate(K), course.start

    def step() -> int:
        nonlocal finished
        progress = finished / course.steps
        schedule.set_progress(progress)
        optimizer.param_groups[0]["lr"] = 1e-3 * shape_at(COSINE, progress)
        t = nn.functional.softplus(tau)
        c = (w * gates(t, K, schedule.beta, 0.5)).float()
        y = torch.zeros_like(wanted)
        for k, block in enumerate(blocks):
            y = y + c[k] * block(x)
        objective = (y - wanted).square().mean() + schedule.price * t + schedule.alpha * snapping(t)
        optimizer.zero_grad()
        objective.backward()
        nn.utils.clip_grad_norm_([*body, tau], 0.003)
        optimizer.step()
        finished += 1
        return finished

    return timed(step, course, 1)


def trainer_rate(kind: type[Trainer], replicas: int, folder: Path, course: TimedSteps) -> float:
    """Time (b) to (d): the suite's trainers, which continue from the checkpoint in ``folder``."""
    ticks: list[tuple[int, float]] = []

    def tick(step: int) -> None:
        ticks.append((step, time.perf_counter()))
        last, now = ticks[-1]
        if len(ticks) > 1 and (last >= course.stop or now - ticks[0][1] >= course.seconds):
            raise TimedStepsDone

    learner = learner_of([r % PREPARED for r in range(replicas)] if replicas > 1 else 0)
    settings: dict[str, Any] = {"folder": folder, "checkpoint_seconds": 1e9, "progress": "never", "on_step": tick}
    if kind is KernelTrainer:
        settings["chunk"] = min(100, (course.stop - course.start) // 4)
    try:
        kind(learner, data(), LOSS, plan_of(course), **settings).fit()
    except TimedStepsDone:
        (first, began), (last, now) = ticks[0], ticks[-1]
        return (last - first) * replicas / (now - began)
    raise RuntimeError("the training ended within the timed steps")


@contextlib.contextmanager
def prepared(request: dict[str, Any]) -> Iterator[Rate]:
    """Measure in one process: a request of :func:`rate_of`."""
    course, kind = TimedSteps(**request["course"]), request["kind"]
    with tempfile.TemporaryDirectory() as scratch:
        active = float(K)
        if kind in ("torch", "fused"):
            active = place(Path(request["prepared"]), Path(scratch), request["replicas"])

        def rate() -> dict[str, float]:
            if kind == "loop":
                found = loop_rate(course)
            else:
                with host.tuned_for_training():  # as in every training that writes a record
                    trainer = Trainer if kind == "torch" else KernelTrainer
                    found = trainer_rate(trainer, request["replicas"], Path(scratch), course)
            return {"rate": found, "active": active}

        yield rate


def rate_of(
    kind: str, replicas: int, processes: int, threads: int, checkpoint: Path, course: TimedSteps
) -> dict[str, float]:
    """Return the rate of all processes, the largest peak memory, and the mean number of active blocks."""
    request = {"kind": kind, "replicas": replicas, "prepared": str(checkpoint), "course": course.__dict__}
    return measure(__file__, request, processes, threads)


def bench(quick: bool, rounds: int) -> list[dict[str, Any]]:
    """Return one row per variant: medians of the rate and of the ratio to (a) within a round, and memory.

    Without a compiler there are no rows (d).
    """
    course = QUICK if quick else FULL
    wanted = [v for v in VARIANTS if v.kind != "fused" or fused()]
    found: dict[Variant1D, list[dict[str, float]]] = {v: [] for v in wanted}
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch), course)
        for _ in range(rounds):
            for v in wanted:
                found[v].append(rate_of(v.kind, v.replicas, v.processes, v.threads, Path(scratch), course))
    base = [m["rate"] for m in found[wanted[0]]]
    return [
        {
            "letter": v.letter, "name": v.name, "processes": v.processes, "threads": v.threads,
            "rate": statistics.median(m["rate"] for m in each),
            "ratio": statistics.median(m["rate"] / b for m, b in zip(each, base, strict=True)),
            "active": each[0]["active"],
            "peak_mib": max(m["peak_mib"] for m in each), "imported_mib": max(m["imported_mib"] for m in each),
        }
        for v, each in found.items()
    ]  # fmt: skip


def table(rows: Sequence[dict[str, Any]], course: TimedSteps) -> str:
    """Format the rows as text."""
    lines = [
        f"1D study, {K} blocks of width {H}, {SAMPLES} samples: from step {course.start:,} of {course.steps:,} on",
        f"{'':2} {'variant':42} {'proc x thr':>10} {'run-steps/s':>12} {'x (a)':>7} {'active':>6} "
        f"{'peak MiB':>8} {'imports':>8}",
    ]
    for row in rows:
        where = f"{row['processes']} x {row['threads']}"
        lines.append(
            f"{row['letter']:2} {row['name']:42} {where:>10} {row['rate']:12,.0f} {row['ratio']:7.1f} "
            f"{row['active']:6.1f} {row['peak_mib']:8.0f} {row['imported_mib']:8.0f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    given = options("Speed of the 1D study, as ratios to a plain loop.", arguments, prepared)
    if given is not None:
        print(table(bench(given.quick, given.rounds), QUICK if given.quick else FULL))


if __name__ == "__main__":
    main()
