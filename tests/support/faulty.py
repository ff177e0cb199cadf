"""Child processes that are killed, starved and misled at chosen moments, for tests/support/faults.py.

Children are forked from a process that has imported torch and never used it, so that each costs milliseconds, and
everything in them is real: their own process number, their own signals, SIGKILL without a chance to tidy up.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from record_samples import untimed

from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.config.schema import Config
from experiments.runs import launch, outcome, places
from experiments.store.records import Store
from ngn.train import interrupt

Outcomes = list[outcome.Outcome]
KINDS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "1d": ({"task": "regression1d"}, {"engine": "torch", "phases": ["grown"]}),
    "1d, every phase": (
        {"task": "regression1d"},
        {"engine": "torch", "phases": ["grown", "fixed", "from_high"], "continue_with": [0.1, 10.0]},
    ),
    "kernel": ({"task": "regression1d"}, {"engine": "auto", "phases": ["grown", "from_high"], "train.steps": 1000}),
    "cora": ({"task": "cora"}, {"phases": ["grown", "fixed"]}),
    **{
        name: ({"task": "regression1d", "method": name}, {"engine": "torch", "phases": ["grown"], "gate.K": 20})
        for name in ("ste", "l0", "awnn", "decay")
    },
    "conv": ({"task": "mnist", "gate": "conv"}, {"phases": ["grown"], "gate.K": 2}),
}


def configs(folder: Path, kind: str = "1d", seeds: int = 1, **changes: Any) -> list[Config]:
    """Tiny runs that save a checkpoint after every step."""
    choices, own = KINDS[kind]
    overrides = {
        "results": str(folder / "results"),
        "progress": "never",
        "checkpoint_seconds": 1e-9,
        "train.steps": 12,
        "gate.K": 4,
        "threads": 1,
        **own,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    return [compose({"profile": "smoke", **choices}, {**overrides, "seed.value": s}) for s in range(seeds)]


def child(work: Callable[[], object], log: Path | None = None) -> int:
    """Run ``work`` in a forked process: its exit status, or minus the signal that ended it; 1 after an exception.

    All that it prints goes to ``log``.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if log is not None:
                out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(out, 1)
                os.dup2(out, 2)
            work()
            status = 0
        except interrupt.Interrupted as stopped:
            status = stopped.status
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return wait(pid)


def wait(pid: int) -> int:
    """Wait for a child; see :func:`child`."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def train(folder: Path, wanted: Sequence[Config]) -> Outcomes:
    """What ``run.py`` does with checked configurations, with everything below one folder."""
    places.SCRATCH = folder / "scratch"
    with interrupt.handled():
        return launch.launch(wanted)


class Hook:
    """Does something at the n-th of a kind of event: a step boundary, or a call that changes files."""

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.at, self.action, self.count = at, action, 0

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.action()

    def at_steps(self) -> Hook:
        """Count the looks at the signals, one per step."""
        real = interrupt.asked

        def asked() -> bool:
            self()
            return real()

        interrupt.asked = asked  # type: ignore[assignment]
        return self

    def at_writes(self, names: Sequence[str] = ("fsync", "replace", "link", "mkdir", "unlink", "rmdir")) -> Hook:
        """Count the system calls of a save, each twice: before it and after it."""
        for name in names:
            setattr(os, name, self._around(getattr(os, name)))
        return self

    def _around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            self()
            done = real(*arguments, **named)
            self()
            return done

        return called


def send(signum: int) -> Callable[[], None]:
    """Send this process a signal."""
    return lambda: os.kill(os.getpid(), signum)


KILL = send(signal.SIGKILL)


def events(folder: Path, wanted: Sequence[Config], writes: bool) -> int:
    """How many events of a kind an uninterrupted run has."""
    told = folder / "events"

    def count() -> None:
        hook = Hook(0, KILL)
        hook.at_writes() if writes else hook.at_steps()
        train(folder, wanted)
        told.write_text(str(hook.count))

    status = child(count)
    if status:
        raise RuntimeError(f"counting events: status {status}")
    return int(told.read_text())


def found(folder: Path, wanted: Sequence[Config]) -> dict[str, Any]:
    """Run id → everything in the record and the curves that is a result, of those runs that have a record."""
    return recorded(folder / "results", [run_id(config) for config in wanted])


def recorded(root: Path, names: Sequence[str]) -> dict[str, Any]:
    """What :func:`found` gives, by run ids."""
    store = Store(root)
    kept: dict[str, Any] = {}
    for name in names:
        record = store.get(name)
        if record is None:
            continue
        curves = store.curves(name) or {}
        record.pop("time")
        record["execution"].pop("resumed")
        record["phases"] = untimed(record["phases"])
        kept[name] = (json.dumps(record, sort_keys=True), {n: (v.dtype.str, v.tobytes()) for n, v in curves.items()})
    return kept


def in_any_stack(kept: dict[str, Any]) -> dict[str, Any]:
    """What :func:`found` gave, without the size of the stack: runs may be taken over a few at a time."""
    records = {name: (json.loads(text), curves) for name, (text, curves) in kept.items()}
    for record, _ in records.values():
        del record["execution"]["replicas"]
    return records


def lost(expected: dict[str, Any], got: dict[str, Any]) -> int:
    """Runs without a record, or with another one than the undisturbed run's."""
    return sum(got.get(name) != value for name, value in expected.items())


def left(folder: Path) -> list[Path]:
    """Checkpoints, leases and half-written files that nobody needs any more."""
    return [p for p in folder.rglob("*") if p.name.endswith((".part", ".lease", ".safetensors", "finished.json"))]


def moments(total: int, count: int, seed: int) -> list[int]:
    """``count`` different moments among ``total`` events, from a seed."""
    return sorted(np.random.default_rng(seed).choice(total, size=min(count, total), replace=False) + 1)


@dataclass
class Count:
    """Of one kind of fault.

    Attributes:
        tried: faults injected.
        survived: after how many everything went on as it should, in the words of ``means``.
        lost: results that are missing, or differ by a bit from the undisturbed ones, after the same command was given
            again (wall times aside).
    """

    means: str
    tried: int = 0
    survived: int = 0
    lost: int = 0

    def add(self, missing: int, good: bool, told: str, faults: int = 1) -> None:
        """Count a fault, or several before one command; where not all went on as it should, print ``told``."""
        self.tried += faults
        self.lost += missing
        self.survived += faults if good else 0
        if not good:
            print(told, file=sys.stderr)


def undisturbed(folder: Path, kind: str, seeds: int, **changes: object) -> dict[str, object]:
    calm = folder / "calm"
    status = child(lambda: train(calm, configs(calm, kind, seeds, **changes)))
    if status:
        raise RuntimeError(f"the undisturbed run ended with status {status}")
    return found(calm, configs(calm, kind, seeds, **changes))
