"""Compare the training speed of two checkouts: run the same commands in turns and print ratios.

    python benchmarks/before_after.py BEFORE AFTER [--rounds 3] [--data-root DIR] [--only WORD]

Every training is a separate command; its records give the steps per second. For the launcher, the runs per second of a
whole command count. In each round a command runs in both checkouts; the order alternates. The result is the median
over rounds of the ratio within a round. Everything uses one thread. Close other programs first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """A command and the number of its runs; with ``whole`` its wall time counts instead of its training steps."""

    name: str
    words: str
    runs: int = 1
    whole: bool = False


LINES = (
    Command(
        "1D bank by the kernel, ten seeds", "task=regression1d gate=mlp seed=0..9 train.steps=3000 engine=fused", 10
    ),
    Command("1D bank by torch, ten seeds", "task=regression1d gate=mlp seed=0..9 train.steps=300 engine=torch", 10),
    Command("depth by the kernel, a boundary per layer", "task=twist gate=layers train.steps=3000 engine=fused"),
    Command("MNIST convolution by torch", "task=mnist gate=conv train.epochs=null train.steps=100 engine=torch"),
    Command("MNIST convolution, engine=auto", "task=mnist gate=conv train.epochs=null train.steps=100 engine=auto"),
    Command("CIFAR-10 convolution by torch", "task=cifar10 gate=conv train.epochs=null train.steps=30 engine=torch"),
    Command("CIFAR-10 convolution, engine=auto", "task=cifar10 gate=conv train.epochs=null train.steps=30 engine=auto"),
    Command("Cora, ten stacked seeds", "task=cora gate=gcn seed=0..9 train.epochs=null train.steps=100", 10),
    Command(
        "launcher, 200 smoke runs", "task=regression1d gate=mlp profile=smoke train.steps=1 seed=0..199", 200, True
    ),
)


def speed(checkout: Path, line: Command, data_root: str | None) -> float:
    """Return run-steps per second, or for the launcher runs per second.

    Raises:
        RuntimeError: if the command fails or writes another number of records; with its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = [*line.words.split(), "phases=[grown]", "threads=1", "progress=never", f"results={folder}/results"]
        words += [] if data_root is None else [f"data_root={data_root}"]
        words.append(f"hydra.{'sweep' if line.runs > 1 else 'run'}.dir={folder}/hydra")
        environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "run.py", *words], cwd=checkout, env=environment, capture_output=True, text=True
        )
        seconds = time.perf_counter() - began
        records = [json.loads(path.read_text()) for path in Path(folder, "results").rglob("*.json")]
        if done.returncode or len(records) != line.runs:
            raise RuntimeError(f"{checkout}: {line.words}: {len(records)} records\n{done.stdout}{done.stderr}"[-2000:])
    if line.whole:
        return line.runs / seconds
    # Every record of a stack holds the rate of the whole stack.
    return statistics.mean(float(record["phases"]["grown"]["run_steps_per_second"]) for record in records)


def main(arguments: list[str] | None = None) -> int:
    """Print one line per command; return 1 if a command is more than 3 % slower in AFTER."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data-root", help="folder with the data sets")
    parser.add_argument("--only", default="", help="the commands whose name has this word")
    options = parser.parse_args(arguments)
    print(f"{'':44} {'before':>10} {'after':>10} {'after / before':>15}")
    slower = False
    for line in LINES:
        if options.only not in line.name:
            continue
        speeds: dict[Path, list[float]] = {options.before: [], options.after: []}
        for n in range(options.rounds):
            for checkout in list(speeds)[:: 1 if n % 2 == 0 else -1]:
                speeds[checkout].append(speed(checkout.resolve(), line, options.data_root))
        before, after = speeds.values()
        ratio = statistics.median(b / a for a, b in zip(before, after, strict=True))
        slower |= ratio < 0.97
        medians = f"{statistics.median(before):10.1f} {statistics.median(after):10.1f}"
        print(f"{line.name:44} {medians} {ratio:15.2f}", flush=True)
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
