"""End a program that a signal stopped: its last message, its exit status, and requeuing in Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from experiments.core.interrupt import Interrupted


def _scontrol(*words: str) -> str:
    try:
        return subprocess.run(["scontrol", *words], capture_output=True, text=True, check=True).stdout
    except OSError as fault:
        raise RuntimeError(f"scontrol {' '.join(words)}: {fault}") from None
    except subprocess.CalledProcessError as refused:
        raise RuntimeError(f"scontrol {' '.join(words)}: {refused.stderr.strip()}") from None


def _warned(signum: int, job: str) -> bool:
    """Return whether Slurm will end a job that is to run again.

    SIGUSR1 or SIGUSR2 are sent on request (``--signal``). SIGTERM means it if Slurm preempts the job after a time of
    grace: it takes a job that ends within this time as done. It requeues a job that it preempts at once by itself, and
    a cancelled job must stay cancelled.

    Raises:
        RuntimeError: if Slurm does not answer.
    """
    if signum != signal.SIGTERM:
        return signum in (signal.SIGUSR1, signal.SIGUSR2)
    told = _scontrol("show", "job", job).split()
    return "JobState=RUNNING" in told and any(word.startswith("PreemptTime=2") for word in told)


def shut_down(stopped: KeyboardInterrupt, resume: str) -> int:
    """Print how to continue (``resume``), requeue a Slurm job that was warned, and return the exit status."""
    signum = stopped.signum if isinstance(stopped, Interrupted) else int(signal.SIGINT)
    print(f"\n{Interrupted(signum)}; all progress is saved. To continue:\n  {resume}", file=sys.stderr, flush=True)
    job = os.environ.get("SLURM_JOB_ID")
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    try:
        if job is not None and _warned(signum, job):
            _scontrol("requeue", job)
            print(f"requeued Slurm job {job}", file=sys.stderr, flush=True)
    except RuntimeError as refused:  # an interactive job, for example; the command above still works
        print(f"not requeued: {refused}", file=sys.stderr, flush=True)
    return 128 + signum
