"""Ending a program that a signal has stopped: what it says, its exit status, and Slurm's queue."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ngn.train.interrupt import Interrupted


@contextmanager
def woken_by_signals() -> Iterator[socket.socket]:
    """A socket that becomes readable when a signal comes, for those who wait for files and would sleep through it.

    Python goes on waiting after a handler that only notes. Outside of the main thread it stays silent.
    """
    heard, rung = socket.socketpair()
    heard.setblocking(False)
    rung.setblocking(False)
    main = threading.current_thread() is threading.main_thread()
    before = signal.set_wakeup_fd(rung.fileno(), warn_on_full_buffer=False) if main else -1
    try:
        yield heard
    finally:
        if main:
            signal.set_wakeup_fd(before)
        heard.close()
        rung.close()


def requeue() -> str | None:
    """Put the Slurm job that this process is into its queue again; its name, or None where this is no such job.

    Called after SIGUSR1 or SIGUSR2, which Slurm sends when told so (``--signal``). After SIGTERM Slurm decides by
    itself: a preempted job is requeued by it, and a cancelled one must stay cancelled.

    Raises:
        RuntimeError: if Slurm refuses; the message has its reason.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Slurm did not requeue job {job}: {done.stderr.strip()}")
    return job


def shut_down(stopped: KeyboardInterrupt, resume: str) -> int:
    """Tell how to go on, requeue a Slurm job that was warned, and return the exit status."""
    signum = stopped.signum if isinstance(stopped, Interrupted) else int(signal.SIGINT)
    print(f"\n{Interrupted(signum)}; what was computed is saved. To go on:\n  {resume}", file=sys.stderr, flush=True)
    if signum in (signal.SIGUSR1, signal.SIGUSR2):
        try:
            job = requeue()
        except RuntimeError as refused:  # an interactive job, for one; the command above still holds
            print(refused, file=sys.stderr, flush=True)
        else:
            if job is not None:
                print(f"job {job} is in Slurm's queue again", file=sys.stderr, flush=True)
    return 128 + signum
