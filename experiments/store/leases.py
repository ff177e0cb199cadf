"""Leases: lock files that say which process trains which run, and that expire when this process dies. Imports no torch.

A lease is the file ``<results>/.leases/<run id>.lease``. A process writes a finished file and links it to this name;
only one process can succeed. The owner appends one byte every few seconds. Wall clocks may go backwards or differ
between machines, so they do not decide whether an owner is alive:

* On the owner's machine, its process id and the start time of that process decide.
* On another machine, a monotonic clock decides: the owner counts as dead when the lease has not grown for :data:`LEASE`
  seconds.

A wrong guess costs work, but never a result: each record is written once, by the process that finishes first.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.blocks import visible
from experiments.store.records import HIDDEN, MAX_FILE_BYTES, RecordError, Store
from ngn.files import machine_id, read_regular, remove, start_tick, storage_fault, temporary_path

log = logging.getLogger(__name__)
LEASE = 120.0
"""Seconds without growth after which a lease from another machine expires."""
BEAT = 10.0
"""Seconds between two appended bytes."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lease."""

    machine: str
    pid: int
    started: str
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True)
class _Seen:
    """A lease as it was seen last: its file, when that had grown, and who holds it."""

    inode: int
    size: int
    since: float
    owner: Owner | None


def _owner(content: bytes) -> Owner | None:
    try:
        owner: dict[str, Any] = json.loads(content)
        return Owner(str(owner["machine"]), int(owner["pid"]), str(owner["started"]), visible(owner["host"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


class Leases:
    """The leases of one results folder, as one process sees and holds them."""

    def __init__(self, results: Path, lease: float = LEASE, beat: float = BEAT) -> None:
        self.folder, self._lock = results / HIDDEN, Store(results).locked
        self.lease, self.beat = lease, beat
        self._held: set[str] = set()
        self._seen: dict[str, _Seen] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        me = Owner(machine_id(), os.getpid(), start_tick(os.getpid()) or "", platform.node())
        self._content = json.dumps(me.__dict__ | {"token": os.urandom(8).hex()}).encode() + b"\n"

    def path(self, name: str) -> Path:
        """Return the path of a run's lease, whether or not it exists."""
        return self.folder / f"{name}.lease"

    def owner(self, name: str) -> Owner | None:
        """Return the process that holds a run; None if there is none, or if it is dead.

        To notice the death of an owner on another machine, call this at least twice, more than :data:`LEASE` seconds
        apart.
        """
        path = self.path(name)
        try:
            facts = path.stat()
        except FileNotFoundError:  # or a dangling link, which nobody holds
            self._seen.pop(name, None)
            return None
        except OSError:  # links in a circle, or a folder that cannot be read
            facts = path.lstat()
        now, seen = time.monotonic(), self._seen.get(name)
        if seen is None or seen.inode != facts.st_ino or facts.st_size < seen.size:
            seen = _Seen(facts.st_ino, facts.st_size, now, self._read(name))
        elif seen.size != facts.st_size:
            seen = replace(seen, size=facts.st_size, since=now)
        self._seen[name] = seen
        if self._dead(seen, now):
            holder = self._read(name)  # a later lease may have got the number of the file that was read
            if holder == seen.owner:
                return None
            seen = self._seen[name] = replace(seen, since=now, owner=holder)
        return seen.owner or Owner("", 0, "", "an unknown machine")

    def _read(self, name: str) -> Owner | None:
        try:
            return _owner(read_regular(self.path(name), MAX_FILE_BYTES))
        except OSError:  # a folder, or a file that cannot be read
            return None

    def _dead(self, seen: _Seen, now: float) -> bool:
        owner = seen.owner
        if owner is not None and owner.machine == machine_id():
            return start_tick(owner.pid) != owner.started
        return now - seen.since > self.lease

    def take(self, names: Iterable[str]) -> list[str]:
        """Lease the runs that nobody holds. Return the names that this call leased, in the given order.

        A run that another process holds costs one look at the facts of its file, and writes nothing: thousands of
        waiting commands may share a file system.

        Raises:
            RecordError: if the folder is not writable, since no record could be written there either.
        """
        taken: list[str] = []
        try:
            for name in [name for name in names if self.owner(name) is None]:
                self._lock()  # fails before any training, not after it, if the lock file cannot be made
                if self._take(name):
                    taken.append(name)
                    self._held.add(name)
        except OSError as fault:
            self.release(taken)
            fault.filename = str(self.folder.parent)
            why = storage_fault(fault) or fault
            raise RecordError(f"{why}. Nothing was started. Another folder: results=DIR") from fault
        if taken and self._thread is None:
            self._thread = threading.Thread(target=self._beats, name="leases", daemon=True)
            self._thread.start()
        return taken

    def _take(self, name: str) -> bool:
        path = self.path(name)
        written = temporary_path(path)
        try:
            written.write_bytes(self._content)
            for _ in range(2):
                try:
                    os.link(written, path)
                    return True
                except FileExistsError:
                    pass
                if self.owner(name) is not None:
                    return False
                with self._lock():
                    # Under the lock, one process takes over a dead owner's lease. Releasing takes the lock too.
                    if os.path.lexists(path) and self.owner(name) is None:
                        log.warning("%s: the process that trained this run is gone; taking the run over", name)
                        if path.is_dir():
                            remove(path)
                        os.replace(written, path)
                        return True
            return False
        finally:
            written.unlink(missing_ok=True)

    def _ours(self, name: str) -> bool:
        try:
            return read_regular(self.path(name), MAX_FILE_BYTES).startswith(self._content.rstrip(b"\n"))
        except OSError:
            return False

    def release(self, names: Iterable[str]) -> None:
        """Release runs, except those that another process has taken over meanwhile."""
        names = [name for name in names if name in self._held]
        self._held.difference_update(names)
        if names:
            with self._lock():
                for name in names:
                    if self._ours(name):
                        self.path(name).unlink(missing_ok=True)

    def clear(self, name: str) -> None:
        """Remove the lease of a run if its owner is dead."""
        if self.path(name).exists() and self.owner(name) is None:
            with self._lock():
                if self.owner(name) is None:
                    self.path(name).unlink(missing_ok=True)

    def _beats(self) -> None:
        while not self._stop.wait(self.beat):
            for name in sorted(self._held):
                try:
                    # no O_CREAT: a removed lease must not come back
                    file = os.open(self.path(name), os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
                    try:
                        os.write(file, b"\n")
                    finally:
                        os.close(file)
                except OSError as fault:
                    log.warning("cannot renew the lease of %s (%s)", name, fault)

    def close(self) -> None:
        """Release all leases and stop renewing them."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.release(list(self._held))

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()
