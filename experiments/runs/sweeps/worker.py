"""Train the tasks of a plan: on this machine those that the supervisor gives, on Slurm one task.

python -m experiments.runs.sweeps.worker PLAN

reads task numbers from standard input and answers each with one line of JSON. "7 wait" means task 7, and waiting for
runs of it that other processes train.
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

from experiments.core import interrupt
from experiments.core.blocks import ConfigError
from experiments.core.interrupt import shut_down
from experiments.runs.sweeps import plan as plans
from experiments.store.records import RecordError
from ngn.files import FileError, remove_stale_files, write_atomically

PATIENCE = 150.0
"""Seconds to wait for a run of another process, which may just be ending."""

NOT_FAILED = ("complete", "present", "diverged", "held")
"""The statuses of runs that did not fail. Any other status is the reason of a failure."""


def failure_path(plan: Path, name: str) -> Path:
    """Return the file with the last failure of a run. It exists until the run succeeds."""
    return plan.parent / "failures" / f"{name}.json"


def note_failure(plan: Path, names: list[str], error: str) -> None:
    """Write the reason why runs failed into files, for ``status``."""
    job = os.environ.get("SLURM_JOB_ID")
    where = platform.node() + (f", Slurm job {job}" if job else "")
    remove_stale_files(plan.parent / "failures")
    for name in names:
        content = json.dumps({"run_id": name, "error": error, "where": where})
        write_atomically(failure_path(plan, name), content.encode(), replace=True)


def run_task(plan: Path, number: int, patience: float | None = PATIENCE) -> dict[str, str]:
    """Train one task of a plan. Failures are written down and do not affect other tasks.

    Args:
        patience: seconds to wait for runs that other processes train; None waits without a limit.

    Returns:
        run id → complete, diverged, present, held, or the first line of an error.

    Raises:
        RecordError: if the plan cannot be read at all.
    """
    from experiments.runs.launch import HeldElsewhere, share

    try:
        ((_, runs),) = plans.runs_of_tasks(plan, [number])
    except RecordError as damaged:
        print(damaged, file=sys.stderr, flush=True)
        return dict.fromkeys(plans.read_plan(plan).tasks[number], str(damaged))
    names = [run.id for run in runs]
    needs = plans.read_plan(plan).needs
    if needs.gpus and any(run.config.device != "cpu" for run in runs):
        from experiments.runs.training import card_sizes  # imports torch

        if (lacking := needs.lacking(card_sizes())) is not None:
            note_failure(plan, names, lacking)
            print(f"task {number}: {lacking}", file=sys.stderr, flush=True)
            return dict.fromkeys(names, lacking)
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
        if error not in shown:  # the runs of a stack fail with the same error
            shown.append(error)
            if not isinstance(error, (ConfigError, FileError)):
                traceback.print_exception(error)
            print(f"task {number}: {statuses[name]}", file=sys.stderr, flush=True)
    return statuses


def slurm_task(plan: str, number: int) -> dict[str, str]:
    """Train one task as a Slurm array task.

    If Slurm asks it to stop, it saves its state. If Slurm warns it with SIGUSR1 or SIGUSR2, it also requeues itself.

    Raises:
        RuntimeError: if a run failed.
    """
    try:
        with interrupt.handled():
            done = run_task(Path(plan), number)
    except KeyboardInterrupt as stopped:
        # Exit at once. Otherwise submitit would write a result, take the job as finished, and not run it again.
        os._exit(shut_down(stopped, f"task {number} of {plan}; sweep.py run submits the missing runs"))
    for name, status in done.items():
        print(f"{name}: {status}", flush=True)
    failed = [status for status in done.values() if status not in NOT_FAILED]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(done)} runs failed: {failed[0]}")
    return done


def main() -> int:
    """Train the tasks whose numbers arrive on standard input, until it ends. Return the exit status."""
    plan = Path(sys.argv[1])
    # Only answers go to the supervisor. Output of libraries goes to standard error, like messages.
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
        return shut_down(stopped, shlex.join(["python", "scripts/sweep.py", "run", plan.parent.name]))
    except RecordError as damaged:  # the whole plan cannot be read any more
        print(damaged, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
