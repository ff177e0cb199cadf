"""Child processes that are killed or disturbed at chosen moments, for tests/support/faults.py.

Children are forked from a process that has imported torch but never used it, so each costs milliseconds. Everything in
them is real: their own process id and signals, and SIGKILL without any clean-up.
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

from experiments.config import run_files
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.core import interrupt
from experiments.core.config import Config
from experiments.runs import launch, outcome
from experiments.store.records import Store

Outcomes = list[outcome.RunOutcome]
LEARNERS = ("ste", "l0", "awnn", "decay")
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
        for name in LEARNERS
    },
    "conv": ({"task": "mnist", "gate": "conv"}, {"phases": ["grown"], "gate.K": 2}),
}


def configs(folder: Path, kind: str = "1d", seeds: int = 1, **changes: Any) -> list[Config]:
    """Make tiny runs that save a checkpoint after every step."""
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
    """Run ``work`` in a forked process; return its exit status (1 after an exception) or minus its signal.

    Its output goes to ``log``.
    """
    return wait(start(work, log))


def start(work: Callable[[], object], log: Path | None = None) -> int:
    """Start ``work`` in a forked process; return its process id. See :func:`child`."""
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
    return pid


def wait(pid: int) -> int:
    """Wait for a child; see :func:`child`."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def train(folder: Path, wanted: Sequence[Config]) -> Outcomes:
    """Do what ``run.py`` does with checked configurations, with all files below one folder."""
    run_files.SCRATCH = folder / "scratch"
    with interrupt.handled():
        return launch.launch(wanted)


class Hook:
    """Act at the n-th event of a kind: a step boundary, or a call that changes files."""

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.at, self.action, self.count = at, action, 0

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.action()

    def at_steps(self) -> Hook:
        """Count the signal checks, one per step."""
        real = interrupt.requested

        def asked() -> bool:
            self()
            return real()

        interrupt.requested = asked  # type: ignore[assignment]
        return self

    def at_writes(self, names: Sequence[str] = ("fsync", "replace", "link", "mkdir", "unlink", "rmdir")) -> Hook:
        """Count the system calls of a save, each twice: before and after it."""
        for name in names:
            setattr(os, name, self._around(getattr(os, name)))
        return self

    def at_calls(self) -> Hook:
        """Count the calls of functions in C, each twice: any moment of the main thread."""
        sys.setprofile(lambda frame, event, _: self() if event.startswith("c_") else None)
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
    """Count the events of a kind in an uninterrupted run."""
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
    """Map the ids of recorded runs to the results in their records and curves."""
    return recorded(folder / "results", [run_id(config) for config in wanted])


def recorded(root: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the results of :func:`found` for these run ids."""
    store = Store(root)
    kept: dict[str, Any] = {}
    for name in names:
        record = store.get(name)
        if record is None:
            continue
        curves = store.curves(name) or {}
        del record["time"], record["sha256"]
        record["execution"].pop("resumed")
        record["phases"] = untimed(record["phases"])
        models = sorted(store.path(name).parent.glob(f"{name}.*.safetensors"))
        kept[name] = (
            json.dumps(record, sort_keys=True),
            {n: (v.dtype.str, v.tobytes()) for n, v in curves.items()}
            | {model.name: ("model", model.read_bytes()) for model in models if model.is_file()},
        )
    return kept


def in_any_stack(kept: dict[str, Any]) -> dict[str, Any]:
    """Drop the stack size from results of :func:`found`: runs may be taken over in smaller stacks."""
    records = {name: (json.loads(text), curves) for name, (text, curves) in kept.items()}
    for record, _ in records.values():
        del record["execution"]["replicas"]
    return records


def lost(expected: dict[str, Any], got: dict[str, Any]) -> int:
    """Return runs without a record, or with another record than the undisturbed run."""
    return sum(got.get(name) != value for name, value in expected.items())


def left(folder: Path) -> list[Path]:
    """Return checkpoints, leases and partial files that are left over; models beside records are kept."""
    ends = (".part", ".lease", ".safetensors", "finished.json")
    names = [p for p in folder.rglob("*") if p.name.endswith(ends)]
    return [p for p in names if not (p.suffix == ".safetensors" and p.parent.parent.name == "results")]


def moments(total: int, count: int, seed: int) -> list[int]:
    """Draw ``count`` different moments among ``total`` events, from a seed."""
    return sorted(np.random.default_rng(seed).choice(total, size=min(count, total), replace=False) + 1)


@dataclass
class Count:
    """Counts for one kind of fault.

    Attributes:
        tried: faults injected.
        survived: faults after which everything continued as ``means`` says.
        lost: results that are missing or not bit-equal after the command was repeated, except wall times.
    """

    means: str
    tried: int = 0
    survived: int = 0
    lost: int = 0

    def add(self, missing: int, good: bool, told: str, faults: int = 1) -> None:
        """Count a fault, or several before one command; print ``told`` if one was not survived."""
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
