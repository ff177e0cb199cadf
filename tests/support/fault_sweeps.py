"""Sweeps that are killed, alone or two at once, and two hosts on one folder of records. ``faults.py`` runs these."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faulty
import numpy as np
import program_server
import programs
import typed_python
from faulty import KILL, Count, Hook, configs, found, in_any_stack, lost, train, undisturbed
from sweep_samples import frozen
from waiting import until

from experiments.paths import ROOT
from experiments.runs import sharing
from experiments.store.records import Store
from experiments.sweeps import local
from ngn import files

RUNS = 12
TASKS = 4
WORKER = """
import os, runpy, sys
sys.path[:0] = {paths}
import faulty
os.close(os.open(f"{place}/pids/{{os.getpid()}}", os.O_CREAT))
try:
    os.close(os.open("{place}/first", os.O_CREAT | os.O_EXCL))
    {hook}
except FileExistsError:
    pass
runpy.run_module("experiments.sweeps.worker", run_name="__main__")
"""
"""A worker. The first one of a sweep is killed at some event."""


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


def kill_workers(folder: Path, count: int) -> Count:
    """Kill a worker or the supervisor of a sweep with two workers.

    The workers of a killed supervisor are still training when the same command starts again.
    """
    from scripts import sweep

    result = Count("the same command completed the sweep; every run recorded once, same bytes, nothing left behind")
    random, server = np.random.default_rng(count), programs.server()
    program_server_file = Path(program_server.__file__).parent

    def run(place: Path, plan: local.plans.Plan, hook: str, at: int) -> None:
        script = place / "worker.py"
        paths = [str(program_server_file), str(ROOT)]
        script.write_text(WORKER.format(paths=paths, place=place, hook=hook))
        os.environ |= {"NGN_OUTPUT": str(place / "output"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-IS", typed_python.__file__, server, str(script)]
        local.Supervisor.__init__.__defaults__ = (command, *local.Supervisor.__init__.__defaults__[1:])  # type: ignore
        supervisor_hook = Hook(at, KILL)
        real = local.Supervisor._give

        def gives(self: local.Supervisor, worker: local._Worker) -> None:
            supervisor_hook()
            real(self, worker)
            supervisor_hook()

        local.Supervisor._give = gives  # type: ignore[method-assign]
        words = ["run", "smoke", f"--plan={plan.path}", f"--results={plan.results}", "workers=2"]
        raise SystemExit(sweep.main(words))

    expected: dict[str, object] = {}
    for number in range(-1, count):  # the first is undisturbed
        place, of_worker = folder / str(number), number % 2 == 0
        (place / "pids").mkdir(parents=True)
        plan = frozen(place, TASKS, **{"train.steps": 12, "checkpoint_seconds": 1e-9, "engine": "torch"})
        kind, events = (("steps", 12), ("writes", 60))[number // 2 % 2]  # of a worker's first task
        at = int(random.integers(1, 1 + (events if of_worker else 2 * TASKS)))
        hook = f"faulty.Hook({at}, faulty.KILL).at_{kind}()" if of_worker and number >= 0 else "pass"
        dies = 0 if of_worker or number < 0 else at
        first = faulty.child(partial(run, place, plan, hook, dies), place / "log")
        (place / "first").touch()
        again = faulty.child(partial(run, place, plan, "pass", 0), place / "log")
        for pid in (place / "pids").iterdir():
            until(lambda pid=pid: files.start_tick(int(pid.name)) is None, f"the end of worker {pid.name}")
        names = [path.stem for path in Store(plan.results).paths()]
        got = faulty.recorded(plan.results, names)
        if number < 0:
            expected = got
            if (first, again, len(got)) != (0, 0, TASKS):
                raise RuntimeError(f"an undisturbed sweep: {first}, {again}\n{(place / 'log').read_text()}")
            continue
        missing, remains = lost(expected, got) + len(set(got) - set(expected)), faulty.left(place)
        good = (first, again, missing, remains) == (1 if of_worker else -signal.SIGKILL, 0, 0, [])
        told = f"{number}: {hook}, supervisor at {dies}: {first}, {again}, {missing}, {remains}"
        result.add(missing, good, f"{told}\n{(place / 'log').read_text()}")
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
