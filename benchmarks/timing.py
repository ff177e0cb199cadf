"""Time alternatives: in turns, or in processes of their own that start together and have their own peak memory.

For a process, the parent calls :func:`measure`, which starts the benchmark's script with ``--child REQUEST``; the child
calls :func:`serve`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed

from experiments.runs.host import peak_mib

Measure = Callable[[dict[str, Any], Callable[[], None]], dict[str, float]]
"""Prepares a request, calls its second argument, measures, and returns numbers; "rate" is summed over processes."""


OnStep = Callable[[int], None]


class _Enough(Exception):
    """Stops a training after the timed steps."""


def ends_of_steps(
    train: Callable[..., object], enough: Callable[[int, float], bool], wait: Callable[[], object] = lambda: None
) -> list[tuple[int, float]]:
    """Train until the steps are enough; return the number of each step and the time of its end, s.

    Args:
        train: calls its argument ``on_step`` with the number of each step after it.
        enough: whether this was the last step: its number, and the seconds since the end of the first.
        wait: called before each look at the clock.

    Raises:
        RuntimeError: if the training ends before.
    """
    ends: list[tuple[int, float]] = []

    def end(step: int) -> None:
        wait()
        ends.append((step, time.perf_counter()))
        if enough(step, ends[-1][1] - ends[0][1]):
            raise _Enough

    try:
        train(on_step=end)
    except _Enough:
        return ends
    raise RuntimeError("the training ended within the timed steps")


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Call it, and return the seconds that it took."""
    began = clock()
    call()
    return clock() - began


def in_turns(each: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Call each in turns, every round from another one on, and return what each returned."""
    found: list[list[float]] = [[] for _ in each]
    for n in range(rounds):
        for at in range(len(each)):
            found[(at + n) % len(each)].append(each[(at + n) % len(each)]())
    return found


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """The median of ratios within a round."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def serve(request: str, measured: Measure) -> None:
    """Prepare the requested measurement, wait for a line on the input, measure, and print the result as JSON."""
    asked = json.loads(request)
    torch.set_num_threads(asked["threads"])
    imported = peak_mib()

    def ready() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    found = measured(asked, ready)
    print(json.dumps(found | {"peak_mib": peak_mib(), "imported_mib": imported}))


def options(what: str, arguments: Sequence[str] | None, measured: Measure) -> argparse.Namespace | None:
    """Parse ``quick`` and ``rounds`` from the command line; in a child, answer the request and return None."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the numbers mean little")
    parser.add_argument("--rounds", type=int, help="how often the variants take turns (default 3; quick: 1)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        serve(given.child, measured)
        return None
    given.rounds = given.rounds or (1 if given.quick else 3)
    return given


def measure(script: str, request: dict[str, Any], processes: int, threads: int) -> dict[str, float]:
    """Return rates summed over ``processes``, and the largest of all other results.

    Raises:
        RuntimeError: if a process fails; with its output.
    """
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, str(Path(script).resolve()), "--child", json.dumps(request | {"threads": threads})]
    started = [
        subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(processes)
    ]
    try:
        for child in started:
            assert child.stdout is not None
            child.stdout.readline()
        for child in started:
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has already ended; the reason is reported below
                child.stdin.write("\n")
                child.stdin.flush()
        said = [child.communicate() for child in started]
    finally:
        for child in started:
            if child.poll() is None:
                child.kill()
                child.communicate()
    for child, (_, err) in zip(started, said, strict=True):
        if child.returncode:
            raise RuntimeError(f"{request} ended with code {child.returncode}: {err.strip()[-1000:]}")
    found = [json.loads(out) for out, _ in said]
    return {name: (sum if name == "rate" else max)(one[name] for one in found) for name in found[0]}
