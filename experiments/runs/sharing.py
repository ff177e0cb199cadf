"""Processes that are given the same runs share the work: each run is trained by one of them.

Also here: the stacks that an interruption left. A checkpoint belongs to a stack of certain runs, so these must come
together again, also when some of them have their records already.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from experiments.config.identity import scientific
from experiments.config.schema import CheckedConfig
from experiments.runs import run_files
from experiments.runs.run_files import Run
from experiments.runs.stack import Stack, stacks_of
from experiments.store.leases import Leases
from experiments.store.records import Store
from ngn.files import remove_stale_files
from ngn.train import checkpoint

log = logging.getLogger(__name__)
NOTE = "pack.json"
"""In a folder of checkpoints: which runs they are of."""
POLL = 0.5
"""Seconds between two looks at runs that another process trains."""
Done = TypeVar("Done")


class HeldElsewhere(RuntimeError):
    """Runs that another process is training, and for which nobody wanted to wait longer."""


@dataclass(frozen=True)
class Work:
    """Runs to train together: those that are missing, and those with a record that their checkpoint belongs to."""

    missing: tuple[Run, ...]
    beside: tuple[Run, ...] = ()
    order: tuple[str, ...] = ()

    def stack(self) -> Stack:
        """All of them, in the order in which the interrupted stack had them."""
        place = {name: at for at, name in enumerate(self.order)}
        return Stack(tuple(sorted((*self.missing, *self.beside), key=lambda run: place.get(run.id, 0))))

    def divided(self, names: Sequence[str]) -> tuple[Work, Work]:
        """The missing runs of these names, and the others; undivided where it is all of them."""
        if len(names) == len(self.missing):
            return self, Work(())
        inside = tuple(run for run in self.missing if run.id in names)
        return Work(inside), Work(tuple(run for run in self.missing if run.id not in names))

    def without(self, names: Container[str]) -> Work:
        """What is left when the runs of these names have their records."""
        left = tuple(run for run in self.missing if run.id not in names)
        ready = tuple(run for run in self.missing if run.id in names)
        # of a stack that was interrupted, also those that just got their record belong to the checkpoint
        return Work(left, (*self.beside, *ready) if self.order else (), self.order)


def note_stack(folder: Path, stack: Stack) -> None:
    """Write down which runs a folder of checkpoints belongs to, before anything else is written there."""
    if len(stack) > 1 and not (folder / NOTE).exists():
        root = stack.runs[0].root.resolve()
        note = {"results": str(root), "runs": {run.id: scientific(run.config) for run in stack.runs}}
        checkpoint.write_sealed(folder / NOTE, note, {})


def tidy(present: Iterable[str], results: Path) -> None:
    """Remove what runs with records had needed, where a kill came before the cleaning up, and half-written files.

    Args:
        present: runs that have their record.
    """
    leases, store = Leases(results), Store(results)
    names = set(present)
    for name in names:
        leases.clear(name)
        folder = run_files.checkpoints_named(name, results)
        if folder.exists() and leases.owner(name) is None:
            checkpoint.remove(folder)
    for folder, runs in _noted(results):
        if set(runs) <= names and not any(leases.owner(name) for name in runs):
            checkpoint.remove(folder)
    for folder in run_files.checkpoints().glob(f"*{checkpoint.REMOVED}"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in {leases.folder, *(store.path(name).parent for name in names)}:
        remove_stale_files(folder)


def _noted(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folders of stacks whose records go to ``results``, and their runs: run id → scientific configuration."""
    for folder in sorted(run_files.checkpoints().glob(run_files.checkpoints_named("*", results).name)):
        try:
            note = checkpoint.read_sealed(folder / NOTE, None)
        except FileNotFoundError:
            continue  # of a single run, or another process has finished the stack meanwhile
        except checkpoint.DAMAGE as fault:
            log.warning("%s cannot be used (%s); its runs form new stacks", folder / NOTE, fault)
            continue
        if note["results"] == str(results.resolve()):
            yield folder, note["runs"]


def arrange(runs: Sequence[Run], results: Path) -> list[Work]:
    """Stacks as an interruption left them, where all their other runs have records; new stacks of the rest."""
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


@dataclass
class Sharing(Generic[Done]):
    """How work is shared.

    Attributes:
        leases: of the folder that the records go to.
        present: the outcome of a run that has its record by now, or None.
        train: trains one piece of work; run id → outcome of each run that was missing.
        patience: seconds to wait for runs that others train while nothing else is left to do; None waits for good.
    """

    leases: Leases
    present: Callable[[Run], Done | None]
    train: Callable[[Work], dict[str, Done]]
    patience: float | None = None

    def run(self, work: Sequence[Work]) -> Iterator[tuple[str, Done]]:
        """(run id, outcome) of every run, as they come.

        Raises:
            HeldElsewhere: when patience is over; every run that was free has been trained.
        """
        waiting, intact, quiet = deque(work), True, time.monotonic()
        while waiting:
            moved = False
            for _ in range(len(waiting)):
                ready, piece = self._look(waiting.popleft())
                yield from ready.items()
                leased = self.leases.take([run.id for run in piece.missing]) if piece.missing else []
                try:
                    if leased and (len(leased) == len(piece.missing) or not intact):
                        ours, piece = piece.divided(leased)
                        moved = True
                        # a record may have been written between the look and the lease
                        late, ours = self._look(ours)
                        yield from late.items()
                        if ours.missing:
                            yield from self.train(ours).items()
                finally:
                    self.leases.release(leased)
                moved = moved or bool(ready)
                if piece.missing:
                    waiting.append(piece)
            if moved:
                quiet = time.monotonic()
            elif intact:
                intact = False  # rather parts of stacks than nothing
            else:
                self._wait(waiting, time.monotonic() - quiet)

    def _look(self, piece: Work) -> tuple[dict[str, Done], Work]:
        """The runs of a piece that have their record by now, and what is left of it."""
        ready = {run.id: done for run in piece.missing if (done := self.present(run)) is not None}
        return ready, piece.without(ready) if ready else piece

    def _wait(self, waiting: Sequence[Work], waited: float) -> None:
        names = [run.id for piece in waiting for run in piece.missing]
        if self.patience is not None and waited > self.patience:
            raise HeldElsewhere(f"{len(names)} runs are being trained by others, first {self._who(names)}")
        if waited < POLL:
            log.warning("waiting for %d runs that others train, first %s", len(names), self._who(names))
        time.sleep(POLL)

    def _who(self, names: Sequence[str]) -> str:
        return f"{names[0]} by {self.leases.owner(names[0]) or 'nobody any more'}"
