"""Leases: file locks that say which process trains which run. Imports no torch.

A lease is the file ``<results>/.leases/<run id>.lease``, locked with ``flock``. The kernel releases it when its process
ends, however it ends. So nobody guesses whether an owner lives: a killed process frees its runs at once, and a
suspended one keeps them. The file says who holds it.

What is lost: on a file system without ``flock`` (NFS 3 without lockd) nothing can be trained. If its locks are local to
a node (Lustre mounted with ``localflock``), two nodes may train the same run. That costs work, but no result: each
record is written once, by the process that finishes first. If a node vanishes, the server of the file system decides
when its locks end.

``filelock`` guards the writing of records, and not these: it tells neither who holds a file nor, publicly, which file
it has locked.
"""

from __future__ import annotations

import fcntl
import os
import platform
import stat
from collections.abc import Iterable
from pathlib import Path

from experiments.core.blocks import visible
from experiments.core.reading import storage_fault
from experiments.store.records import HIDDEN, RecordError, Store
from ngn.files import remove

LONGEST = 200
"""Most bytes of a lease that are read."""


class Leases:
    """The leases of one results folder that one process holds, and a look at those of others."""

    def __init__(self, results: Path) -> None:
        self.store, self.folder = Store(results), results / HIDDEN
        self._held: dict[str, int] = {}
        self._me = f"process {os.getpid()} on {visible(platform.node())}"

    def path(self, name: str) -> Path:
        """Return the path of a run's lease, whether or not it exists."""
        return self.folder / f"{name}.lease"

    def owner(self, name: str) -> str | None:
        """Return which process holds a run, in printable characters; None if there is none."""
        if name in self._held:
            return self._me
        try:
            file = os.open(self.path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # nothing is there, or what no process has made
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except OSError:
            return visible(os.read(file, LONGEST).decode(errors="replace")) or "an unknown process"
        finally:
            os.close(file)

    def take(self, names: Iterable[str]) -> list[str]:
        """Lease the runs that nobody holds. Return the names that this call leased, in the given order.

        A run that another process holds costs one look at its file, and writes nothing: thousands of waiting commands
        may share a file system.

        Raises:
            RecordError: if the folder is not writable, since no record could be written there either.
        """
        taken: list[str] = []
        try:
            self.store.locked()  # fails before any training, not after it, if the lock file cannot be made
            for name in names:
                if name not in self._held and self._take(name):
                    taken.append(name)
        except OSError as fault:
            self.release(taken)
            fault.filename = str(self.folder.parent)
            why = storage_fault(fault) or fault
            raise RecordError(f"{why}. Nothing was started. Another folder: results=DIR") from fault
        return taken

    def _take(self, name: str) -> bool:
        path = self.path(name)
        while True:
            if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
                remove(path)  # a folder or a link, which nobody holds
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its last owner may have removed it before it was locked here. Then another may hold a new file.
                if os.fstat(file).st_nlink and os.path.samestat(os.fstat(file), path.lstat()):
                    os.ftruncate(file, 0)
                    os.pwrite(file, self._me.encode(), 0)
                    self._held[name] = file
                    return True
            except BlockingIOError:
                return False
            finally:
                if self._held.get(name) != file:
                    os.close(file)

    def release(self, names: Iterable[str]) -> None:
        """Release those of these runs that this process holds. Their files are removed under their locks."""
        for name in names:
            if (file := self._held.pop(name, None)) is not None:
                self.path(name).unlink(missing_ok=True)
                os.close(file)

    def clear(self, name: str) -> None:
        """Remove the lease that a killed process has left."""
        if os.path.lexists(self.path(name)):
            self.release(self.take([name]))
