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
from experiments.runs.errors import StorageError
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
        (build_figures.main, [records, f"--output={place / 'figures'}", "--only", "figure1", "figure2", "--jobs=2"], 1),
        (build_figures.main, [records, f"--output={out / 'figures'}", "--only", "figure1", "--jobs=1"], 0),
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
