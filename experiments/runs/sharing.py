"""Share runs among processes: several may be given the same runs, and one process trains each run.

This module also finds stacks that an interruption left. A checkpoint belongs to one stack, so the same runs must form
that stack again, even if some of them have records already.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.config import run_files
from experiments.config.identity import scientific
from experiments.config.run_files import Run
from experiments.config.schema import CheckedConfig
from experiments.core import checkpoint
from experiments.runs.outcome import RunOutcome, present
from experiments.runs.stack import Stack, stacks_of
from experiments.store.leases import Leases
from experiments.store.records import Store
from experiments.store.sources import KEPT
from ngn.files import remove_stale_files

log = logging.getLogger(__name__)
NOTE = "pack.json"
"""File in a folder of checkpoints that lists the runs of the stack."""
POLL, MAX_POLL = 0.5, 10.0
"""Seconds between two checks of runs that other processes train: at first, and at most. Each pause is half as long
again as the one before, until this process trains a run itself."""


class HeldElsewhere(RuntimeError):
    """Other processes were still training runs when the waiting time ended."""


@dataclass(frozen=True)
class Work:
    """Runs to train together.

    Attributes:
        missing: runs without a record.
        beside: runs with a record that belong to the same checkpoint.
        order: run ids of an interrupted stack in the order of its replicas; empty for a new stack.
    """

    missing: tuple[Run, ...]
    beside: tuple[Run, ...] = ()
    order: tuple[str, ...] = ()

    def stack(self) -> Stack:
        """Return the stack of all runs, in the order of the interrupted stack."""
        place = {name: at for at, name in enumerate(self.order)}
        return Stack(tuple(sorted((*self.missing, *self.beside), key=lambda run: place.get(run.id, 0))))

    def divided(self, names: Sequence[str]) -> tuple[Work, Work]:
        """Split the missing runs into those of ``names`` and the others."""
        if len(names) == len(self.missing):
            return self, Work(())
        inside = tuple(run for run in self.missing if run.id in names)
        return Work(inside), Work(tuple(run for run in self.missing if run.id not in names))

    def without(self, names: Container[str]) -> Work:
        """Return the work that is left once the runs of ``names`` have records."""
        left = tuple(run for run in self.missing if run.id not in names)
        ready = tuple(run for run in self.missing if run.id in names)
        # In an interrupted stack, runs that just got a record still belong to the checkpoint.
        return Work(left, (*self.beside, *ready) if self.order else (), self.order)


def note_stack(folder: Path, stack: Stack) -> None:
    """Write the list of a stack's runs into its folder of checkpoints, before any other file."""
    if not (folder / NOTE).exists():
        root = stack.runs[0].root.resolve()
        note = {"results": str(root), "runs": {run.id: scientific(run.config) for run in stack.runs}}
        checkpoint.write_sealed(folder / NOTE, note, {})


def remove_leftovers(present: Iterable[str], results: Path) -> None:
    """Remove leases, checkpoints and partial files that a killed process left behind.

    Args:
        present: run ids that have a record.
        results: folder of the records.
    """
    leases, store = Leases(results), Store(results)
    names = set(present)
    for lease in leases.folder.glob("*.lease"):
        if lease.stem in names:
            leases.clear(lease.stem)
    for name in names:
        folder = run_files.checkpoints_named(name, results)
        if folder.exists() and leases.owner(name) is None:
            checkpoint.remove(folder)
    for folder, runs in _noted(results):
        if set(runs) <= names and not any(leases.owner(name) for name in runs):
            checkpoint.remove(folder)
    for folder in run_files.checkpoints_named("*", results).parent.glob(f"*{checkpoint.REMOVED}"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in {results / KEPT, *(store.path(name).parent for name in names)}:
        remove_stale_files(folder)


def _noted(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and the runs of each stack whose records go to ``results``.

    The runs are a dictionary: run id → scientific configuration.
    """
    pattern = run_files.checkpoints_named("*", results)
    for folder in sorted(pattern.parent.glob(pattern.name)):
        try:
            note = checkpoint.read_sealed(folder / NOTE, None)
        except FileNotFoundError:
            continue  # a single run, or another process has just finished the stack
        except checkpoint.DAMAGE as fault:
            log.warning("%s cannot be used (%s); its runs will form new stacks", folder / NOTE, fault)
            continue
        if note["results"] == str(results.resolve()):
            yield folder, note["runs"]


def divide_into_work(runs: Sequence[Run], results: Path) -> list[Work]:
    """Divide runs into stacks: first interrupted stacks whose other runs all have records, then new stacks."""
    left = {run.id: run for run in runs}
    store = Store(results)
    work: list[Work] = []
    for _, noted in _noted(results):
        missing = [left[name] for name in noted if name in left]
        others = [name for name in noted if name not in left]
        if not missing or missing[0].config.force or not all(store.path(name).exists() for name in others):
            continue
        execution = missing[0].config.model_dump(mode="json")
        beside = tuple(Run(CheckedConfig.model_validate({**execution, **noted[name]}), name) for name in others)
        work.append(Work(tuple(missing), beside, tuple(noted)))
        for run in missing:
            del left[run.id]
    return work + [Work(stack.runs) for stack in stacks_of(list(left.values()))]


def turns(
    work: Sequence[Work], leases: Leases, patience: float | None = None
) -> Iterator[tuple[dict[str, RunOutcome | Exception], Work]]:
    """Yield, piece by piece, what has a record by now, and leased work that the caller trains before it goes on.

    Work that other processes have leased comes last. When nothing else is free, parts of stacks are taken.

    Args:
        leases: leases of the folder that receives the records.
        patience: seconds to wait for others once nothing else is left to do; None waits without a limit.

    Raises:
        HeldElsewhere: if other processes still train runs after ``patience``. All free runs are then trained.
    """
    waiting, intact, quiet, pause = deque(work), True, time.monotonic(), POLL
    while waiting:
        moved = False
        for _ in range(len(waiting)):
            ready, piece = _look(waiting.popleft())
            ours, leased = Work(()), leases.take([run.id for run in piece.missing]) if piece.missing else []
            try:
                moved = moved or bool(ready)
                if leased and (len(leased) == len(piece.missing) or not intact):
                    ours, piece = piece.divided(leased)
                    moved, pause = True, POLL
                    # Another process may have written a record between the check and the lease.
                    late, ours = _look(ours)
                    ready |= late
                yield ready, ours
            finally:
                leases.release(leased)
            if piece.missing:
                waiting.append(piece)
        if moved:
            quiet = time.monotonic()
        elif intact:
            intact = False  # nothing else is free: from now on, take parts of stacks
        else:
            names, waited = [run.id for piece in waiting for run in piece.missing], time.monotonic() - quiet
            first = f"{names[0]} ({leases.owner(names[0]) or 'its process has just ended'})"
            if patience is not None and waited > patience:
                raise HeldElsewhere(f"other processes are training {len(names)} runs, the first: {first}")
            if pause == POLL:
                log.warning("waiting for %d runs that other processes train, the first: %s", len(names), first)
            time.sleep(pause if patience is None else min(pause, max(POLL, patience - waited)))
            pause = min(1.5 * pause, MAX_POLL)


def _look(piece: Work) -> tuple[dict[str, RunOutcome | Exception], Work]:
    """Return the outcomes of the runs of ``piece`` that have a record by now, and the work that is left."""
    ready = {run.id: done for run in piece.missing if (done := present(run)[1]) is not None}
    return ready, piece.without(ready) if ready else piece
