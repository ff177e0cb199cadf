"""Signals ask a training to stop; it stops where nothing is lost.

A handler only notes the signal. The trainer looks at the note after every step (one in compiled code after every call),
writes a checkpoint and raises :class:`Interrupted`. Where no training is under way there is nothing to save, and the
handler raises at once; so does a second Ctrl-C, for those who cannot wait: files are written whole or not at all.
"""

from __future__ import annotations

import signal
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
