"""Measure how fast the 1D study trains (32 blocks of width 16, 512 samples), as ratios to a plain training loop.

    python benchmarks/bench_1d.py [--quick] [--rounds N]

Every variant runs in separate processes, which gives each its own peak memory. The variants take turns; the median over
rounds counts. Variants that depend on the active window continue the same training: ten seeds of the baseline after
5,000 of 25,000 steps, or the first of them. At most the next 1,000 steps are timed. Run-steps per second are summed
over the processes of a variant.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timing import OnStep, ends_of_steps, measure, options, ratio
from torch import nn

from experiments.core import checkpoint
from experiments.models.kernels.libraries import library
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from experiments.models.trainer import StudyTrainer
from experiments.runs import host
from experiments.tasks.generated import Regression1D
from experiments.tasks.generated.task import inputs, target
from ngn.components.base import OrderedSum
from ngn.gate import gates, ordering_weights, snapping
from ngn.learner import Learner
from ngn.losses import Supervised, mean_squared_error
from ngn.methods.base import active_components
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE, shape_at
from ngn.train.batches import FullBatches, Split
from ngn.train.plan import TrainPlan

K, H, SAMPLES, STACK = 32, 16, 512, 10
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


@dataclass(frozen=True)
class Variant1D:
    """A timed variant: ``kind`` is "loop" (plain modules), "torch" or "fused"; one or ten ``replicas`` per process."""

    letter: str
    name: str
    kind: str
    replicas: int
    processes: int


VARIANTS = (
    Variant1D("a", "loop over 32 modules, one process per seed", "loop", 1, 2),
    Variant1D("b", "batched blocks, one seed", "torch", 1, 2),
    Variant1D("c", "10 stacked replicas", "torch", STACK, 2),
    Variant1D("d", "compiled kernel, 10 replicas", "fused", STACK, 1),
    Variant1D("d", "compiled kernel, 10 replicas", "fused", STACK, 2),
)


def data() -> FullBatches:
    """Return the points of the task."""
    x = inputs(Regression1D(name="regression1d", points=SAMPLES))
    return FullBatches(Split(x.float(), target(x).float()))


def fused() -> bool:
    """Return whether the kernel can be built here."""
    return library("bank1d") is not None


def fit(compiled: bool, seeds: int | list[int], course: TimedSteps, chunk: int, **settings: Any) -> None:
    """Train the model of the baseline setting, by the kernel ``chunk`` steps at a time."""
    bank = MLPBank([1, H, H, 1], K, seeds)
    learner = Learner(ParallelModel(OrderedSum(bank, CountGate(K, replicas=bank.replicas))))
    plan = TrainPlan(steps=course.steps, lr_shape=COSINE, clip=0.003)
    settings |= {"progress": "never"} | ({"chunk": chunk} if compiled else {})
    (KernelTrainer if compiled else StudyTrainer)(learner, data(), LOSS, plan, **settings).fit()


def prepare(folder: Path, course: TimedSteps) -> None:
    """Train one seed, and ten in a stack, up to ``course.start``; leave their checkpoints in folders below."""
    for seeds in (0, [*range(STACK)]):
        kept: dict[str, Any] = {"folder": folder / str(STACK if seeds else 1), "checkpoint_seconds": 0.0}
        train = partial(fit, fused(), seeds, course, math.gcd(100, course.start), **kept)
        ends_of_steps(train, lambda step, _: step > course.start)


def active_at(folder: Path) -> float:
    """Return the number of blocks with an open gate at a checkpoint, averaged over the replicas."""
    found = checkpoint.latest(folder)
    assert found is not None
    step, tensors, meta = found
    gate = CountGate(K)
    gate.set_progress(step / int(meta["steps"]))
    t = nn.functional.softplus(tensors["model.group.capacity.tau"].reshape(-1))
    return statistics.mean(active_components(one, K, gate.beta, gate.delta) for one in t)


def timed(train: Callable[[OnStep], None], course: TimedSteps) -> float:
    """Return steps per second of a training, which calls its argument after each step."""
    ends = ends_of_steps(train, lambda step, s: s > 0 and (step >= course.stop or s >= course.seconds))
    (first, began), (last, now) = ends[0], ends[-1]
    return (last - first) / (now - began)


def loop(course: TimedSteps, on_step: OnStep) -> None:
    """Train (a): the same model as a plain list of modules. It always computes all blocks."""
    torch.manual_seed(0)
    x, wanted = data().at(0)
    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(1, H), nn.Tanh(), nn.Linear(H, H), nn.Tanh(), nn.Linear(H, 1)) for _ in range(K)
    )
    tau = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    w = ordering_weights(0.5, K)
    body = list(blocks.parameters())
    optimizer = torch.optim.Adam([{"params": body, "lr": 1e-3}, {"params": [tau], "lr": 5e-2}])
    schedule = CountGate(K)
    for step in range(course.start, course.steps):
        progress = step / course.steps
        schedule.set_progress(progress)
        optimizer.param_groups[0]["lr"] = 1e-3 * shape_at(COSINE, progress)
        t = nn.functional.softplus(tau)
        c = (w * gates(t, K, schedule.beta, 0.5)).float()
        y = torch.zeros_like(wanted)
        for k, block in enumerate(blocks):
            y = y + c[k] * block(x)
        price, alpha = schedule.lambda0 * schedule.scheduled(0), schedule.alpha_max * schedule.scheduled(1)
        objective = (y - wanted).square().mean() + price * t + alpha * snapping(t)
        optimizer.zero_grad()
        objective.backward()
        nn.utils.clip_grad_norm_([*body, tau], 0.003)
        optimizer.step()
        on_step(step + 1)


def measured(request: dict[str, Any], ready: Callable[[], None]) -> dict[str, float]:
    """Measure in one process: a request of :func:`rate_of`."""
    course, kind, replicas = TimedSteps(**request["course"]), request["kind"], request["replicas"]
    with tempfile.TemporaryDirectory() as scratch:
        folder, active = Path(scratch), float(K)
        if kind != "loop":
            shutil.copytree(Path(request["prepared"]) / str(replicas), folder, dirs_exist_ok=True)
            active = active_at(folder)

        def continued(on_step: OnStep) -> None:
            """Train (b) to (d): the suite's trainers, which continue from the checkpoint."""
            seeds = [*range(STACK)] if replicas > 1 else 0
            chunk = min(100, (course.stop - course.start) // 4)
            with host.tuned_for_training():  # as in every training that writes a record
                fit(kind == "fused", seeds, course, chunk, folder=folder, checkpoint_seconds=1e9, on_step=on_step)

        ready()
        found = timed((lambda on_step: loop(course, on_step)) if kind == "loop" else continued, course)
        return {"rate": found * replicas, "active": active}


def rate_of(variant: Variant1D, checkpoint: Path, course: TimedSteps) -> dict[str, float]:
    """Return the rate of all processes, the largest peak memory, and the mean number of active blocks."""
    request = {"kind": variant.kind, "replicas": variant.replicas, "prepared": str(checkpoint)}
    return measure(__file__, request | {"course": dataclasses.asdict(course)}, variant.processes, threads=1)


def bench(course: TimedSteps, rounds: int) -> dict[Variant1D, list[dict[str, float]]]:
    """Return what was measured of each variant in each round. Without a compiler there are no rows (d)."""
    found: dict[Variant1D, list[dict[str, float]]] = {v: [] for v in VARIANTS if v.kind != "fused" or fused()}
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch), course)
        for _ in range(rounds):
            for v, each in found.items():
                each.append(rate_of(v, Path(scratch), course))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table: medians of the rate and of the ratio to (a) within a round, and the largest memory."""
    given = options("Speed of the 1D study, as ratios to a plain loop.", arguments, measured)
    if given is None:
        return
    course = QUICK if given.quick else FULL
    found = bench(course, given.rounds)
    print(
        f"1D study, {K} blocks of width {H}, {SAMPLES} samples: from step {course.start:,} of {course.steps:,} on\n"
        f"{'':2} {'variant':42} {'proc x thr':>10} {'run-steps/s':>12} {'x (a)':>7} {'active':>6} {'peak MiB':>8} "
        f"{'imports':>8}"
    )
    base = [m["rate"] for m in found[VARIANTS[0]]]
    for v, each in found.items():
        rates = [m["rate"] for m in each]
        peak, imported = (max(m[key] for m in each) for key in ("peak_mib", "imported_mib"))
        print(
            f"{v.letter:2} {v.name:42} {f'{v.processes} x 1':>10} {statistics.median(rates):12,.0f} "
            f"{ratio(rates, base):7.1f} {each[0]['active']:6.1f} {peak:8.0f} {imported:8.0f}"
        )


if __name__ == "__main__":
    main()
