"""Faults around a training: the disk, other processes, the clock. ``tests/support/faults.py`` runs them."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faulty
import numpy as np
from faulty import KILL, Count, Hook, child, configs, found, in_any_stack, lost, train, undisturbed
from waiting import until

from experiments.runs import sharing
from experiments.runs.errors import StorageError


def disk_full(folder: Path) -> Count:
    """Limit the size of files, from a checkpoint's size to a note's, or fail the n-th flush for lack of space."""
    expected = undisturbed(folder, "1d", 2)
    result = Count("stopped with a message that names the file, went on when there was room")
    for kind, at in [
        *(("limit", size) for size in (20_000, 8_000, 1_000, 500)),
        *(("flush", n) for n in (2, 15, 60, 91)),
    ]:
        place = folder / f"{kind}-{at}"
        wanted = configs(place, "1d", 2)

        def starved(kind: str = kind, at: int = at, place: Path = place, wanted: list = wanted) -> None:
            def full() -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            if kind == "limit":
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (at, resource.RLIM_INFINITY))
            else:
                Hook(at, full).at_writes(["fsync"])
            try:
                train(place, wanted)
            except StorageError as error:
                # short, because the log is a file too
                print("StorageError", str(error)[-250:], file=sys.stderr)
                raise SystemExit(1) from None

        status = child(starved, folder / f"{place.name}.log")
        told = (folder / f"{place.name}.log").read_text()
        again = child(lambda place=place, wanted=wanted: train(place, wanted))
        missing = lost(expected, found(place, wanted))
        good = (status, again, missing) == (1, 0, 0) and "StorageError" in told and "continues from them" in told
        result.add(missing, good, f"{place.name}: {status}, {again}, {missing}\n{told}")
    return result


def two_hosts(folder: Path, count: int) -> Count:
    """Give two processes the same runs. The first is alive, killed, or suspended at a step; then it wakes or is killed.

    The second leaves a living or suspended one its runs, and waits for them. It trains those of a killed one at once.
    """
    expected = in_any_stack(undisturbed(folder, "1d", 2))
    result = Count("runs of a living or suspended one respected, of a killed one taken at once; same bytes")
    random = np.random.default_rng(count)
    for number in range(count):
        what = ("alive", "killed", "suspended, resumed", "suspended, killed")[number % 4]
        place, at, shared = folder / str(number), int(random.integers(1, 13)), number // 4 % 2 == 0
        wanted = configs(place, "1d", 2)
        place.mkdir()

        def host(name: str, at: int, act: Callable[[], None], place: Path = place, wanted: list = wanted,
                 shared: bool = shared) -> None:  # fmt: skip
            sharing.POLL = 0.02
            Hook(at, act).at_steps()
            outcomes = train(place if shared else place / name, wanted)
            (place / f"{name}.told").write_text(" ".join(outcome.status for outcome in outcomes))

        acts = {"alive": (place / "goes").touch, "killed": KILL}
        one = faulty.start(partial(host, "one", at, acts.get(what, faulty.send(signal.SIGSTOP))), place / "log")
        if what == "alive":
            until((place / "goes").exists, "a step")
        elif what != "killed":
            os.waitpid(one, os.WUNTRACED)
        else:
            faulty.wait(one)
        two = faulty.start(partial(host, "two", 0, KILL), place / "log")
        if "suspended" in what:
            until(lambda place=place: "waiting for 2 runs" in (place / "log").read_text(), "that it waits")
            os.kill(one, signal.SIGCONT if "resumed" in what else signal.SIGKILL)
        ended = [faulty.wait(two), *([] if what == "killed" else [faulty.wait(one)])]
        told = (place / "two.told").read_text().split()
        killed = "killed" in what
        good = ended == [0, *({"suspended, killed": [-signal.SIGKILL], "killed": []}.get(what, [0]))]
        good = good and told == ["complete" if killed else "present"] * 2 and not list(place.rglob("*.lease"))
        missing = lost(expected, in_any_stack(found(place, wanted)))
        said = f"{number} {what} at {at}, shared {shared}: {ended}, {told}, {missing}, {faulty.left(place)}"
        result.add(missing, good and not missing, f"{said}\n{(place / 'log').read_text()}")
    return result
