"""Kill any program at any moment (a write, a step, a call in C), give its command again, and compare what it wrote."""

from __future__ import annotations

import resource
import shutil
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import faulty
import numpy as np
import torch
from faulty import KILL, Count, Hook, child, configs, train
from torch import nn

import ngn
from experiments.cli import app
from experiments.config import identity
from experiments.config.identity import run_id
from experiments.core import paths
from experiments.runs.phases import fixed_configuration
from experiments.tasks.language.export import check_sums, new_folder
from ngn.tensor_files import write_checked

UNCOMPARED = "checkpoints"
"""Folder whose files hold times, so that only their names are compared."""
KINDS = ("writes", "calls", "halves")
"""Where a program is killed: at system calls of writing, at any call in C, inside of a write."""


def _files(place):
    """Map all files and folders below a folder to their content."""
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() and UNCOMPARED not in path.parts else b""
        for path in sorted(place.rglob("*"))
    }


@dataclass(frozen=True)
class Program:
    """What is killed.

    Attributes:
        work: does it, in a folder.
        ready: makes the files before it.
        again: does it again after a kill, of which it gets the number; None for ``work``.
        read: returns what is compared, all files by default. After a kill each must be the old or the new one, whole.
        kinds: of :data:`KINDS` or "steps".
    """

    name: str
    work: Callable[[Path], object]
    ready: Callable[[Path], object] = lambda place: None
    again: Callable[[Path, int], object] | None = None
    read: Callable[[Path], dict[str, Any]] = _files
    kinds: Sequence[str] = KINDS[:2]


def done(work, log):
    if status := child(work, log):
        raise RuntimeError(f"an undisturbed command ended with status {status}\n{log.read_text()}")


def _differ(one, other):
    return [name for name in sorted({**one, **other}) if one.get(name) != other.get(name)]


def kill_anywhere(folder, count, programs, means):
    """Kill each program in turn, as often as ``count`` says in all, at moments of each of its kinds."""
    result, random, log, told = Count(means), np.random.default_rng(count), folder / "log", folder / "events"
    for index, program in enumerate(programs[:count]):
        place, sound = folder / f"{index}" / "place", folder / f"{index}" / "sound"
        place.mkdir(parents=True)
        done(partial(program.ready, place), log)
        shutil.copytree(place, sound)
        before = program.read(place)

        def restore(place=place, sound=sound):
            shutil.rmtree(place)
            shutil.copytree(sound, place)

        def hooked(kind, at, program=program, place=place):
            hook = Hook(at, KILL, kind)
            if kind == "halves" and at:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # a write beyond this size kills, and leaves a part
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                resource.setrlimit(resource.RLIMIT_FSIZE, (at, resource.RLIM_INFINITY))
            try:
                program.work(place)
            finally:
                if not at:
                    told.write_text(str(hook.count))

        totals, calm = {}, {}
        for kind in program.kinds:
            restore()
            done(partial(hooked, kind, 0), log)
            sizes = [path.stat().st_size for path in place.rglob("*") if path.is_file()]
            totals[kind] = max(sizes) if kind == "halves" else int(told.read_text())
            if calm and program.read(place) != calm:
                raise RuntimeError(f"{program.name} writes other bytes each time: {_differ(calm, program.read(place))}")
            calm = program.read(place)
        again = program.again or (lambda place, number, program=program: program.work(place))
        for number in range(index, count, len(programs)):
            kind = program.kinds[number // len(programs) % len(program.kinds)]
            at = int(random.integers(1, totals[kind] + 1))
            restore()
            log.write_text("")
            if (first := child(partial(hooked, kind, at), log)) == 0:
                continue  # it ended before: the number of calls depends on the machine
            there = program.read(place)
            torn = [name for name in before if name in calm and name not in there]
            torn += [n for n, content in there.items() if n in calm and content not in (before.get(n), calm[n])]
            second = child(partial(again, place, number), log)
            wrong = _differ(calm, program.read(place))
            killed = -(signal.SIGXFSZ if kind == "halves" else signal.SIGKILL)
            said = f"{program.name} at {kind} {at} of {totals[kind]}: {first}, torn {torn}, {second}, wrong {wrong}"
            good = (first, torn, second, wrong) == (killed, [], 0, [])
            result.add(len(torn) + len(wrong), good, f"{said}\n{log.read_text()}")
    return result


def _recorded(place):
    return faulty.found(place) | {str(path): "is left" for path in faulty.left(place)}


def runs(kind, seeds, kinds=("writes", "steps", "halves"), **own):
    """A training of these runs: its records, curves and models are compared, and nothing else may be left."""

    def work(place):
        train(place, configs(place, kind, seeds, **own))

    return Program(f"{kind} x{seeds}", work, read=_recorded, kinds=kinds)


def _command(place):
    """Do what ``run.py`` does from its first line on, with Hydra."""
    words = "task=regression1d profile=smoke engine=torch phases=[grown,from_high] train.steps=12 gate.K=4 seed=0..2"
    identity.SCRATCH = paths.SCRATCH = place / "scratch"
    more = [f"results={place / 'results'}", "checkpoint_seconds=1e-9", "progress=never", "threads=1"]
    raise SystemExit(app.main([*words.split(), *more]))


def kill_runs(folder, count):
    """Kill trainings of every kind."""
    programs = [
        Program("run.py", _command, read=_recorded),
        *(runs("1d, every phase", 1), runs("cora", 3), runs("kernel", 3, ("writes", "steps"))),
        *(runs("1d", 2, save="deployed"), *(runs(name, 2) for name in faulty.LEARNERS)),
    ]
    means = "the same command resumed; records, curves and models bit-equal, nothing left behind"
    return kill_anywhere(folder, count, programs, means)


def kill_and_ask_otherwise(folder, count):
    """Kill anywhere; then run another command first, a member's ``method=fixed`` run, or the runs with force."""
    own = {"phases": ["grown", "fixed"]}
    plain, forced = (runs("1d", 3, ("writes",), **own, **more) for more in ({}, {"force": True}))

    def member_first(place, number):
        member = configs(place, "1d", 3, **own)[number // 3 % 3]
        train(place, [fixed_configuration(member, 1 + number % 3)])
        plain.work(place)

    def present(place):
        """Map names alone, as the runs that are left form other stacks, with other last bits."""
        wanted = {run_id(config) for config in configs(place, "1d", 3, **own)}
        return {name: True for name in _recorded(place) if name in wanted or Path(name).is_absolute()}

    programs = [
        replace(plain, name="a member's fixed model first", again=member_first, read=present),
        replace(forced, name="forced"),
        replace(forced, name="forced, over records", ready=plain.work),
    ]
    means = "every run has its record, that of the undisturbed run where its stack was the same; nothing left"
    return kill_anywhere(folder, count, programs, means)


def net(value):
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    nn.init.constant_(model[0].weight, value)
    return model


def export(place):
    """Write a small export, whose folder is whole or absent. One that is there is checked and written again."""
    if (place / "out").exists():
        check_sums(place / "out")
        shutil.rmtree(place / "out")
    with new_folder(place / "out") as out:
        write_checked(out / "weights.safetensors", {"a": torch.arange(9.0)}, {"format": "pt"})
        (out / "config.json").write_text('{"r": 3}')
        (out / "inner").mkdir()
        (out / "inner" / "x.json").write_text("{}")


def _fit(place, budget, batches, **settings):
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.linspace(-2, 2, 64).unsqueeze(-1)
    limits = {"budget": ngn.Budget(parameters=80)} if budget else {"lambda0": 1.0}
    learner = ngn.learn_sizes(model, {"0": ngn.Width(12), "3": ngn.Width(8)}, example=x, **limits)
    pairs = [(x[n::4], x[n::4].sin()) for n in range(4)]
    inputs, targets = (pairs, None) if batches else (x, x.sin())
    plan = ngn.TrainPlan(steps=16, optimizer="adamw")
    settings |= {"folder": place / UNCOMPARED, "checkpoint_seconds": 1e-9, "progress": "never"}
    ngn.fit(learner, inputs, targets, nn.functional.mse_loss, plan, **settings)
    ngn.save(learner.deploy(), place / "model")


def kill_library(folder, count):
    """Kill ``ngn.save``, ``ngn.fit`` with checkpoints, and an export."""
    programs = [
        Program("save", lambda place: ngn.save(net(2.0), place / "small"), lambda p: ngn.save(net(1.0), p / "small")),
        Program("export", export),
        Program("fit", partial(_fit, budget=False, batches=False)),
        Program("fit, budget, batches", partial(_fit, budget=True, batches=True)),
        Program("fit, by importance", partial(_fit, budget=False, batches=True, by_importance="taylor")),
    ]
    return kill_anywhere(folder, count, programs, "every file the old or the new one, whole; the next call wrote it")
