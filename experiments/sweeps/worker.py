"""What trains the tasks of a plan: here, one task after the other as the supervisor names them; on Slurm, one.

python -m experiments.sweeps.worker PLAN   # reads task numbers from stdin, answers each with a line of JSON; "7 wait"
                                    # is task 7, and waits for those of its runs that others are training
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import traceback
from pathlib import Path
from typing import Any

from experiments.blocks import ConfigError
from experiments.runs.shutdown import shut_down
from experiments.store.leases import LEASE
from experiments.store.records import RecordError
from experiments.sweeps import plan as plans
from ngn.files import FileError, write_atomically
from ngn.train import interrupt

PATIENCE = LEASE + 30
"""Seconds to wait for a run that another process trains: enough to see whether its owner lives."""

ENDINGS = ("complete", "present", "diverged", "held")
"""What may be said of a run that has not failed; anything else is why it has."""


def failure_path(plan: Path, name: str) -> Path:
    """Where the last failure of a run is written down, until the run succeeds."""
    return plan.parent / "failures" / f"{name}.json"


def note_failure(plan: Path, names: list[str], error: str) -> None:
    """Write down why runs failed, for ``status``."""
    job = os.environ.get("SLURM_JOB_ID")
    where = platform.node() + (f", Slurm job {job}" if job else "")
    for name in names:
        content = json.dumps({"run_id": name, "error": error, "where": where})
        write_atomically(failure_path(plan, name), content.encode(), replace=True)


def run_task(plan: Path, number: int, patience: float | None = PATIENCE) -> dict[str, str]:
    """Train one task of a plan; run id → complete, diverged, present, held, or the last line of an error.

    A task is trained as a whole; what fails is noted and leaves the other tasks.

    Args:
        patience: seconds to wait for runs that others train.
    """
    from experiments.runs.launch import share
    from experiments.runs.sharing import HeldElsewhere

    try:
        ((_, runs),) = plans.runs_of_tasks(plan, [number])
    except RecordError as damaged:
        print(damaged, file=sys.stderr, flush=True)
        return dict.fromkeys(plans.read(plan).tasks[number], str(damaged))
    names = [run.id for run in runs]
    try:
        done = share(runs, patience)
    except HeldElsewhere as held:
        print(held, file=sys.stderr, flush=True)
        return dict.fromkeys(names, "held")
    statuses: dict[str, str] = {}
    shown: list[Exception] = []
    for name in names:
        if not isinstance(error := done[name], Exception):
            statuses[name] = error.status
            failure_path(plan, name).unlink(missing_ok=True)
            continue
        statuses[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        note_failure(plan, [name], statuses[name])
        if error not in shown:  # the runs of a stack fail together
            shown.append(error)
            if not isinstance(error, (ConfigError, FileError)):
                traceback.print_exception(error)
            print(f"task {number}: {statuses[name]}", file=sys.stderr, flush=True)
    return statuses


def slurm_task(plan: str, number: int) -> dict[str, str]:
    """What an array task runs: asked to stop, it saves; warned by SIGUSR1 or SIGUSR2, it also queues itself again."""
    try:
        with interrupt.handled():
            done = run_task(Path(plan), number)
    except KeyboardInterrupt as stopped:
        # A hard exit: submitit would otherwise write a result that says the job is over, and not run it again.
        os._exit(shut_down(stopped, f"task {number} of {plan}; sweep.py run submits what is missing"))
    for name, status in done.items():
        print(f"{name}: {status}", flush=True)
    failed = [status for status in done.values() if status not in ENDINGS]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(done)} runs failed: {failed[0]}")
    return done


def main() -> int:
    """Train the tasks whose numbers come in, until there are no more."""
    plan = Path(sys.argv[1])
    # The answers alone go to the supervisor; what a library prints goes where the messages go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        with interrupt.handled():
            for line in sys.stdin:
                number, *wait = line.split()
                runs = run_task(plan, int(number), PATIENCE if wait else 0.0)
                answer: dict[str, Any] = {"task": int(number), "runs": runs}
                print(json.dumps(answer), file=answers, flush=True)
    except KeyboardInterrupt as stopped:
        return shut_down(stopped, shlex.join(["python", "scripts/sweep.py", "run", plans.read(plan).study]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
