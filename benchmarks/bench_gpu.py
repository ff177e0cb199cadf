"""Time training steps on a GPU, with and without torch.compile, single and stacked, and compare with its limits.

    python benchmarks/bench_gpu.py [--quick] [--device cpu]

Each line is one training with the settings of the study. It is timed between two steps, with the device idle at both,
so that start and compilation do not count. Compiled steps compute all K components; steps launched one by one compute
the active ones. Two columns follow the time:

* busy: time of all kernels / time of the steps, from a profile of some further steps.
* of the limit: least possible time / measured time. The least time is
  max(operations / rate of a matrix product, bytes / rate of a copy); both rates are measured in this process.
  Operations are those of products and convolutions. Bytes are 10 x 4 per parameter: weights are read twice, gradients
  are written and read, and Adam reads and writes weights and two moments.

``--device cpu`` tries the script with small stacks; its numbers mean nothing. benchmarks/bench_programs.py times whole
studies, benchmarks/bench_llama.py adapters of a language model.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_kernels import TimedCase, compiled
from processes import TimedStepsDone

import ngn.methods.ngn
from experiments.config.compose import compose
from experiments.core.config import Config
from experiments.core.training import Seed
from experiments.runs.measure import peak_memory
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.learner import CapacityLearner
from ngn.train.trainer import Trainer

SWEEP_STEPS = 25_000
"""Of the 1D study."""
PROFILED = 20
"""Steps of a profile."""
Engine = Callable[[TimedCase], type[Trainer]]


@dataclass(frozen=True)
class Timed:
    """One training: its name, the stack, the trainer, and the size of a fixed model where that is what is trained."""

    name: str
    stack: Stack
    engine: Engine
    count: int | None = None


@dataclass(frozen=True)
class Limits:
    """What a device does at best: operations, and bytes moved, a second."""

    operations: float
    bytes: float


def during(
    line: Timed,
    device: torch.device,
    first: int,
    last: int,
    watch: AbstractContextManager[object] | None = None,
) -> tuple[float, int]:
    """Return the mean wall time of the steps ``first`` to ``last`` - 1, timed within ``watch``, and the parameters.

    Both count all replicas together."""
    task = make_task(line.stack.first, device)
    learner = learner_of(line.stack, task, line.count).to(device)
    assert isinstance(learner, CapacityLearner)
    train, watch = line.stack.first.train, watch or nullcontext()
    plan = plan_of(line.stack, task.samples(train))
    if plan.steps <= last:
        raise ValueError(f"{line.name}: the training has only {plan.steps} steps")
    case = TimedCase(learner, task.batches(train, line.stack.seeds), task.loss, plan, 1)
    at: dict[int, float] = {}

    def clock(step: int) -> None:
        if step in (first, last):
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            at[step] = time.perf_counter()
        if step == first:
            watch.__enter__()
        if step == last:
            watch.__exit__(None, None, None)
            raise TimedStepsDone

    try:
        trainer = line.engine(case)
        trainer(case.learner, case.batches, case.loss, plan, progress="never", on_step=clock).fit()
    except TimedStepsDone:
        pass
    return (at[last] - at[first]) / (last - first), sum(p.numel() for p in learner.parameters())


def operations(line: Timed, device: torch.device) -> int:
    """Count operations of a step: products and convolutions, forward and backward, of the components computed."""
    counter, plain = FlopCounterMode(display=False), line.engine is plainly
    every = mock.patch.object(ngn.methods.ngn, "active_components", lambda t, K, beta, delta: K)
    with nullcontext() if plain else every:
        during(Timed(line.name, line.stack, plainly, line.count), device, 1, 2, counter)
    return int(counter.get_total_flops())


def busy(line: Timed, device: torch.device, first: int) -> float | None:
    """Return the time of all kernels over the time of the steps; None without a GPU."""
    if device.type != "cuda":
        return None
    watch = profile(activities=[ProfilerActivity.CUDA])
    seconds, _ = during(line, device, first, first + PROFILED, watch)
    return sum(event.self_device_time_total for event in watch.key_averages()) * 1e-6 / (seconds * PROFILED)


def limits(device: torch.device, side: int, rounds: int = 10) -> Limits:
    """Measure the rate of a float32 matrix product, at the precision of trainings, and of a copy of that size."""
    a = torch.randn(side, side, device=device)
    b = torch.empty_like(a)

    def best(work: Callable[[], object]) -> float:
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    product, copy = best(lambda: torch.mm(a, a, out=b)), best(lambda: b.copy_(a))
    return Limits(2 * side**3 / product, 2 * a.nbytes / copy)


def plainly(case: TimedCase) -> type[Trainer]:
    """Launch operations one by one."""
    return Trainer


def by_compiler(case: TimedCase) -> type[Trainer]:
    """Compile the forward and backward pass with torch.compile; on a GPU it records CUDA graphs."""
    on_cuda = next(case.learner.parameters()).is_cuda
    return compiled(case, "reduce-overhead" if on_cuda else "default", everything=True)


def stack(config: Config, replicas: int) -> Stack:
    """The same run for several seeds."""
    return Stack.of(*(config.model_copy(update={"seed": Seed(value=seed)}) for seed in range(replicas)))


def lines(on_cuda: bool) -> dict[str, list[Timed]]:
    """Return the tables; the first line of each is the rival."""
    one_d = compose({"task": "regression1d", "gate": "mlp"}, {})
    mnist = compose({"task": "mnist", "gate": "conv"}, {})
    sizes = (1, 10, 50, 500) if on_cuda else (1, 2)
    widest, seeds = sizes[-1] // 10 or 1, 10 if on_cuda else 2
    return {
        "1D study, 32 blocks of width 16, 512 samples": [
            line
            for size in sizes
            for line in (
                Timed(f"{size} replicas, launched one by one", stack(one_d, size), plainly),
                Timed(f"{size} replicas, torch.compile", stack(one_d, size), by_compiler),
            )
        ],
        "1D study: what the gate costs": [
            Timed(f"{widest} fixed models of 32 blocks", stack(one_d, widest), by_compiler, one_d.gate.K),
            Timed(f"{widest} learned ones, all 32 computed", stack(one_d, widest), by_compiler),
        ],
        "MNIST convolution, K = 8": [
            Timed("one seed, launched one by one", stack(mnist, 1), plainly),
            Timed("one seed, torch.compile", stack(mnist, 1), by_compiler),
            Timed(f"{seeds} stacked seeds, torch.compile", stack(mnist, seeds), by_compiler),
        ],
    }


HEAD = f"{'ms / step':>10} {'run-steps/s':>12} {'x the first':>12} {'busy':>6} {'of the limit':>13} {'peak MiB':>9}"


def show(title: str, own: list[Timed], device: torch.device, first: int, last: int, best: Limits) -> None:
    """Measure and print a table."""
    print(f"{title}\n  {'variant':38} {HEAD}")
    rival = 0.0
    for line in own:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        seconds, parameters = during(line, device, first, last)
        peak, speed = peak_memory(device), len(line.stack) / seconds
        rival = rival or speed
        least = max(operations(line, device) / best.operations, 40 * parameters / best.bytes)
        at_work = busy(line, device, first)
        used = "--" if at_work is None else f"{at_work:.0%}"
        step, ratio, near = seconds * 1e3, speed / rival, least / seconds
        print(
            f"  {line.name:38} {step:10.3f} {speed:12,.0f} {ratio:12.1f} {used:>6} {near:13.1%} {peak:9.0f}", flush=True
        )
        if len(line.stack) == 500:
            print(f"  {'':38} {SWEEP_STEPS:,} steps of all: {SWEEP_STEPS * seconds:.0f} s", flush=True)


def options(doc: str | None, arguments: list[str] | None) -> tuple[bool, torch.device]:
    """Return ``quick`` and the device, and print its name; exit with status 2 if there is no GPU."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps, of small models where the full ones are large")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here; --device cpu tries the script")
    device = torch.device(given.device)
    print(torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU: these numbers mean nothing")
    return given.quick, device


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    quick, device = options(__doc__, arguments)
    on_cuda = device.type == "cuda"
    first, last = (3, 6) if quick else (50, 550)
    best = limits(device, 8192 if on_cuda else 512)
    print(f"limits: {best.operations / 1e12:.2f} TFLOP/s in a product, {best.bytes / 1e9:,.0f} GB/s in a copy")
    for title, own in lines(on_cuda).items():
        show(title, own, device, first, last, best)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
