"""Frozen plans: the resolved configurations of missing runs, grouped into tasks. Imports no torch.

A plan is a file ``scratch/sweeps/<study>/plan-0001.jsonl``. It is written once and never changed, so later edits of
YAML files do not affect a running sweep. The first line describes the plan. Every other line is one task: the runs that
one worker, or one Slurm array task, trains.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from experiments.config.identity import Run
from experiments.config.schema import CheckedConfig
from experiments.core.needs import NOTHING, Needs
from experiments.core.paths import RESULTS, RUNS, SCRATCH
from experiments.core.reading import open_regular, read_regular
from experiments.runs.stack import stacks_of
from experiments.store.provenance import code
from experiments.store.records import RecordError
from ngn.files import remove_stale_files, write_atomically

FORMAT = 1
MAX_PLAN_BYTES, MAX_LINE_BYTES = 2**33, 2**27
"""Limits of what is read: a plan of a million runs has 2 GiB, its first line 50 MiB."""


@dataclass(frozen=True)
class Plan:
    """A frozen plan, without the configurations of its runs.

    Attributes:
        path: the file of the plan.
        study: name of the study.
        results: folder for the records.
        tasks: the run ids of each task.
        needs: what each task needs of a machine.
    """

    path: Path
    study: str
    results: Path
    tasks: tuple[tuple[str, ...], ...]
    needs: Needs = NOTHING

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(map(len, self.tasks))


def folder_of(study: str, results: Path) -> Path:
    """Return the folder of a sweep's plans, jobs, logs and failures: in scratch/, or beside records elsewhere."""
    usual = (RESULTS, RUNS, SCRATCH / "results")
    return (SCRATCH / "sweeps" if results.resolve() in usual else results.resolve() / ".sweeps") / study


def freeze(folder: Path, study: str, results: Path, runs: Sequence[Run], largest: int, needs: Needs = NOTHING) -> Path:
    """Write the next plan of a study, unless the newest plan is the same. Return its file.

    Args:
        largest: most runs in one task.
        needs: what each task needs of a machine.
    """
    stacks = stacks_of(runs, largest)
    head = {
        "format": FORMAT,
        "study": study,
        "results": str(results.resolve()),
        "commit": code().commit,
        "clean": code().clean,
        "runs": len(runs),
        "needs": needs.model_dump(exclude_defaults=True),
        "tasks": [stack.ids for stack in stacks],
    }
    lines = [json.dumps(head)]
    for stack in stacks:
        placed = [run.with_execution(results=str(results.resolve())) for run in stack.runs]
        lines.append(json.dumps([run.config.model_dump(mode="json") for run in placed]))
    content = ("\n".join(lines) + "\n").encode()
    remove_stale_files(folder)
    earlier = _plans(folder)
    with contextlib.suppress(OSError):  # an unreadable plan is not the same
        if earlier and read_regular(earlier[-1], len(content)) == content:
            return earlier[-1]
    number = max((int(path.stem.rpartition("-")[2]) for path in earlier), default=0) + 1
    while not write_atomically(path := folder / f"plan-{number:04d}.jsonl", content):
        number += 1
    return path


def _plans(folder: Path) -> list[Path]:
    """Return the files of a study's plans, oldest first."""
    return sorted(path for path in folder.glob("plan-*.jsonl") if path.stem.rpartition("-")[2].isdecimal())


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open a plan; a RecordError if the file, or what the context reads in it, is not readable."""
    try:
        with os.fdopen(open_regular(path, MAX_PLAN_BYTES), errors="replace") as lines:
            yield lines
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as fault:
        said = str(fault).partition("\n")[0]
        raise RecordError(f"{path}: is not a readable plan ({said}); write a new plan with scripts/sweep.py") from None


def read_plan(path: Path) -> Plan:
    """Read a plan, without its configurations; a RecordError if it is not readable."""
    with _opened(path) as lines:
        head: dict[str, Any] = json.loads(lines.readline(MAX_LINE_BYTES))
        if head["format"] != FORMAT:
            raise ValueError(f"it has format {head['format']!r}; this code reads format {FORMAT}")
        tasks = tuple(tuple(task) for task in head["tasks"])
        needs = Needs.model_validate(head.get("needs", {}))  # earlier plans have none
        return Plan(path, str(head["study"]), Path(head["results"]), tasks, needs)


def runs_of_tasks(path: Path, tasks: Iterable[int] | None = None) -> Iterator[tuple[int, list[Run]]]:
    """Yield (number, runs) of some tasks, by default all, one at a time; a RecordError if one is unreadable."""
    wanted = None if tasks is None else set(tasks)
    missing = set(wanted or ())
    with _opened(path) as lines:
        lines.readline(MAX_LINE_BYTES)
        for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE_BYTES), "")):
            if wanted is None or number in wanted:
                missing.discard(number)
                runs = [Run.of(CheckedConfig.model_validate(content)) for content in json.loads(line)]
                if not runs:
                    raise ValueError(f"task {number} has no runs")
                yield number, runs
        if missing:
            raise ValueError(f"task {min(missing)} is missing")
