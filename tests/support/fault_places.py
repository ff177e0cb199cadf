"""Faults around a training: signals, a replica, the disk, other processes. ``tests/support/faults.py`` runs them."""

import ctypes
import errno
import json
import os
import resource
import signal
import sys
from functools import partial
from itertools import product

import faulty
import numpy as np
import page_samples
from faulty import KILL, Count, Hook, Trial, child, found, left, lost, send, train
from waiting import until

from experiments.config import identity
from experiments.config.identity import run_id
from experiments.core import interrupt, paths
from experiments.runs import launch, phases
from experiments.store.records import Store


def signals(folder):
    """Send each signal at five steps: check the checkpoint's step, the exit status, and bit-equal results."""
    expected = Trial(folder / "calm").undisturbed()
    result = Count("saved at that very step, left with 128 + signal, resumed bit-equal")
    for signum, at in product(interrupt.SIGNALS, (1, 2, 6, 10, 11)):
        trial = Trial(folder / f"{signum}-{at}", checkpoint_seconds=1e9)
        status = trial.train(partial(Hook, at, send(signum)))
        saved = [path.stem for path in trial.place.rglob("step-*.json")]
        again, missing = trial.again(expected)
        good = (status, saved, again, missing) == (128 + signum, [f"step-{at:010d}"], 0, 0)
        result.add(missing, good, f"{signum} at {at}: {status}, {saved}, {again}, {missing}")
    return result


def _poison(victim):
    """Make the gradients of one replica NaN."""
    real = phases.learner_of

    def learner_of(*arguments, **named):
        learner = real(*arguments, **named)
        parameter = learner.body_parameters()[0]
        parameter.register_hook(lambda g: g.index_fill(0, g.new_tensor([victim]).long(), float("nan")))
        return learner

    phases.learner_of = learner_of


def nan_in_a_replica(folder):
    """Make one replica's gradients NaN at some step: it is recorded as diverged, the others unchanged."""
    expected = Trial(folder / "calm", seeds=4).undisturbed()
    result = Count("recorded as diverged without numbers, the others bit-equal")
    for victim in range(4):
        trial = Trial(folder / str(victim), seeds=4)
        status = trial.train(partial(_poison, victim))
        got, name = found(trial.place), run_id(trial.wanted[victim])
        told = json.loads(got[name][0])
        phase = told["phases"]["grown"]
        missing = lost({k: v for k, v in expected.items() if k != name}, got)
        as_diverged = told["status"] == "diverged" and not {"t", "soft", "truncated"} & set(phase)
        result.add(missing, (status, missing) == (0, 0) and as_diverged, f"{victim}: {status}, {missing}, {told}")
    return result


def _small_disk(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def disk_full(folder):
    """Limit the size of files, from a checkpoint's size to a note's, or fail the n-th flush for lack of space."""
    expected = Trial(folder / "calm").undisturbed()
    result = Count("stopped with a message that names the file, went on when there was room")
    limits = {f"limit {size}": partial(_small_disk, size) for size in (20_000, 8_000, 1_000, 500)}
    flushes = {f"flush {n}": partial(Hook, n, _full, "writes", ["fsync"]) for n in (2, 15, 60, 91)}
    for name, starve in (limits | flushes).items():
        trial = Trial(folder / name)
        status, told = trial.train(starve), trial.told()
        again, missing = trial.again(expected)
        good = (status, again, missing) == (1, 0, 0) and "StorageError" in told and "continues from them" in told
        result.add(missing, good, f"{name}: {status}, {again}, {missing}\n{told}")
    return result


def read_only_results(folder):
    """Make the folder of records unwritable, before the run (an immediate error) or from its middle on."""
    expected = Trial(folder / "calm").undisturbed()
    result = Count("refused before training, or kept the training; went on when it was writable")
    for when, reason in {"before": "Nothing was started", "middle": "cannot be written"}.items():
        trial = Trial(folder / when)
        results = trial.place / "results"
        # a file in place of a folder also stops root, whom permissions do not
        blocked = results if when == "before" else results / "regression1d"

        def block(blocked=blocked):
            blocked.write_text("")

        if when == "middle":
            results.mkdir()
        status, told = trial.train(block if when == "before" else partial(Hook, 6, block)), trial.told()
        trained = list(trial.place.rglob("finished.json"))
        blocked.unlink()
        again, missing = trial.again(expected)
        good = (status, again, missing) == (1, 0, 0) and reason in told and bool(trained) == (when == "middle")
        result.add(missing, good, f"{when}: {status}, {again}, {missing}\n{told}")
    return result


def two_hosts(folder, count):
    """Give two processes the same runs. The first is alive, killed, or suspended at a step; then it wakes or is killed.

    The second leaves a living or suspended one its runs, and waits for them. It trains those of a killed one at once.
    """
    expected = Trial(folder / "calm").undisturbed("replicas")
    result = Count("runs of a living or suspended one respected, of a killed one taken at once; same bytes")
    random = np.random.default_rng(count)
    for number in range(count):
        what = ("alive", "killed", "suspended, resumed", "suspended, killed")[number % 4]
        trial, at, shared = Trial(folder / str(number)), int(random.integers(1, 13)), number // 4 % 2 == 0
        place, log = trial.place, trial.log

        def host(name, at, act, trial=trial, shared=shared):
            launch.POLL = 0.02
            Hook(at, act)
            outcomes = train(trial.place if shared else trial.place / name, trial.wanted)
            (trial.place / f"{name}.told").write_text(" ".join(outcome.status for outcome in outcomes))

        acts = {"alive": (place / "goes").touch, "killed": KILL}
        one = faulty.start(partial(host, "one", at, acts.get(what, send(signal.SIGSTOP))), log)
        if what == "alive":
            until((place / "goes").exists, "a step")
        elif what != "killed":
            os.waitpid(one, os.WUNTRACED)
        else:
            faulty.wait(one)
        two = faulty.start(partial(host, "two", 0, KILL), log)
        if "suspended" in what:
            until(lambda log=log: "waiting for 2 runs" in log.read_text(), "that it waits")
            os.kill(one, signal.SIGCONT if "resumed" in what else signal.SIGKILL)
        ended = [faulty.wait(two), *([] if what == "killed" else [faulty.wait(one)])]
        told = (place / "two.told").read_text().split()
        killed = "killed" in what
        good = ended == [0, *({"suspended, killed": [-signal.SIGKILL], "killed": []}.get(what, [0]))]
        good = good and told == ["complete" if killed else "present"] * 2 and not list(place.rglob("*.lease"))
        missing = lost(expected, found(place, "replicas"))
        said = f"{number} {what} at {at}, shared {shared}: {ended}, {told}, {missing}, {left(place)}"
        result.add(missing, good and not missing, f"{said}\n{trial.told()}")
    return result


def one_run_many_processes(folder):
    """Start sixteen processes on the same run at once: one trains it, and one record results."""
    expected = Trial(folder / "calm", seeds=1).undisturbed()
    result = Count("one process trained, the others found its record")
    for attempt in range(3):
        trial = Trial(folder / str(attempt), seeds=1)
        place = trial.place

        def one(trial=trial, place=place):
            while not (place / "go").exists():
                os.sched_yield()
            (outcome,) = train(place, trial.wanted)
            (place / f"{outcome.status}-{os.getpid()}").touch()

        children = [faulty.start(one) for _ in range(16)]
        (place / "go").touch()
        statuses = {faulty.wait(pid) for pid in children}
        missing = lost(expected, found(place))
        trained, present = len(list(place.glob("complete-*"))), len(list(place.glob("present-*")))
        good = (statuses, trained, present, missing) == ({0}, 1, 15, 0) and not left(place)
        result.add(missing, good, f"{attempt}: {statuses}, {trained}, {present}, {missing}")
    return result


TINY = "task=regression1d profile=smoke engine=torch phases=[grown] train.steps=12 gate.K=4 threads=1 progress=never"
MOUNTS = ((b"none", b"/", 1 << 14 | 1 << 18), (None, None, 1 << 12), (None, None, 1 << 12 | 1 << 5 | 1))
"""Keep mounts private to this process; mount a folder on itself; make that mount read-only."""
UNABLE = 77


def _mount_read_only(place):
    """Make a folder read-only for this process and its children; end with :data:`UNABLE` where that is forbidden."""
    libc, there = ctypes.CDLL(None, use_errno=True), os.fsencode(place)
    if libc.unshare(0x20000 | (0 if os.geteuid() == 0 else 0x10000000)):
        raise SystemExit(UNABLE)
    for source, target, flags in MOUNTS:
        if libc.mount(source or there, target or there, None, ctypes.c_ulong(flags), None):
            raise SystemExit(UNABLE)


def read_only_mount(folder):
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
    commands = [
        (app.main, f"{TINY} results={store.root}", 1),
        (app.main, f"{TINY} results={out} checkpoint_seconds=1e-9", 1),
        (table.main, str(store.root), 0),
        *((sweep.main, f"{word} smoke {records}", 1) for word in ("plan", "run", "status")),
        (sweep.main, f"run smoke --results={out} --dry-run", 0),
        (build_paper_data.main, f"{records} --table=dataeightbody", 0),
        (build_paper_data.main, f"{records} --output={place / 'data.tex'}", 1),
        (build_paper_data.main, f"{records} --output={out / 'data.tex'}", 0),
        (build_figures.main, f"{records} --output={place / 'figures'} --only figure1 figure2", 1),
        (build_figures.main, f"{records} --output={out / 'figures'} --only figure1", 0),
        (build_report.main, f"{records} --output={place / 'paper'}", 1),
        (fetch_data.main, f"mnist --data-root={place / 'data'}", 1),
    ]
    for main, line, expected in commands:
        words = line.split()

        def program(main=main, words=words):
            _mount_read_only(place)
            identity.SCRATCH = paths.SCRATCH = place if f"results={out}" in words else out
            exit_with(lambda: main(words))

        log.write_text("")
        status, said = child(program, log), log.read_text()
        if status == UNABLE:
            print("this machine allows no mounts of one's own: nothing was tried", file=sys.stderr)
            return result
        # 1, or 2 if a program refuses before it does anything
        good = status in ((expected, 2) if expected else (0,)) and "Traceback" not in said
        good = good and (not expected or "status" in words or str(place) in said)
        result.add(0, good, f"{main.__module__} {line}: {status}, not {expected}\n{said}")
    return result
