"""Faults of what surrounds a training: the disk, other processes, the clock. ``tests/support/faults.py`` runs them."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import faulty
import numpy as np
from faulty import KILL, Count, Hook, child, configs, found, in_any_stack, lost, train, undisturbed

from experiments.config.identity import run_id
from experiments.runs import launch
from experiments.store import provenance
from experiments.store.leases import Leases
from ngn.train.checkpoint import StorageError


def disk_full(folder: Path) -> Count:
    """No file may grow beyond a limit, from a checkpoint's size down to a note's; or the n-th flush finds no room."""
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
                # short: the log is a file too
                print("StorageError", str(error)[-250:], file=sys.stderr)
                raise SystemExit(1) from None

        status = child(starved, folder / f"{place.name}.log")
        told = (folder / f"{place.name}.log").read_text()
        again = child(lambda place=place, wanted=wanted: train(place, wanted))
        missing = lost(expected, found(place, wanted))
        result.tried += 1
        result.lost += missing
        good = (status, again, missing) == (1, 0, 0) and "StorageError" in told and "goes on from there" in told
        result.survived += good
        if not good:
            print(place.name, status, again, missing, told, file=sys.stderr)
    return result


def read_only_results(folder: Path) -> Count:
    """A folder of records that cannot be written, before the run (said at once) and from its middle on."""
    expected = undisturbed(folder, "1d", 2)
    result = Count("refused before training, or kept the training; went on when it was writable")
    for when in ("before", "middle"):
        place = folder / when
        wanted = configs(place, "1d", 2)
        place.mkdir()
        # a file where a folder belongs: holds for root too, whom permissions do not stop
        results = place / "results"

        def refused(when: str = when, place: Path = place, wanted: list = wanted, results: Path = results) -> None:
            if when == "before":
                results.write_text("")
            else:
                results.mkdir()
                Hook(6, lambda: (results / "regression1d").write_text("")).at_steps()  # type: ignore[arg-type]
            train(place, wanted)

        status = child(refused, place / "log")
        told = (place / "log").read_text()
        trained = list(place.rglob("finished.json"))
        (results if when == "before" else results / "regression1d").unlink()
        again = child(lambda place=place, wanted=wanted: train(place, wanted))
        missing = lost(expected, found(place, wanted))
        clear = "cannot be written" in told and bool(trained) == (when == "middle")
        result.tried += 1
        result.lost += missing
        result.survived += (status, again, missing) == (1, 0, 0) and clear
    return result


def one_run_many_processes(folder: Path) -> Count:
    """Sixteen processes are given the same run at the same moment: one trains it, and one record is there."""
    expected = undisturbed(folder, "1d", 1)
    result = Count("one process trained, the others found its record")
    for attempt in range(3):
        place = folder / str(attempt)
        wanted = configs(place, "1d", 1)
        place.mkdir()

        def one(place: Path = place, wanted: list = wanted) -> None:
            while not (place / "go").exists():
                os.sched_yield()
            (outcome,) = train(place, wanted)
            (place / f"{outcome.status}-{os.getpid()}").touch()

        children = []
        for _ in range(16):
            if (pid := os.fork()) == 0:
                os._exit(child(one))
            children.append(pid)
        (place / "go").touch()
        statuses = [faulty.wait(pid) for pid in children]
        missing = lost(expected, found(place, wanted))
        result.tried += 1
        result.lost += missing
        trained, present = len(list(place.glob("complete-*"))), len(list(place.glob("present-*")))
        result.survived += (set(statuses), trained, present, missing) == ({0}, 1, 15, 0) and not faulty.left(place)
    return result


def dead_owners(folder: Path) -> Count:
    """Leases of a killed process here, and of a machine that fell silent: the next process takes the runs over."""
    expected = in_any_stack(undisturbed(folder, "1d", 3))
    result = Count("taken over and trained; a living owner's runs left alone")
    for kind in ("killed", "silent", "garbled"):
        place = folder / kind
        wanted = configs(place, "1d", 3)
        names = [run_id(config) for config in wanted]

        def dies(names: list = names, place: Path = place) -> None:
            Leases(place / "results").take(names)
            KILL()

        child(dies)
        for lease in place.rglob("*.lease"):
            if kind == "silent":
                lease.write_text(json.dumps({**json.loads(lease.read_text()), "machine": "elsewhere", "host": "node7"}))
            elif kind == "garbled":
                lease.write_bytes(b"\0" * 40)

        def heir(place: Path = place, wanted: list = wanted) -> None:
            launch.Leases = lambda results: Leases(results, lease=0.3)  # type: ignore[assignment, misc]
            train(place, wanted)

        status = child(heir)
        missing = lost(expected, in_any_stack(found(place, wanted)))
        result.tried += 1
        result.lost += missing
        result.survived += (status, missing) == (0, 0) and not faulty.left(place)
    return result


def clock_backwards(folder: Path) -> Count:
    """The clock of the day jumps to and fro at every step, and so do the times of all files."""
    expected = undisturbed(folder, "1d", 2)
    result = Count("same records; checkpoints chosen by step, leases by life")
    for seed in range(4):
        place = folder / str(seed)
        wanted = configs(place, "1d", 2)

        def unsteady(seed: int = seed, place: Path = place, wanted: list = wanted) -> None:
            real, turn = time.time, [0]

            def jump() -> None:
                turn[0] += 1
                then = real() + (-1) ** turn[0] * 86_400 * (seed + turn[0])
                time.time = lambda: then
                for path in place.rglob("*.*"):
                    os.utime(path, (then, then))
                if turn[0] == 5 + seed:
                    KILL()

            hook = Hook(0, KILL)
            hook.__class__ = type("Every", (Hook,), {"__call__": lambda self: jump()})
            hook.at_steps()
            train(place, wanted)

        first = child(unsteady)
        again = child(lambda place=place, wanted=wanted: train(place, wanted))
        missing = lost(expected, found(place, wanted))
        result.tried += 1
        result.lost += missing
        result.survived += (first, again, missing) == (-signal.SIGKILL, 0, 0)
    return result


DAMAGE = {
    "empty": lambda content, at: b"",
    "cut": lambda content, at: content[:at],
    "a bit": lambda content, at: content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :],
    "zeros": lambda content, at: bytes(len(content)),
    "longer": lambda content, at: content + b"}",
    "deep": lambda content, at: b"[" * 100_000,
}
KINDS = (("1d, every phase", 2), ("cora", 3), ("kernel", 3), ("ste", 2), ("l0", 2), ("awnn", 2), ("decay", 1))


def killed_and_damaged(folder: Path, count: int) -> Count:
    """Kill at a random step; damage a random file that is left (two of three times) or change the code (the third)."""
    result = Count("resumed or trained anew; record and curves bit-equal, nothing left behind")
    random = np.random.default_rng(count)
    for kind, seeds in KINDS:
        tries = [n for n in range(count) if n % len(KINDS) == KINDS.index((kind, seeds))]
        if not tries:
            continue
        own = folder / str(KINDS.index((kind, seeds)))
        total = faulty.events(own / "counting", configs(own / "counting", kind, seeds), writes=False)
        expected = undisturbed(own, kind, seeds)
        for number in tries:
            place, at = own / str(number), int(random.integers(1, total + 1))
            wanted = configs(place, kind, seeds)

            def dies(at: int = at, place: Path = place, wanted: list = wanted) -> None:
                Hook(at, KILL).at_steps()
                train(place, wanted)

            def resumes(other: bool, place: Path = place, wanted: list = wanted) -> None:
                if other:
                    provenance._sources = lambda: "other sources"  # type: ignore[assignment]
                train(place, wanted)

            first = child(dies)
            left = [p for p in sorted(place.rglob("*")) if p.is_file() and p.suffix in (".json", ".safetensors")]
            how = "the code" if number // len(KINDS) % 3 == 2 or not left else str(random.choice(list(DAMAGE)))
            harmed = None
            if how != "the code":
                harmed = left[random.integers(len(left))]
                content = harmed.read_bytes()
                harmed.write_bytes(DAMAGE[how](content, int(random.integers(len(content)))))
            again = child(lambda how=how, resumes=resumes: resumes(how == "the code"), place / "log")
            missing, remains = lost(expected, found(place, wanted)), faulty.left(place)
            result.tried += 1
            result.lost += missing
            good = (first, again, missing, remains) == (-signal.SIGKILL, 0, 0, [])
            result.survived += good
            if not good:
                print(
                    f"{kind} at {at} of {total}, {how} {harmed}: {first}, {again}, {missing}, {remains}",
                    file=sys.stderr,
                )
    return result
