"""Stop a training at a signal without losing work.

During a training, the signal handler only notes the signal. After every step, the trainer reads the note, writes a
checkpoint and raises :class:`Interrupted`. (A compiled kernel reads the note after every call, which runs many steps.)

If no training is running, the handler raises at once. A second Ctrl-C also raises at once. No file is left incomplete.
"""

from __future__ import annotations

import os
import signal
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
