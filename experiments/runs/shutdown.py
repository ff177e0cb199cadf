"""End a program that a signal stopped: its last message, its exit status, and requeuing in Slurm."""

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
    """Yield a socket that becomes readable when a signal arrives, for use with ``select``.

    Without it, Python continues to wait after a signal handler returns. Outside the main thread it never becomes
    readable.
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
    """Requeue the Slurm job of this process. Return its name, or None outside Slurm.

    Call it after SIGUSR1 or SIGUSR2, which Slurm sends on request (``--signal``). After SIGTERM, Slurm decides itself:
    it requeues a preempted job, and a cancelled job must stay cancelled.

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
    """Print how to continue, requeue a Slurm job that was warned, and return the exit status.

    Args:
        resume: the command that continues.
    """
    signum = stopped.signum if isinstance(stopped, Interrupted) else int(signal.SIGINT)
    print(f"\n{Interrupted(signum)}; all progress is saved. To continue:\n  {resume}", file=sys.stderr, flush=True)
    if signum in (signal.SIGUSR1, signal.SIGUSR2):
        try:
            job = requeue()
        except RuntimeError as refused:  # an interactive job, for example; the command above still works
            print(refused, file=sys.stderr, flush=True)
        else:
            if job is not None:
                print(f"requeued Slurm job {job}", file=sys.stderr, flush=True)
    return 128 + signum
