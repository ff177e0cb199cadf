"""Kill scripts and ``ngn.fit`` anywhere. ``tests/support/faults.py`` runs these."""

from __future__ import annotations

import hashlib
import shutil
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import data_samples
import numpy as np
import page_samples
import record_samples as samples
import torch
from data_server import CONTENT, origin_of, serving
from fault_exports import CALLS
from faulty import KILL, Count, Hook, child
from torch import nn

import ngn
from experiments import paths
from experiments.analysis.published import load_published
from experiments.cli import app
from experiments.data import DataInfo, cifar10, mnist, sets
from experiments.data.fetch import DataOrigin, Remote
from experiments.data.source import Folder
from experiments.runs import run_files
from experiments.store.records import Store
from experiments.studies.one_d import BASELINE

UNCOMPARED = "checkpoints"
"""Folder whose files hold times, so that only their names are compared."""


@dataclass(frozen=True)
class Command:
    """What is killed: ``ready`` makes the files before it in a folder, ``work`` does it, ``again`` does it again."""

    name: str
    work: Callable[[Path], object]
    ready: Callable[[Path], object] = lambda place: None
    again: Callable[[Path], object] | None = None


def _files(place: Path) -> dict[str, bytes]:
    """Map all files and folders below a folder to their content."""
    found = sorted(place.rglob("*"))
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() and UNCOMPARED not in path.parts else b""
        for path in found
    }


def _done(work: Callable[[], object], log: Path) -> None:
    if status := child(work, log):
        raise RuntimeError(f"an undisturbed command ended with status {status}\n{log.read_text()}")


def kill_anywhere(folder: Path, count: int, commands: Sequence[Command], result: Count) -> Count:
    """Kill each command in turn, half the times at a system call of writing, else at any call of a function in C.

    Every file is then the old or the new one, whole. After the same command again, all files are those of an
    undisturbed command, and there are no others.
    """
    random, log, told = np.random.default_rng(count), folder / "log", folder / "events"
    for index, command in enumerate(commands[:count]):
        place, sound = folder / f"{index}" / "place", folder / f"{index}" / "sound"
        place.mkdir(parents=True)
        _done(partial(command.ready, place), log)
        shutil.copytree(place, sound)
        before, totals, ends = _files(place), [], []

        def restore(place: Path = place, sound: Path = sound) -> None:
            shutil.rmtree(place)
            shutil.copytree(sound, place)

        def hooked(at: int, writes: bool, work: Callable[[Path], object] = command.work, place: Path = place) -> None:
            hook = Hook(at, KILL)
            hook.at_writes(CALLS) if writes else hook.at_calls()
            try:
                work(place)
            finally:
                if not at:
                    told.write_text(str(hook.count))

        for writes in (True, False):
            restore()
            _done(partial(hooked, 0, writes), log)
            totals.append(int(told.read_text()))
            ends.append(_files(place))
        calm = ends[0]
        if ends[1] != calm:
            raise RuntimeError(f"{command.name} writes other bytes each time: {_differ(*ends)}")
        for number in range(index, count, len(commands)):
            writes = number // len(commands) % 2 == 0
            at = int(random.integers(1, totals[not writes] + 1))
            restore()
            log.write_text("")
            if (first := child(partial(hooked, at, writes), log)) == 0:
                continue  # it ended before: the number of calls depends on the machine
            there = _files(place)
            torn = [name for name in before if name in calm and name not in there]
            torn += [n for n, content in there.items() if n in calm and content not in (before.get(n), calm[n])]
            again = child(partial(command.again or command.work, place), log)
            wrong = _differ(calm, _files(place))
            good = (first, torn, again, wrong) == (-signal.SIGKILL, [], 0, [])
            kind = "write" if writes else "call"
            told_of = f"{command.name} at {kind} {at} of {totals}: {first}, torn {torn}, {again}, wrong {wrong}"
            result.add(len(torn) + len(wrong), good, f"{told_of}\n{log.read_text()}")
    return result


def _differ(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return [name for name in sorted({**one, **other}) if one.get(name) != other.get(name)]


def _script(main: Callable[[list[str]], int], words: Callable[[Path], list[str]]) -> Callable[[Path], None]:
    def work(place: Path) -> None:
        raise SystemExit(main(words(place)))

    return work


def kill_fetching(folder: Path, count: int) -> Count:
    """Kill ``fetch_data.py`` while it downloads, unpacks and installs three data sets from a local server."""
    from scripts import fetch_data

    digits, cifar = data_samples.mnist()[0], data_samples.tar_gz("cifar-10-batches-bin", data_samples.cifar()[0])
    with serving() as server:
        server.files = {"one.bin": CONTENT, cifar10.BINARY_ARCHIVE: cifar, **data_samples.gzipped(digits)}

        def remote(name: str) -> Remote:
            return Remote(name, f"sha256:{hashlib.sha256(server.files[name]).hexdigest()}", (server.url(name),))

        def read_digits(root: Path) -> DataInfo:
            folder = Folder(root, "mnist", data_samples.official(digits))
            return mnist.read_folder(folder, *data_samples.MNIST_COUNTS).info

        def read_pictures(root: Path) -> DataInfo:
            return cifar10.read_folder(Folder(root, "cifar10", {}), data_samples.CIFAR_BATCH).info

        of_mnist = tuple(remote(name) for name in data_samples.gzipped(digits))
        origins = {
            "tiny": origin_of(server.url("one.bin")),
            "mnist": DataOrigin(of_mnist, read_digits, sets.install_mnist),
            "cifar10": DataOrigin((remote(cifar10.BINARY_ARCHIVE),), read_pictures, sets.install_cifar10),
        }

        def work(place: Path) -> None:
            sets.ORIGINS, sets.NAMES = origins, tuple(origins)  # type: ignore[assignment]
            raise SystemExit(fetch_data.main([*origins, "--data-root", str(place)]))

        said = "the same command resumed; every data set whole, its digests right, nothing else left"
        return kill_anywhere(folder, count, [Command("fetch_data.py", work)], Count(said))


def kill_paper(folder: Path, count: int) -> Count:
    """Kill the three scripts of ``make paper`` while they replace the output of other records."""
    from matplotlib import pyplot  # noqa: F401  # the children need not import it again

    from experiments.report import page  # noqa: F401
    from experiments.report.drawing import style, svg  # noqa: F401
    from scripts import build_figures, build_paper_data, build_report

    load_published()
    mains: dict[str, tuple[Callable[[list[str]], int], Callable[[Path], list[str]]]] = {
        "build_paper_data.py": (build_paper_data.main, lambda place: [f"--output={place / 'paper' / 'data.tex'}"]),
        "build_figures.py": (
            build_figures.main,
            lambda place: [f"--output={place / 'figures'}", "--only", "figure1", "figure2", "--jobs=1"],
        ),
        "build_report.py": (
            build_report.main,
            lambda place: [f"--output={place / 'paper'}"],
        ),
    }

    def command(name: str) -> Command:
        main, words = mains[name]
        work = _script(main, lambda place: [f"--results={place / 'results'}", *words(place)])

        def ready(place: Path) -> None:
            store = Store(place / "results")
            page_samples.fill(store)
            _done(partial(work, place), folder / "log of the old output")
            phases = {"grown": {**samples.grown([9.0], 1e-3, 2e-3), "norms": [1.0, 0.5, 0.25]}}
            samples.put(store, BASELINE, 0, phases, curves=samples.curves(100))

        return Command(name, work, ready)

    result = Count("every output the old or the new one, whole; the next call wrote the same bytes, nothing else left")
    return kill_anywhere(folder, count, [command(name) for name in mains], result)


RUNS = {"lora": ["gate=lora", "--merged"], "adapter": ["gate=adapter"], "prune": ["gate=prune", "gate.target=both"]}
"""Exports of three formats: overrides of their runs, and options of the script."""


def kill_export_script(folder: Path, count: int) -> Count:
    """Kill ``export_model.py``; a folder that is there then is whole, and is removed before the next call."""
    from experiments.language.folders import check_sums
    from scripts import export_model

    def command(name: str) -> Command:
        run = [word for word in RUNS[name] if not word.startswith("--")] + ["gate.t0=2.2"] * (name != "prune")
        options = [word for word in RUNS[name] if word.startswith("--")]

        def ready(place: Path) -> None:
            run_files.SCRATCH = paths.SCRATCH = folder / name
            line = ["task=wikisql_easy", "profile=smoke", "progress=never", "save=deployed", "phases=[grown]"]
            raise SystemExit(app.main([*line, *run, "threads=1", f"results={place / 'results'}"]))

        def work(place: Path) -> None:
            (record,) = (place / "results").rglob("*.json")
            merged = [word for option in options for word in (option, str(place / "merged"))]
            raise SystemExit(export_model.main([str(record), str(place / "out"), *merged]))

        def again(place: Path) -> None:
            for whole in (place / "out", place / "merged"):
                if whole.exists():
                    check_sums(whole)
                    shutil.rmtree(whole)
            work(place)

        return Command(f"export of {name}", work, ready, again)

    result = Count("a folder whole or absent; the next export wrote the same bytes, nothing else left")
    return kill_anywhere(folder, count, [command(name) for name in RUNS], result)


def _fit(place: Path, budget: bool, batches: bool, **settings: Any) -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.linspace(-2, 2, 64).unsqueeze(-1)
    limits: dict[str, Any] = {"budget": ngn.Budget(parameters=80)} if budget else {"lambda0": 1.0}
    learner = ngn.learn_sizes(model, {"0": ngn.Width(12), "3": ngn.Width(8)}, example=x, **limits)
    pairs = [(x[n::4], x[n::4].sin()) for n in range(4)]
    inputs, targets = (pairs, None) if batches else (x, x.sin())
    plan = ngn.TrainPlan(steps=16, optimizer="adamw")
    settings |= {"folder": place / UNCOMPARED, "checkpoint_seconds": 1e-9, "progress": "never"}
    ngn.fit(learner, inputs, targets, nn.functional.mse_loss, plan, **settings)
    ngn.save(learner.deploy(), place / "model")


def kill_fits(folder: Path, count: int) -> Count:
    """Kill ``ngn.fit`` with a folder of checkpoints, under a price and a budget, of full data and batches."""
    kinds: dict[str, Callable[[Path], None]] = {
        "full data": partial(_fit, budget=False, batches=False),
        "budget, batches": partial(_fit, budget=True, batches=True),
        "by importance": partial(_fit, budget=False, batches=True, by_importance="taylor"),
    }
    result = Count("resumed; saved model bit-equal, two checkpoints and nothing else left")
    return kill_anywhere(folder, count, [Command(name, work) for name, work in kinds.items()], result)
