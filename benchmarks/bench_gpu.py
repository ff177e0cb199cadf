"""Training on a GPU: the stacked 1D bank, whole steps recorded or not, what the gate costs, stacked convolutions.

    python benchmarks/bench_gpu.py [--quick] [--device cpu]

Each line is one training of the study's own settings, timed between two of its steps with the device idle at both, so
that start and recording do not count. ``--device cpu`` tries the script with small stacks; its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed

from experiments.config.compose import compose
from experiments.config.schema import Config, Seed
from experiments.runs.measure import peak_memory
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.train.cuda_graph import CudaGraphTrainer
from ngn.train.trainer import Trainer

SWEEP_STEPS = 25_000
"""Of the 1D study."""


@dataclass(frozen=True)
class Line:
    """One training: its name, the stack, the trainer, and the size of a fixed model where that is what is trained."""

    name: str
    stack: Stack
    trainer: type[Trainer]
    count: int | None = None


class _Enough(Exception):
    pass


def seconds_a_step(line: Line, device: torch.device, first: int, last: int) -> float:
    """Mean wall time of the steps ``first`` to ``last`` - 1, in all replicas together."""
    task = make_task(line.stack.first, device)
    learner = learner_of(line.stack, task, line.count).to(device)
    train = line.stack.first.train
    at: dict[int, float] = {}

    def clock(step: int) -> None:
        if step in (first, last):
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            at[step] = time.perf_counter()
        if step == last:
            raise _Enough

    batches = task.batches(train, line.stack.seeds)
    plan = plan_of(line.stack, task.samples(train))
    try:
        line.trainer(learner, batches, task.loss, plan, progress="never", on_step=clock).fit()
    except _Enough:
        return (at[last] - at[first]) / (last - first)
    raise ValueError(f"{line.name}: the training has only {plan.steps} steps")


def stack(config: Config, replicas: int) -> Stack:
    """The same run for several seeds."""
    return Stack(tuple(config.model_copy(update={"seed": Seed(value=seed)}) for seed in range(replicas)))


def lines(device: torch.device) -> dict[str, list[Line]]:
    """The tables; the first line of each is the rival."""
    on_cuda = device.type == "cuda"
    whole = CudaGraphTrainer if on_cuda else Trainer
    one_d = compose({"task": "regression1d", "gate": "mlp"}, {})
    mnist = compose({"task": "mnist", "gate": "conv"}, {})
    sizes = (1, 10, 50, 500) if on_cuda else (1, 2)
    widest = sizes[-1] // 10 or 1
    return {
        "1D study, 32 blocks of width 16, 512 samples": [
            line
            for size in sizes
            for line in (
                Line(f"{size} replicas, launched one by one", stack(one_d, size), Trainer),
                Line(f"{size} replicas, recorded", stack(one_d, size), whole),
            )
        ],
        "1D study: what the gate costs": [
            Line(f"{widest} fixed models of 32 blocks", stack(one_d, widest), whole, one_d.gate.K),
            Line(f"{widest} learned ones, all 32 computed", stack(one_d, widest), whole),
        ],
        "MNIST convolution, K = 8": [
            Line("one seed", stack(mnist, 1), whole),
            Line("10 stacked seeds" if on_cuda else "2 stacked seeds", stack(mnist, 10 if on_cuda else 2), whole),
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a few steps per line")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        print("torch finds no CUDA device here; --device cpu tries the script", file=sys.stderr)
        return 2
    device = torch.device(given.device)
    first, last = (3, 6) if given.quick else (50, 550)
    print(torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU: these numbers mean nothing")
    for title, own in lines(device).items():
        print(f"{title}\n  {'variant':38} {'ms / step':>10} {'run-steps/s':>12} {'x the first':>12} {'peak MiB':>9}")
        rival = 0.0
        for line in own:
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            seconds = seconds_a_step(line, device, first, last)
            speed = len(line.stack) / seconds
            rival = rival or speed
            numbers = f"{seconds * 1e3:10.2f} {speed:12,.0f} {speed / rival:12.1f} {peak_memory(device):9.0f}"
            print(f"  {line.name:38} {numbers}", flush=True)
            if len(line.stack) == 500:
                print(f"  {'':38} {SWEEP_STEPS:,} steps of all: {SWEEP_STEPS * seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
