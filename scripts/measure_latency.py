"""Time forward passes of the trained sizes of table 8 on this machine; write ``results/latency.json``.

    python scripts/measure_latency.py                       # the records in results/, about five minutes
    python scripts/measure_latency.py --data-root DIR       # data sets in another folder

Close other programs first. The script builds the models of every usable record at their recorded sizes. It times them
in turns on one thread; the median over rounds counts. Weights keep their initial values, which does not change the
time of a dense pass.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch

from experiments.analysis import latency
from experiments.analysis.collect import Reader
from experiments.cli.pipes import exit_with
from experiments.contract.config import Config
from experiments.contract.task import Task
from experiments.data import DataError
from experiments.paths import RESULTS
from experiments.runs import host
from experiments.runs.phases import learner_of
from experiments.runs.stack import Stack
from experiments.store.provenance import code, code_block, machine, packages
from experiments.store.records import Store
from experiments.tables.transfer import EIGHT
from experiments.tasks import make_task
from ngn.files import remove_stale_files, write_atomically
from ngn.measuring import in_turns

Forward = Callable[[Any], torch.Tensor]


def models(config: Config, task: Task, phases: Mapping[str, Any]) -> Iterator[tuple[str, str, list[int], Forward]]:
    """Yield (phase, part, retained counts, forward pass) for the models of one record.

    Raises:
        RuntimeError: if the record's t does not give the record's count.
    """
    for phase in ("grown", "fixed", "from_high"):
        found = phases.get(phase, {})
        if found.get("status") != "complete":
            continue
        count = found["count"]
        if phase == "fixed":
            yield phase, "deployed", count, learner_of(Stack.of(config), task, count).deploy()
            continue
        (t,) = found["t"]
        start = config.model_copy(update={"gate": config.gate.model_copy(update={"t0": t})})
        learner = learner_of(Stack.of(start), task)
        learner.set_progress(1.0)
        learner.before_step(None)
        if learner.count().tolist() != count:
            raise RuntimeError(f"t = {t} retains {learner.count().tolist()} components here, {count} in the record")
        yield phase, "candidate", count, learner.model
        yield phase, "deployed", count, learner.deploy(unsettled="allow")


def measured(reader: Reader, data_root: str | None, rounds: int) -> list[dict[str, Any]]:
    """Return one entry per model of every usable record of table 8."""
    entries = []
    for key, selection in EIGHT.runs.items():
        runs = reader.collect(selection).runs
        if not runs:
            continue
        task = make_task(selection.config(0).model_copy(update={"data_root": data_root}), torch.device("cpu"))
        x, samples = task.timed_batch()
        built = [
            ({"run": run.run_id, "phase": phase, "part": part, "count": count, "samples": samples}, forward)
            for run in runs
            for phase, part, count, forward in models(selection.config(run.seed), task, run.record["phases"])
        ]
        times: list[list[float]] = [[] for _ in built]
        for number in range(rounds):
            for own, (_, forward) in zip(times, built, strict=True):
                own += map(statistics.median, in_turns([partial(forward, x)], torch.device("cpu")))
            print(f"{key}: {len(built)} models of {len(runs)} runs, round {number + 1} of {rounds}", flush=True)
        entries += [
            {**entry, "milliseconds": float(f"{statistics.median(own):.4g}")}
            for own, (entry, _) in zip(times, built, strict=True)
        ]
    return entries


def text(entries: list[dict[str, Any]], rounds: int) -> str:
    """Format the file, one model per line."""
    head = {
        "schema": latency.SCHEMA_VERSION,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": {key: value for key, value in code_block({}).items() if key != "numerics"},
        "hardware": machine(),
        "packages": packages(),
        "threads": torch.get_num_threads(),
        "rounds": rounds,
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    own = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    return "\n".join(["{", *lines, ' "models": [', own, " ]", "}"]) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 without records or data, 2 with uncommitted code, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")
    parser.add_argument("--data-root", metavar="DIR", help="folder of the data sets")
    parser.add_argument("--rounds", type=int, default=5, help="how often the models take turns")
    given = parser.parse_args(argv)
    if not code().clean:
        print(
            "the code has uncommitted changes, so the timed code would be unknown: commit them first", file=sys.stderr
        )
        return 2
    torch.set_num_threads(1)
    try:
        with host.tuned_for_training():  # as in every run
            entries = measured(Reader(Store(given.results)), given.data_root, given.rounds)
    except DataError as fault:
        print(fault, file=sys.stderr)
        return 1
    if not entries:
        print(f"{given.results} has no record of table 8", file=sys.stderr)
        return 1
    path = given.results / latency.NAME
    remove_stale_files(path.parent)
    write_atomically(path, text(entries, given.rounds).encode(), replace=True)
    print(path)
    return 0


if __name__ == "__main__":
    exit_with(main)
