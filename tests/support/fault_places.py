"""Faults around a training: the disk, other processes, the clock. ``tests/support/faults.py`` runs them."""

from __future__ import annotations

import ctypes
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
import page_samples
from faulty import KILL, Count, Hook, child, configs, found, in_any_stack, lost, train, undisturbed
from waiting import until

from experiments.config import run_files
from experiments.core import paths
from experiments.runs import sharing
from experiments.runs.phases import fixed_configuration
from experiments.runs.training import StorageError
from experiments.store.records import Store


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


def read_only_results(folder: Path) -> Count:
    """Make the folder of records unwritable, before the run (an immediate error) or from its middle on."""
    expected = undisturbed(folder, "1d", 2)
    result = Count("refused before training, or kept the training; went on when it was writable")
    for when in ("before", "middle"):
        place = folder / when
        wanted = configs(place, "1d", 2)
        place.mkdir()
        # a file in place of a folder also stops root, whom permissions do not
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
        reason = "Nothing was started" if when == "before" else "cannot be written"
        clear = reason in told and bool(trained) == (when == "middle")
        good = (status, again, missing) == (1, 0, 0) and clear
        result.add(missing, good, f"{when}: {status}, {again}, {missing}\n{told}")
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


def one_run_many_processes(folder: Path) -> Count:
    """Start sixteen processes on the same run at once: one trains it, and one record results."""
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
        trained, present = len(list(place.glob("complete-*"))), len(list(place.glob("present-*")))
        good = (set(statuses), trained, present, missing) == ({0}, 1, 15, 0) and not faulty.left(place)
        result.add(missing, good, f"{attempt}: {statuses}, {trained}, {present}, {missing}")
    return result


def killed_and_asked_otherwise(folder: Path, count: int) -> Count:
    """Kill anywhere; then run another command first: a member's ``method=fixed`` run, or the runs with force."""
    result = Count("every run has its record, that of the undisturbed run where its stack was the same; nothing left")
    kind, seeds, own = "1d", 3, {"phases": ["grown", "fixed"]}
    expected = undisturbed(folder, kind, seeds, **own)
    total = faulty.events(folder / "counting", configs(folder / "counting", kind, seeds, **own), writes=True)
    for number, at in enumerate(faulty.moments(total, count, seed=total)):
        place, forced = folder / str(number), bool(number % 2)
        wanted = configs(place, kind, seeds, **own)
        by_force = configs(place, kind, seeds, **own, force=True)

        def dies(place: Path = place, at: int = at, asked: list = by_force if forced else wanted) -> None:
            Hook(at, KILL).at_writes()
            train(place, asked)

        if forced and number % 4 == 1:  # the records exist, and must exist at every moment
            child(lambda place=place, wanted=wanted: train(place, wanted))
        before = len(found(place, wanted))
        first = child(dies)
        kept = len(found(place, wanted)) >= before
        if forced:
            again = child(lambda place=place, by_force=by_force: train(place, by_force))
            missing = lost(expected, found(place, wanted))
        else:
            alone = [fixed_configuration(wanted[number // 2 % seeds], 1 + number % 3)]
            other = child(lambda place=place, alone=alone: train(place, alone))
            again = child(lambda place=place, wanted=wanted: train(place, wanted)) or other
            missing = seeds - len(found(place, wanted))
        remains = faulty.left(place)
        good = (first, again, missing, remains, kept) == (-signal.SIGKILL, 0, 0, [], True)
        told = f"{at} of {total}, force {forced}: {first}, {again}, {missing}, {remains}, {kept}"
        result.add(missing, good, told)
    return result


TINY = "task=regression1d profile=smoke engine=torch phases=[grown] train.steps=12 gate.K=4 threads=1"
MOUNTS = ((b"none", b"/", 1 << 14 | 1 << 18), (None, None, 1 << 12), (None, None, 1 << 12 | 1 << 5 | 1))
"""Keep mounts private to this process; mount a folder on itself; make that mount read-only."""
UNABLE = 77


def _mount_read_only(place: Path) -> None:
    """Make a folder read-only for this process and its children; end with :data:`UNABLE` where that is forbidden."""
    libc, there = ctypes.CDLL(None, use_errno=True), os.fsencode(place)
    if libc.unshare(0x20000 | (0 if os.geteuid() == 0 else 0x10000000)):
        raise SystemExit(UNABLE)
    for source, target, flags in MOUNTS:
        if libc.mount(source or there, target or there, None, ctypes.c_ulong(flags), None):
            raise SystemExit(UNABLE)


def read_only_mount(folder: Path) -> Count:
    """Run every command with its folders on a read-only mount: readers read, writers say one thing and leave."""
    from experiments.cli import app
    from experiments.cli.pipes import exit_with
    from scripts import build_figures, build_paper_data, build_report, fetch_data, sweep, table

    result = Count("what only reads did, what writes named the folder in a message and left; no traceback")
    place, log = folder / "place", folder / "log"
    store = Store(place / "results")
    page_samples.fill(store)
    for path in store.root.rglob("*<*"):
        path.unlink()
    (out := folder / "out").mkdir()
    records = f"--results={store.root}"
    run, data = [*TINY.split(), "progress=never"], [f"--data-root={place / 'data'}"]
    commands: list[tuple[Callable[[list[str]], int], list[str], int]] = [
        (app.main, [*run, f"results={store.root}"], 1),
        (app.main, [*run, f"results={out}", "checkpoint_seconds=1e-9"], 1),
        (table.main, [str(store.root)], 0),
        *((sweep.main, [word, "smoke", records], 1) for word in ("plan", "run", "status")),
        (sweep.main, ["run", "smoke", f"--results={out}", "--dry-run"], 0),
        (build_paper_data.main, [records, "--table=dataeightbody"], 0),
        (build_paper_data.main, [records, f"--output={place / 'data.tex'}"], 1),
        (build_paper_data.main, [records, f"--output={out / 'data.tex'}"], 0),
        (build_figures.main, [records, f"--output={place / 'figures'}", "--only", "figure1", "figure2"], 1),
        (build_figures.main, [records, f"--output={out / 'figures'}", "--only", "figure1"], 0),
        (build_report.main, [records, f"--output={place / 'paper'}"], 1),
        (fetch_data.main, ["mnist", *data], 1),
    ]
    for main, words, expected in commands:

        def program(main: Callable[[list[str]], int] = main, words: list[str] = words) -> None:
            _mount_read_only(place)
            run_files.SCRATCH = paths.SCRATCH = place if f"results={out}" in words else out
            exit_with(lambda: main(words))

        log.write_text("")
        status, said = child(program, log), log.read_text()
        if status == UNABLE:
            print("this machine allows no mounts of one's own: nothing was tried", file=sys.stderr)
            return result
        # 1, or 2 if a program refuses before it does anything
        good = status in ((expected, 2) if expected else (0,)) and "Traceback" not in said
        good = good and (not expected or "status" in words or str(place) in said)
        result.add(0, good, f"{main.__module__} {' '.join(words)}: {status}, not {expected}\n{said}")
    return result
