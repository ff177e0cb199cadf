"""Two sweeps of one plan, beside a script that builds tables; one sweep is killed. ``faults.py`` runs this."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from faulty import Count
from sweep_samples import frozen
from waiting import until

from experiments.paths import ROOT
from experiments.store.records import Store

RUNS = 12


def _start(words: list[str], place: Path, name: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "NGN_OUTPUT": str(place / "output")}
    with (place / f"{name}.log").open("ab") as log:
        line = [sys.executable, *words]
        return subprocess.Popen(line, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a sweep and its workers, which have sessions of their own."""
    children = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
    listed = subprocess.run(children, capture_output=True, text=True, check=False)
    for pid in (process.pid, *map(int, listed.stdout.split())):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def two_sweeps(folder: Path, count: int) -> Count:
    """Kill one of two sweeps at a random number of records, while tables are built from the same folder."""
    result = Count("every run recorded once, tables built throughout, no traceback, nothing left behind")
    random = np.random.default_rng(count)
    for number in range(count):
        place, wanted = folder / str(number), int(random.integers(1, RUNS))
        place.mkdir()
        plan = frozen(place, RUNS)
        store = Store(plan.results)
        sweep = ["scripts/sweep.py", "run", "smoke", f"--plan={plan.path}", f"--results={plan.results}", "workers=1"]
        paper = ["scripts/build_paper_data.py", f"--results={plan.results}", f"--output={place / 'data.tex'}"]
        first, second = (_start(sweep, place, f"sweep-{n}") for n in range(2))
        tables = _start(paper, place, "tables")
        until(lambda store=store, wanted=wanted: len(store.paths()) >= wanted, f"{wanted} records")
        _kill(first)
        ended = [second.wait(), _start(sweep, place, "again").wait()]
        ended += [tables.wait(), _start(paper, place, "tables").wait()]
        missing = RUNS - sum(store.get(path.stem) is not None for path in store.paths())
        said = "".join(log.read_text() for log in place.glob("*.log"))
        remains = [path for path in plan.results.rglob("*") if path.suffix in (".part", ".lease")]
        good = (ended, missing, remains, "Traceback" in said) == ([0, 0, 0, 0], 0, [], False)
        result.add(missing, good, f"{number} at {wanted} records: {ended}, {missing}, {remains}\n{said}")
    return result
