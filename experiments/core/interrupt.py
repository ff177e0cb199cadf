"""Stop a training at a signal without losing work, and end the program.

During a training, the signal handler only notes the signal. After every step, the trainer reads the note, writes a
checkpoint and raises :class:`Interrupted`. (A compiled kernel reads the note after every call, which runs many steps.)

If no training is running, the handler raises at once. A second Ctrl-C also raises at once. No file is left incomplete.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""SIGINT: Ctrl-C. SIGTERM: ``kill``, or the end of an allocation. SIGHUP: the terminal was closed, such as an ssh
connection. SIGUSR1 and SIGUSR2: Slurm can send them before a time limit or a preemption."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped the process; a running training has saved a checkpoint.

    Attributes:
        signum: the number of the signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def status(self) -> int:
        """The exit status for this signal in a shell: 128 + its number."""
        return 128 + self.signum


_note = SimpleNamespace(signum=None, training=0)
"""The first signal of this process, and the number of trainings that are running."""


def _handle(signum: int, frame: FrameType | None) -> None:
    again = _note.signum is not None
    if signum == signal.SIGHUP:
        _leave_terminal()
    if _note.signum is None:
        _note.signum = signum
    if _note.training == 0 or (again and signum == signal.SIGINT):
        raise Interrupted(_note.signum)


def _leave_terminal() -> None:
    """Send output nowhere if its terminal is gone: the error of a progress bar must not come before the checkpoint."""
    for number in (1, 2):
        try:
            os.write(number, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def requested() -> bool:
    """Whether a signal has asked this process to stop."""
    return _note.signum is not None


def raise_if_requested() -> None:
    """Raise :class:`Interrupted` if a signal has asked this process to stop. Save your work before you call it."""
    if _note.signum is not None:
        raise Interrupted(_note.signum)


@contextmanager
def handled() -> Iterator[None]:
    """Handle :data:`SIGNALS` within the context, without SIGHUP if it is ignored (``nohup``).

    Does nothing outside the main thread, where Python cannot do it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    numbers = [number for number in SIGNALS if not (ignored and number == signal.SIGHUP)]
    before = {number: signal.signal(number, _handle) for number in numbers}
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # the parent process may have blocked them until now
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _note.signum = None


@contextmanager
def deferred() -> Iterator[None]:
    """Only note signals within the context, which is a training. At its end, raise :class:`Interrupted` if one came."""
    _note.training += 1
    try:
        yield
    finally:
        _note.training -= 1
    if _note.training == 0 and _note.signum is not None:
        raise Interrupted(_note.signum)


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
