"""Kill the real program at any moment, and change its code between two commands; commands on a read-only mount.

Each process that is killed runs ``run.py`` of a clone of this checkout, from its first line on.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import page_samples
import programs
from faulty import Count, child, left, lost, recorded
from waiting import until

from experiments import paths
from experiments.paths import ROOT
from experiments.runs import run_files
from experiments.store.records import Store

COMMANDS = {
    "1d": "task=regression1d engine=torch train.steps=60 phases=[grown,fixed,from_high] seed=0..2",
    "cora": "task=cora train.steps=60 seed=0,1",
    "kernel": "task=regression1d train.steps=20000 seed=0,1",
    "ste": "task=regression1d method=ste engine=torch train.steps=400 gate.K=6 seed=0",
}
ATTEMPTS = 5
"""Killed attempts of one command, before it runs undisturbed."""
CHANGE = ('"/".join', '"|".join')
"""A change of ``ngn/streams.py`` that changes every random draw, and with it every number."""


class Program:
    """``run.py`` of a clone whose code can be changed and restored."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source = folder, folder / "ngn" / "streams.py"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        self.versions = (text := self.source.read_text()), text.replace(*CHANGE)
        if text == self.versions[1]:
            raise RuntimeError(f"{self.source} has no {CHANGE[0]}")

    def change(self, version: int) -> None:
        """Write the committed code (0) or the changed code (1)."""
        self.source.write_text(self.versions[version])

    def start(self, kind: str, place: Path) -> programs.Program:
        """Start a command that writes all its output to ``place``."""
        place.mkdir(parents=True, exist_ok=True)
        words = ["profile=smoke", *COMMANDS[kind].split(), "gate.K=4", "threads=1", "checkpoint_seconds=0.02"]
        words = [word for n, word in enumerate(words) if word.split("=")[0] not in {w.split("=")[0] for w in words[:n]}]
        words += [f"results={place}/results", "progress=never"]
        env = {**os.environ, "NGN_OUTPUT": str(place / "output"), "PYTHONPATH": str(self.folder)}
        # both versions of the changed file have one size, and may have one time: Python would take one for the other
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        log = place / "log"
        return programs.start(self.folder / "run.py", *words, cwd=place, env=env, out=log, err=log)

    def saved(self, place: Path) -> set[str]:
        """Return the checkpoints of all trainings."""
        checkpoints = place / "output" / "checkpoints"
        return {os.path.join(folder, name) for folder, _, names in os.walk(checkpoints) for name in names}

    def goes_on(self, process: programs.Program, place: Path, before: set[str]) -> bool:
        """Return whether a command has saved a checkpoint or ended."""
        return bool(self.saved(place) - before) or process.poll() is not None

    def undisturbed(self, kind: str, place: Path) -> tuple[dict[str, Any], float, float]:
        """Return the records of a command, and its seconds: in total, and after its first checkpoint.

        Raises:
            RuntimeError: if it failed.
        """
        began = time.monotonic()
        process = self.start(kind, place)
        until(lambda: self.goes_on(process, place, set()), "a checkpoint")
        trains = time.monotonic()
        if process.wait():
            raise RuntimeError((place / "log").read_text())
        return self.records(place), time.monotonic() - began, time.monotonic() - trains

    def records(self, place: Path) -> dict[str, Any]:
        """Return all records."""
        return recorded(place / "results", [path.stem for path in sorted((place / "results").glob("*/*.json"))])


def kill_commands(folder: Path, count: int) -> Count:
    """Kill ``count`` commands at random moments, uniform over the time of an undisturbed command.

    Four of five are killed while they train, which starts seconds after the process. In every other chain of attempts
    the code changes; then only the record of the last code may exist.
    """
    result = Count("the same command ended with the record of its own code, bit-equal; nothing left behind")
    program, random = Program(folder / "clone"), np.random.default_rng(count)
    kinds = list(COMMANDS)[: max(1, count // (2 * ATTEMPTS))]
    calm: dict[tuple[str, int], tuple[dict[str, Any], float, float]] = {}
    chain = 0
    while result.tried < count:
        kind, changes = kinds[chain // 2 % len(kinds)], chain % 2 == 0
        place, version = folder / f"chain-{chain}", 0
        for now in range(1 + changes):
            program.change(now)
            if (kind, now) not in calm:
                calm[kind, now] = program.undisturbed(kind, folder / f"{kind}-{now}")
        killed = 0
        for attempt in range(ATTEMPTS):
            version = int(random.integers(2)) if changes else 0
            program.change(version)
            _, lasts, trains = calm[kind, version]
            before, process = program.saved(place), program.start(kind, place)
            if attempt:
                until(functools.partial(program.goes_on, process, place, before), "a new checkpoint")
            if not process.ends_within(random.uniform(0.0, trains if attempt else lasts)):
                process.send_signal(signal.SIGKILL)
                killed += process.wait() == -signal.SIGKILL
            if program.records(place):
                break  # a record stays even if the code has changed since
        again = program.start(kind, place).wait()
        expected, got = calm[kind, version][0], program.records(place)
        missing, remains = lost(expected, got), left(place)
        good = (again, missing, remains) == (0, 0, [])
        result.add(missing, good, f"{place}: {again}, {missing}, {remains}\n{(place / 'log').read_text()}", killed)
        chain += 1
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
