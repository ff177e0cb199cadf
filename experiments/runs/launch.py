"""Train the runs that have no record yet. Several processes may be given the same runs, and one process trains each.

This module also finds stacks that an interruption left. A checkpoint belongs to one stack, so the same runs must form
that stack again, even if some of them have records already.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.config import identity
from experiments.config.identity import Run, runs_of
from experiments.config.schema import CheckedConfig
from experiments.core import checkpoint
from experiments.core.config import Config
from experiments.runs.outcome import RunOutcome, present
from experiments.runs.stack import NOTE, Stack, stacks_of
from experiments.store.leases import Leases
from experiments.store.provenance import KEPT
from experiments.store.records import Store
from ngn.files import remove_stale_files

log = logging.getLogger(__name__)
POLL, MAX_POLL = 0.5, 10.0
"""Seconds between two checks of runs that other processes train: at first, and at most. Each pause is half as long
again as the one before, until this process trains a run itself."""


class HeldElsewhere(RuntimeError):
    """Other processes were still training runs when the waiting time ended."""


@dataclass(frozen=True)
class Work:
    """Runs to train together.

    Attributes:
        stack: a new stack of the missing runs; or an interrupted one, whole and in its order, as its checkpoint needs.
        missing: ids of the runs without a record.
        resumes: whether the stack was interrupted.
    """

    stack: Stack
    missing: Sequence[str]
    resumes: bool = False

    def part(self, names: Sequence[str]) -> Work:
        """Return the work on a new stack of these runs alone."""
        return Work(Stack(tuple(run for run in self.stack.runs if run.id in names)), names)


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
        folder = identity.checkpoints_named(name, results)
        if folder.exists() and leases.owner(name) is None:
            checkpoint.remove(folder)
    for folder, runs in _noted(results):
        if set(runs) <= names and not any(leases.owner(name) for name in runs):
            checkpoint.remove(folder)
    for folder in identity.checkpoints_named("*", results).parent.glob(f"*{checkpoint.REMOVED}"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in {results / KEPT, *(store.path(name).parent for name in names)}:
        remove_stale_files(folder)


def _noted(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and the runs of each stack whose records go to ``results``.

    The runs are a dictionary: run id → scientific configuration.
    """
    pattern = identity.checkpoints_named("*", results)
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
    work: list[Work] = []
    for _, noted in _noted(results):
        missing = [name for name in noted if name in left]
        others = [name for name in noted if name not in left]
        if missing and not left[missing[0]].config.force and all(Store(results).path(name).exists() for name in others):
            execution = left[missing[0]].config.model_dump(mode="json")
            beside = {name: CheckedConfig.model_validate({**execution, **noted[name]}) for name in others}
            whole = tuple(Run(beside[name], name) if name in beside else left.pop(name) for name in noted)
            work.append(Work(Stack(whole), missing, resumes=True))
    return work + [Work(stack, stack.ids) for stack in stacks_of(list(left.values()))]


def turns(
    work: Sequence[Work], leases: Leases, patience: float | None = None
) -> Generator[tuple[dict[str, RunOutcome | Exception], Work]]:
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
            leased = leases.take(piece.missing) if piece.missing else []
            ours = piece if len(leased) == len(piece.missing) else piece.part([] if intact else leased)
            left = [name for name in piece.missing if name not in ours.missing]
            try:
                moved = moved or bool(ready)
                if ours.missing:
                    moved, pause = True, POLL
                    # Another process may have written a record between the check and the lease.
                    late, ours = _look(ours)
                    ready |= late
                yield ready, ours
            finally:
                leases.release(leased)
            if left:
                waiting.append(piece if len(left) == len(piece.missing) else piece.part(left))
        if moved:
            quiet = time.monotonic()
        elif intact:
            intact = False  # nothing else is free: from now on, take parts of stacks
        else:
            names, waited = [name for piece in waiting for name in piece.missing], time.monotonic() - quiet
            first = f"{names[0]} ({leases.owner(names[0]) or 'its process has just ended'})"
            if patience is not None and waited > patience:
                raise HeldElsewhere(f"other processes are training {len(names)} runs, the first: {first}")
            if pause == POLL:
                log.warning("waiting for %d runs that other processes train, the first: %s", len(names), first)
            time.sleep(pause if patience is None else min(pause, max(POLL, patience - waited)))
            pause = min(1.5 * pause, MAX_POLL)


def _look(piece: Work) -> tuple[dict[str, RunOutcome | Exception], Work]:
    """Return the outcomes of the runs of ``piece`` that have a record by now, and the work that is left."""
    missing = (run for run in piece.stack.runs if run.id in piece.missing)
    ready = {run.id: done for run in missing if (done := present(run)[1]) is not None}
    left = [name for name in piece.missing if name not in ready]
    return ready, replace(piece, missing=left) if piece.resumes or not ready else piece.part(left)


def launch(configs: Sequence[Config], patience: float | None = None) -> list[RunOutcome]:
    """Train configurations without a record, as :func:`share` does. Return one outcome per run, in their order.

    Raises:
        DataError, RecordError, ConfigError: with a message for the reader; the first one if there are several.
        HeldElsewhere: see :func:`share`.
    """
    runs = runs_of(configs)
    done = share(runs, patience)
    for run in runs:
        if isinstance(error := done[run.id], Exception):
            raise error
    return [outcome for run in runs if isinstance(outcome := done[run.id], RunOutcome)]


def share(runs: Sequence[Run], patience: float | None = None) -> dict[str, RunOutcome | Exception]:
    """Train runs in stacks, together with other processes. If a stack fails, the others still train.

    When several processes are given the same run, one trains it. The others train the remaining runs, then wait for it.

    Args:
        patience: seconds to wait for runs of other processes; None waits without a limit.

    Returns:
        run id → the outcome, or the error that stopped the run.

    Raises:
        HeldElsewhere: if others hold runs for longer than ``patience``.
    """
    done: dict[str, RunOutcome | Exception] = {}
    roots: dict[Path, list[Run]] = defaultdict(list)
    for run in runs:
        roots[run.root].append(run)
    for root, wanted in roots.items():
        missing = []
        try:
            for given in wanted:
                run, outcome = present(given)
                if outcome is None:
                    missing.append(run)
                else:
                    done[run.id] = outcome
            if missing:
                from experiments.runs import training  # imported here because it imports torch

                with closing(turns(divide_into_work(missing, root), Leases(root), patience)) as pieces:
                    for ready, ours in pieces:
                        done |= ready
                        names = {*ours.missing}
                        stacks = deque([ours.stack] if names else [])
                        while stacks:
                            stack = stacks.popleft()
                            try:
                                made = {outcome.run_id: outcome for outcome in training.train_stack(stack)}
                                done |= {name: made[name] for name in names & made.keys()}
                            except Exception as error:  # the caller reports it for each run
                                parts = training.parts_after(error, stack)
                                stacks.extendleft(part for part in reversed(parts) if names & {*part.ids})
                                if not parts:
                                    done |= dict.fromkeys(names & {*stack.ids}, error)
            remove_leftovers([run.id for run in wanted if isinstance(done.get(run.id), RunOutcome)], root)
        except HeldElsewhere:
            raise
        except Exception as error:  # an error of the folder, not of one stack: report it for each of its runs
            done |= {run.id: error for run in wanted if run.id not in done}
    return done
