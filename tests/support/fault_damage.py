"""Damage files of every kind and check the commands that read them. ``tests/support/faults.py`` runs these."""

import json
import os
import shutil
from dataclasses import replace

import fault_kills
import numpy as np
import record_samples as samples
from faulty import KILL, Count, Trial, child, found, left, lost

import ngn
from experiments.cli import app
from experiments.runs import phases
from experiments.runs.models import load_model
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps import worker
from experiments.store.leases import Leases
from experiments.store.records import RecordError, Store
from experiments.studies import STUDIES
from experiments.studies.model import Study
from experiments.studies.one_d import BASELINE
from experiments.tasks.language.export import check_sums

DAMAGE = {
    "empty": lambda content, at: b"",
    "cut": lambda content, at: content[:at],
    "a bit": lambda content, at: content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :],
    "zeros": lambda content, at: bytes(len(content)),
    "longer": lambda content, at: content + b"}",
    "deep": lambda content, at: b"[" * 100_000,
    "no object": lambda content, at: b"[1, NaN]",
    "an object": lambda content, at: b'{"schema": 1, "format": 1, "run_id": {}}',
}
LINKS = {"a link that leads nowhere": "nowhere", "a circle of links": "", "unreadable": "/proc/self/mem"}
"""What a link in place of a file leads to; "" is itself. Not even root can read the last."""
PLACES = ("missing", "a folder", *LINKS)
RESUMED = tuple(place for place in PLACES if place != "unreadable")
"""What a training survives. A disk that cannot be read stops it with a message, as that may be temporary."""


def harm(path, random, places=PLACES):
    """Damage a file, or put something else in its place, in a random way; return a description."""
    how = str(random.choice([*DAMAGE, *places]))
    content = path.read_bytes()
    path.unlink()
    if how in DAMAGE:
        path.write_bytes(DAMAGE[how](content, int(random.integers(max(1, len(content))))))
    elif how == "a folder":
        (path / "below").mkdir(parents=True)
    elif how == "a pipe":
        os.mkfifo(path)
    elif how in LINKS:
        path.symlink_to(LINKS[how] or path.name)
    return how


def damaged_files(folder, count):
    """Kill at a random step; then damage a random remaining file or, every fourth time, change the code."""

    def program(kind, seeds):
        killed = fault_kills.runs(kind, seeds, ("steps",))

        def again(place, number):
            random = np.random.default_rng(number)
            if number // len(kinds) % 4 == 3:
                phases.made_by = lambda: {"sources": "0" * 64}
            else:
                kept = (".json", ".safetensors", ".lease")
                files = [path for path in sorted(place.rglob("*")) if path.is_file() and path.suffix in kept]
                harmed = files[random.integers(len(files))]
                print(harm(harmed, random, RESUMED), harmed)
            killed.work(place)

        return replace(killed, again=again)

    kinds = {"1d": 2, "1d, every phase": 1, "cora": 2, "kernel": 3, "ste": 2, "l0": 2, "awnn": 2, "decay": 1}
    programs = [program(kind, seeds) for kind, seeds in [*kinds.items(), ("1d", 3)]]
    means = "resumed or trained anew; record and curves bit-equal, nothing left behind"
    return fault_kills.kill_anywhere(folder, count, programs, means)


def damaged_records(folder, count):
    """Damage one of two records or its curves: the command names the file and a remedy, and the remedy works."""
    result = Count("record named with the way out, curves left out; force=true made all bit-equal")
    random, calm = np.random.default_rng(count), Trial(folder / "calm")
    expected = calm.undisturbed()
    for number in range(count):
        trial = Trial(folder / str(number))
        shutil.copytree(calm.place / "results", trial.place / "results")
        harmed = sorted((trial.place / "results" / "regression1d").iterdir())[number % 4]
        how = harm(harmed, random, () if harmed.suffix == ".npz" else PLACES)
        own = "task=regression1d profile=smoke engine=torch phases=[grown] train.steps=12 gate.K=4 seed=0,1 threads=1"
        words = [*own.split(), "progress=never", f"results={trial.place / 'results'}"]
        status, said = trial.program(app.main, *words), trial.told()
        named = status == 1 and str(harmed) in said and "force=true" in said and "Traceback" not in said
        # a flipped bit in a number gives a valid record: git checks committed records, not a digest
        legal = status == 0 and (harmed.suffix == ".npz" or how in ("missing", "a bit"))
        if harmed.is_dir():
            shutil.rmtree(harmed)  # no command does this
        forced = trial.program(app.main, *words, "force=true")
        missing = lost(expected, found(trial.place))
        good = (named or legal) and (forced, missing, left(trial.place)) == (0, 0, [])
        result.add(missing, good, f"{how} {harmed}: {status}, {forced}, {missing}\n{said}")
    return result


def _beside(place):
    """Write ten records of a table with curves, and all other kinds of files in a results folder."""
    store = Store(place / "results")
    for seed in range(10):
        t, mse = samples.values(seed)
        phases = {"grown": {**samples.grown([t], mse, 2 * mse), "norms": [1.0, 0.5, 0.25]}}
        samples.put(store, BASELINE, seed, phases, curves=samples.curves(200))
    runs = list(STUDIES["tiny"].runs())
    names = [run.id for run in runs]
    plan = plans.freeze(plans.folder_of("tiny", store.root), "tiny", store.root, runs, 10)
    (plan.parent / "jobs.jsonl").write_text(json.dumps({"job": "7_0", "plan": str(plan), "task": 0}) + "\n")
    worker.note_failure(plan, names[:1], "RuntimeError: some reason")
    child(lambda: (Leases(store.root).take(names[:1]), KILL()))
    (place / "squeue").write_text("#!/bin/sh\necho 7_0 RUNNING\n")
    (place / "squeue").chmod(0o755)


def _readers(place, harmed, turn):
    """Return the commands that read a kind of file; the three slow ones take turns."""
    from scripts import build_figures, build_paper_data, build_report, sweep, table

    results, paper = f"--results={place / 'results'}", place / "paper"
    tiny = ["tiny", results]
    sweeps = [["status", *tiny], ["plan", *tiny, "--again=refused"], ["run", *tiny]]
    if harmed.suffix == ".jsonl":
        sweeps.append(["run", *tiny, f"--plan={place}/results/.sweeps/tiny/plan-0001.jsonl"])
    commands = [(sweep.main, words) for words in sweeps]
    if place / "results" not in (harmed.parent, harmed.parent.parent):
        return commands
    slow = [
        (build_paper_data.main, [results, "--table=dataeightbody"]),
        (build_figures.main, [results, f"--output={paper / 'figures'}", "--only=figure1"]),
        (build_report.main, [results, f"--output={paper}"]),
    ]
    data = [results, f"--output={paper / 'data_generated.tex'}"]
    return [*commands, (table.main, [str(place / "results")]), (build_paper_data.main, data), slow[turn % 3]]


def damaged_beside(folder, count):
    """Damage any file; no script that reads it may end in a traceback, and it must name damaged files that count."""
    result = Count("no command ended in a traceback; damaged records and plans were named")
    random = np.random.default_rng(count)
    STUDIES["tiny"] = Study("tiny", "ten", lambda: [BASELINE])
    trial, sound = Trial(folder / "place"), folder / "sound"
    place = trial.place
    _beside(place)
    os.environ["PATH"] = f"{place}{os.pathsep}{os.environ['PATH']}"
    shutil.copytree(place, sound)
    files = [p for p in sorted(place.rglob("*")) if p.is_file() and p.suffix and p.name != ".lock"]
    kinds = {}
    for path in files:
        kinds.setdefault(f"{path.parent.name}/{path.name[:4]}{path.suffix}", []).append(path)
    for number in range(count):
        shutil.rmtree(place)
        shutil.copytree(sound, place)
        of_kind = list(kinds.values())[number % len(kinds)]  # every kind equally often
        harmed = of_kind[random.integers(len(of_kind))]
        how = harm(harmed, random, (*PLACES, "a pipe"))
        ended = [trial.program(main, *words) for main, words in _readers(place, harmed, number // len(kinds))]
        said = trial.told()
        counts = harmed.suffix in (".json", ".jsonl", ".zip") and harmed.parent.name != "failures"
        # a ledger may be empty or end after any line
        counts = counts and how in DAMAGE and how not in ("a bit", *(("empty", "cut") * (harmed.name == "jobs.jsonl")))
        quiet = not counts or harmed.name in said or harmed.stem in said
        good = "Traceback" not in said and all(status in (0, 1, 2) for status in ended) and quiet
        result.add(0, good, f"{how} {harmed}: {ended}\n{said}")
    return result


def damaged_saves(folder, count):
    """Damage a file of ``ngn.save`` or of an export: loading or checking names it, and loads nothing."""
    result, random = Count("refused with the file's name"), np.random.default_rng(count)
    for number in range(count):
        place, said = folder / f"out-{number}", ""
        place.mkdir()
        if number % 2:
            ngn.save(fault_kills.net(1.0), place / "small")
        else:
            fault_kills.export(place)
        files = sorted(path for path in place.rglob("*") if path.is_file())
        harmed = files[number // 2 % len(files)]
        how = harm(harmed, random)
        try:
            ngn.load(fault_kills.net(0.0), place / "small") if number % 2 else check_sums(place / "out")
        except (ValueError, OSError) as fault:  # any other exception ends this program
            said = str(fault)
        # without its list of digests, a folder is one of version 0.1
        good = str(place) in said or "unreadable" in how
        good = good or (harmed.name == "SHA256SUMS" and how in ("missing", "a link that leads nowhere"))
        result.add(0, good, f"{how} {harmed}: {said}")
    return result


def damaged_models(folder, count):
    """Damage a model beside its record: loading names it and a remedy, and the remedy works."""
    result = Count("named with the way out; force=true wrote the same model again")
    random = np.random.default_rng(count)
    for number in range(count):
        trial, said = Trial(folder / str(number), seeds=1, save="deployed"), ""
        expected = trial.undisturbed()
        (model,), (record,) = trial.place.rglob("*.grown.safetensors"), (trial.place / "results").rglob("*.json")
        how = harm(model, random)
        try:
            load_model(record)
        except RecordError as fault:
            said = str(fault)
        named = str(model) in said and "save=deployed" in said
        if model.is_dir() and not model.is_symlink():
            os.rename(model, trial.place / "aside")  # no command removes a folder
        trial.wanted = [config.model_copy(update={"force": True}) for config in trial.wanted]
        again, missing = trial.again(expected)
        result.add(missing, (named, again, missing) == (True, 0, 0), f"{how} {model}: {said}; {again}, {missing}")
    return result
