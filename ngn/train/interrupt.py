"""Signals ask a training to stop; it stops where nothing is lost.

A handler only notes the signal. The trainer looks at the note after every step (the compiled kernel after every call),
writes a checkpoint and raises :class:`Interrupted`. Where no training is under way there is nothing to save, and the
handler raises at once; so does a second Ctrl-C, for those who cannot wait: files are written whole or not at all.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Ctrl-C; the end of an allocation or a polite kill; what Slurm is told to send before a time limit or a preemption."""


class Interrupted(KeyboardInterrupt):
    """Stopped by a signal, after what had been computed was saved. ``signum`` says which signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def status(self) -> int:
        """The exit status that a shell gives to this signal."""
        return 128 + self.signum


class _Note:
    """What has been asked for in this process, and whether a training is under way."""

    signum: int | None = None
    training: int = 0


_note = _Note()


def _handle(signum: int, frame: FrameType | None) -> None:
    again = _note.signum is not None
    if _note.signum is None:
        _note.signum = signum
    if _note.training == 0 or (again and signum == signal.SIGINT):
        raise Interrupted(_note.signum)


def asked() -> bool:
    """Whether a signal has asked this process to stop."""
    return _note.signum is not None


def stop() -> None:
    """Raise :class:`Interrupted` if a signal has asked for it; called after saving."""
    if _note.signum is not None:
        raise Interrupted(_note.signum)


@contextmanager
def handled() -> Iterator[None]:
    """Handle the signals meanwhile; outside of the main thread, where Python cannot, this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _handle) for number in SIGNALS}
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # whoever started this may have kept them waiting until now
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _note.signum = None


@contextmanager
def deferred() -> Iterator[None]:
    """While a training is under way, signals are only noted; what was noted is raised at the end at the latest."""
    _note.training += 1
    try:
        yield
    finally:
        _note.training -= 1
    if _note.training == 0:
        stop()


@contextmanager
def bell() -> Iterator[socket.socket]:
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


def leave(stopped: KeyboardInterrupt, resume: str) -> int:
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
