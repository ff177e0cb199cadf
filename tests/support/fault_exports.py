"""Kill saves and exports at any system call, and damage what they wrote. ``tests/support/faults.py`` runs these."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import faulty
import numpy as np
import torch
from fault_files import harm
from faulty import KILL, Count, Hook, child, configs, found, lost, train, undisturbed
from torch import nn

import ngn
from experiments.language.folders import ExportError, check_sums, new_folder
from experiments.runs import run_files
from experiments.runs.models import load_model
from experiments.store.records import RecordError
from ngn.tensor_files import write_checked

CALLS = ("fsync", "replace", "rename", "link", "mkdir", "unlink", "rmdir")
"""System calls of a save, before and after which a process is killed."""


def _net(value: float) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    nn.init.constant_(model[0].weight, value)
    return model


def _calls(work: Callable[[], object], folder: Path) -> int:
    """Count the system calls of ``work``, in a process of its own."""
    told = folder / "calls"

    def count() -> None:
        hook = Hook(0, KILL).at_writes(CALLS)
        work()
        told.write_text(str(hook.count))

    if status := child(count):
        raise RuntimeError(f"counting system calls: status {status}")
    return int(told.read_text())


def kill_library_saves(folder: Path, count: int) -> Count:
    """Kill ``ngn.save`` while it replaces a file: the old or the new content is there, and the next save tidies up."""
    result = Count("the old or the new model loads; the next save leaves nothing else")
    (counting := folder / "counting").mkdir()
    total, random = _calls(lambda: ngn.save(_net(1.0), counting / "small"), folder), np.random.default_rng(count)
    for number in range(count):
        place, at = folder / str(number), int(random.integers(1, total + 1))
        place.mkdir()
        ngn.save(_net(1.0), place / "small")

        def dies(at: int = at, place: Path = place) -> None:
            Hook(at, KILL).at_writes(CALLS)
            ngn.save(_net(2.0), place / "small")

        first = child(dies)
        value = ngn.load(_net(0.0), place / "small").get_parameter("0.weight")[0, 0].item()
        ngn.save(_net(3.0), place / "small")
        remains = [path.name for path in place.iterdir() if path.name != "small"]
        good = (first, value in (1.0, 2.0), remains) == (-signal.SIGKILL, True, [])
        result.add(0 if good else 1, good, f"at {at} of {total}: {first}, {value}, {remains}")
    return result


def damaged_library_files(folder: Path, count: int) -> Count:
    """Damage a file of ``ngn.save``: loading names the file, and loads nothing."""
    result = Count("refused with the file's name")
    random = np.random.default_rng(count)
    for number in range(count):
        path = folder / f"small-{number}"
        ngn.save(_net(1.0), path)
        how, said = harm(path, random), ""
        try:
            ngn.load(_net(0.0), path)
        except (ValueError, OSError) as fault:  # any other exception ends this program
            said = str(fault)
        same = how == "a bit" and "small" not in said
        result.add(int(same), path.name in said or "unreadable" in how, f"{how}: {said}")
    return result


def _export(place: Path) -> None:
    with new_folder(place / "out") as out:
        write_checked(out / "weights.safetensors", {"a": torch.arange(9.0)}, {"format": "pt"})
        (out / "config.json").write_text('{"r": 3}')
        (out / "inner").mkdir()
        (out / "inner" / "x.json").write_text("{}")


def kill_exports(folder: Path, count: int) -> Count:
    """Kill an export: its folder is whole or absent, and the same command then writes it."""
    result = Count("whole or absent; written by the next export, nothing else left")
    (counting := folder / "counting").mkdir()
    total, random = _calls(lambda: _export(counting), folder), np.random.default_rng(count)
    for number in range(count):
        place, at = folder / str(number), int(random.integers(1, total + 1))
        place.mkdir()

        def dies(at: int = at, place: Path = place) -> None:
            Hook(at, KILL).at_writes(CALLS)
            _export(place)

        first, there = child(dies), (place / "out").exists()
        if not there:
            _export(place)
        check_sums(place / "out")
        whole = sorted(path.name for path in (place / "out").rglob("*.json")) == ["config.json", "x.json"]
        remains = [path.name for path in place.iterdir() if path.name != "out"]
        good = (first, whole, remains) == (-signal.SIGKILL, True, [])
        result.add(int(not whole), good, f"at {at} of {total}: {first}, {there}, {remains}")
    return result


def damaged_exports(folder: Path, count: int) -> Count:
    """Damage a file of an export: checking the folder names it."""
    result = Count("refused with the file's name")
    random = np.random.default_rng(count)
    for number in range(count):
        place = folder / str(number)
        place.mkdir()
        _export(place)
        files = sorted(path for path in (place / "out").rglob("*") if path.is_file())
        harmed, said = files[number % len(files)], ""
        how = harm(harmed, random)
        try:
            check_sums(place / "out")
        except ExportError as fault:
            said = str(fault)
        # without its list of digests, a folder is one of version 0.1
        good = "out" in said or (harmed.name == "SHA256SUMS" and how in ("missing", "a link that leads nowhere"))
        result.add(0, good, f"{how} {harmed}: {said}")
    return result


def damaged_models(folder: Path, count: int) -> Count:
    """Damage a model beside its record: loading names it and a remedy, and the remedy works."""
    result = Count("named with the way out; force=true wrote the same model again")
    random, own = np.random.default_rng(count), {"save": "deployed"}
    expected = undisturbed(folder, "1d", 1, **own)
    for number in range(count):
        place = folder / str(number)
        wanted = configs(place, "1d", 1, **own)
        child(lambda place=place, wanted=wanted: train(place, wanted))
        (model,), (record,) = place.rglob("*.grown.safetensors"), (place / "results").rglob("*.json")
        how, said = harm(model, random), ""
        try:
            load_model(record)
        except RecordError as fault:
            said = str(fault)
        named = str(model) in said and "save=deployed" in said
        if model.is_dir() and not model.is_symlink():
            os.rename(model, place / "aside")  # no command removes a folder
        by_force = configs(place, "1d", 1, **own, force=True)
        again = child(lambda place=place, by_force=by_force: train(place, by_force), place / "log")
        missing = lost(expected, found(place, wanted))
        good = (named, again, missing) == (True, 0, 0)
        result.add(missing, good, f"{how} {model}: {said}; {again}, {missing}")
        run_files.SCRATCH = folder / "scratch"
    return result


def kill_kept_models(folder: Path, count: int) -> Count:
    """Kill a run that keeps its models, at a random system call of saving."""
    kind, own = "1d", {"save": "deployed"}
    total = faulty.events(folder / "counting", configs(folder / "counting", kind, 2, **own), writes=True)
    expected = undisturbed(folder, kind, 2, **own)
    result = Count("resumed; record, model and curves bit-equal, nothing left behind")
    for at in faulty.moments(total, count, seed=total):
        place = folder / f"at-{at}"
        wanted = configs(place, kind, 2, **own)

        def dies(at: int = at, place: Path = place, wanted: list = wanted) -> None:
            Hook(at, KILL).at_writes()
            train(place, wanted)

        first = child(dies)
        again = child(lambda place=place, wanted=wanted: train(place, wanted))
        missing, remains = lost(expected, found(place, wanted)), faulty.left(place)
        good = (first, again, missing, remains) == (-signal.SIGKILL, 0, 0, [])
        result.add(missing, good, f"killed at {at} of {total}: {first}, {again}, {missing}, {remains}")
    return result
