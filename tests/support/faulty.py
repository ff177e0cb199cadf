"""Child processes, forked before torch is used, that are killed or disturbed at chosen moments, for faults.py."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from dataclasses import dataclass

from record_samples import untimed

from experiments.config import identity
from experiments.config.compose import compose
from experiments.core import interrupt, paths
from experiments.runs import launch
from experiments.runs.training import StorageError
from experiments.store.records import Store

LEARNERS = ("ste", "l0", "awnn", "decay")
ONE_D = {"task": "regression1d"}
KINDS = {
    "1d": (ONE_D, {"engine": "torch", "phases": ["grown"]}),
    "1d, every phase": (
        ONE_D, {"engine": "torch", "phases": ["grown", "fixed", "from_high"], "continue_with": [0.1, 10.0]},
    ),
    "kernel": (ONE_D, {"engine": "auto", "phases": ["grown", "from_high"], "train.steps": 1000}),
    "cora": ({"task": "cora"}, {"phases": ["grown", "fixed"]}),
    **{n: (ONE_D | {"method": n}, {"engine": "torch", "phases": ["grown"], "gate.K": 20}) for n in LEARNERS},
}  # fmt: skip
CALLS = ("fsync", "replace", "rename", "link", "mkdir", "unlink", "rmdir")
"""The system calls of a save."""


def configs(folder, kind="1d", seeds=1, **changes):
    """Make tiny runs that save a checkpoint after every step."""
    choices, own = KINDS[kind]
    usual = {"results": str(folder / "results"), "progress": "never", "checkpoint_seconds": 1e-9, "threads": 1}
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    overrides = {**usual, "train.steps": 12, "gate.K": 4, **own, **changed}
    return [compose({"profile": "smoke", **choices}, {**overrides, "seed.value": s}) for s in range(seeds)]


def child(work, log=None):
    """Run ``work`` in a forked process that writes to ``log``; return its status (1: an exception), or -signal."""
    return wait(start(work, log))


def start(work, log=None):
    """Start ``work`` in a forked process; return its process id. See :func:`child`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
            if log is not None:
                out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(out, 1)
                os.dup2(out, 2)
            work()
            status = 0
        except interrupt.Interrupted as stopped:
            status = stopped.status
        except StorageError as full:
            print("StorageError", str(full)[-250:], file=sys.stderr)  # short, because the log is a file too
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return pid


def wait(pid):
    """Wait for a child; see :func:`child`."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def train(folder, wanted):
    """Do what ``run.py`` does with checked configurations, with all files below one folder."""
    identity.SCRATCH = folder / "scratch"
    with interrupt.handled():
        return launch.launch(wanted)


class Hook:
    """Act at the n-th event of a kind: "steps", "writes" (before and after each), "calls" of functions in C."""

    def __init__(self, at, action, kind="steps", names=CALLS):
        self.at, self.action, self.count = at, action, 0
        if kind == "steps":
            interrupt.requested = self._around(interrupt.requested, after=False)
        for name in names if kind == "writes" else ():
            setattr(os, name, self._around(getattr(os, name)))
        if kind == "calls":
            sys.setprofile(lambda frame, event, _: self() if event.startswith("c_") else None)

    def __call__(self):
        self.count += 1
        if self.count == self.at:
            self.action()

    def _around(self, real, after=True):
        def called(*arguments, **named):
            self()
            done = real(*arguments, **named)
            if after:
                self()
            return done

        return called


def send(signum):
    """Send this process a signal."""
    return lambda: os.kill(os.getpid(), signum)


KILL = send(signal.SIGKILL)


def found(folder, *ignored):
    """Map run ids below a folder to results in records, curves and models; ``ignored``: keys of the execution."""
    store = Store(folder / "results")
    kept = {}
    for path in store.paths():
        record = store.get(name := path.stem)
        assert record is not None
        del record["time"], record["sha256"]
        for key in ("resumed", *ignored):
            del record["execution"][key]
        record["phases"] = untimed(record["phases"])
        models = {
            model.name: model.read_bytes() for model in path.parent.glob(f"{name}.*.safetensors") if model.is_file()
        }
        curves = {n: (v.dtype.str, v.tobytes()) for n, v in (store.curves(name) or {}).items()}
        kept[name] = json.dumps(record, sort_keys=True), curves | models
    return kept


def lost(expected, got):
    """Return runs without a record, or with another record than the undisturbed run."""
    return sum(got.get(name) != value for name, value in expected.items())


def left(folder):
    """Return checkpoints, leases and partial files that are left over; models beside records are kept."""
    ends = (".part", ".lease", ".safetensors", "finished.json")
    names = [p for p in folder.rglob("*") if p.name.endswith(ends)]
    return [p for p in names if not (p.suffix == ".safetensors" and p.parent.parent.name == "results")]


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

    def add(self, missing, good, told):
        """Count a fault; print ``told`` if it was not survived."""
        self.tried += 1
        self.lost += missing
        self.survived += good
        if not good:
            print(told, file=sys.stderr)


class Trial:
    """A training in a folder of its own, which is disturbed and then repeated. What it says goes to ``log``."""

    def __init__(self, place, kind="1d", seeds=2, **changes):
        place.mkdir(parents=True)
        self.place, self.log = place, place / "log"
        self.log.touch()
        self.wanted = configs(place, kind, seeds, **changes)

    def train(self, before=lambda: None):
        """Train in a child process, in which ``before`` is called first; return the status."""
        return child(lambda: (before(), train(self.place, self.wanted)), self.log)

    def program(self, main, *words):
        """Call the main function of a program in a child process; return the status."""

        def work():
            identity.SCRATCH = paths.SCRATCH = self.place / "scratch"
            print("$", *words, flush=True)
            raise SystemExit(main([*words]))

        return child(work, self.log)

    def told(self):
        """Return what was said since the last call."""
        text = self.log.read_text()
        self.log.write_text("")
        return text

    def undisturbed(self, *ignored):
        """Train once; return the results."""
        if status := self.train():
            raise RuntimeError(f"the undisturbed run ended with status {status}\n{self.told()}")
        return found(self.place, *ignored)

    def again(self, expected):
        """Train once more; return the status, and how many results are not the expected ones."""
        return self.train(), lost(expected, found(self.place))
