"""Processes that are given the same runs share the work: each run is trained by one of them.

Also here: the stacks that an interruption left. A checkpoint belongs to a stack of certain runs, so these must come
together again, also when some of them have their records already.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from experiments.config.identity import run_id, scientific
from experiments.config.schema import Config
from experiments.runs.stack import Stack, stacks_of
from experiments.store.claims import Claims
from experiments.store.records import Store, publish
from ngn.train import checkpoint

log = logging.getLogger(__name__)
POLL = 0.5
"""Seconds between two looks at runs that another process trains."""
Done = TypeVar("Done")


class HeldElsewhere(RuntimeError):
    """Runs that another process is training, and for which nobody wanted to wait longer."""


@dataclass(frozen=True)
class Work:
    """Runs to train together: those that are missing, and those with a record that their checkpoint belongs to."""

    missing: tuple[Config, ...]
    beside: tuple[Config, ...] = ()
    order: tuple[str, ...] = ()

    def stack(self) -> Stack:
        """All of them, in the order in which the interrupted stack had them."""
        place = {name: at for at, name in enumerate(self.order)}
        return Stack(tuple(sorted((*self.missing, *self.beside), key=lambda config: place.get(run_id(config), 0))))


def note_stack(folder: Path, stack: Stack, results: Path) -> None:
    """Write down which runs a folder of checkpoints belongs to, before anything else is written there."""
    if len(stack) > 1 and not (folder / "pack.json").exists():
        told = {"results": str(results.resolve()), "runs": {run_id(c): scientific(c) for c in stack.runs}}
        publish(folder / "pack.json", json.dumps(told).encode(), replace=True)


def tidy(present: Iterable[str], results: Path, checkpoints: Path, folder_of: Callable[[str], Path]) -> None:
    """Remove what runs with records had needed, where a kill came between the record and the cleaning up.

    Args:
        present: runs that have their record.
        folder_of: where a run that is trained alone keeps its checkpoints.
    """
    claims = Claims(results)
    names = set(present)
    for name in names:
        claims.clear(name)
        if folder_of(name).exists() and claims.owner(name) is None:
            checkpoint.remove(folder_of(name))
    for note in checkpoints.glob("*/pack.json"):
        told = _told(note)
        if told is None or told["results"] != str(results.resolve()) or not set(told["runs"]) <= names:
            continue
        if not any(claims.owner(name) for name in told["runs"]):
            checkpoint.remove(note.parent)


def _told(note: Path) -> dict[str, Any] | None:
    """What :func:`note_stack` wrote, or None if another process has finished the stack meanwhile."""
    try:
        return dict(json.loads(note.read_text()))
    except FileNotFoundError:
        return None


def arrange(configs: Sequence[Config], results: Path, checkpoints: Path) -> list[Work]:
    """Stacks as an interruption left them, where all their other runs have records; new stacks of the rest."""
    by_id = {run_id(config): config for config in configs}
    work: list[Work] = []
    for note in sorted(checkpoints.glob("*/pack.json")):
        told = _told(note)
        if told is None:
            continue
        mine = [by_id[name] for name in told["runs"] if name in by_id]
        others = [name for name in told["runs"] if name not in by_id]
        if not mine or told["results"] != str(results.resolve()):
            continue
        store = Store(results)
        if mine[0].force or not all(store.path(name).exists() for name in others):
            continue
        how = mine[0].model_dump(mode="json")
        beside = tuple(Config.model_validate({**how, **told["runs"][name]}) for name in others)
        work.append(Work(tuple(mine), beside, tuple(told["runs"])))
        for config in mine:
            del by_id[run_id(config)]
    return work + [Work(stack.runs) for stack in stacks_of(list(by_id.values()))]


@dataclass
class Sharing(Generic[Done]):
    """How work is shared.

    Attributes:
        claims: of the folder that the records go to.
        present: the outcome of a run that has its record by now, or None.
        train: trains one piece of work; outcomes of the runs that were missing.
        patience: seconds to wait for runs that others train while nothing else is left to do; None waits for good.
    """

    claims: Claims
    present: Callable[[Config], Done | None]
    train: Callable[[Work], list[Done]]
    patience: float | None = None

    def run(self, work: Sequence[Work]) -> Iterator[Done]:
        """The outcome of every run, as they come.

        Raises:
            HeldElsewhere: when patience is over; every run that was free has been trained.
        """
        waiting, intact, quiet = deque(work), True, time.monotonic()
        while waiting:
            moved = False
            for _ in range(len(waiting)):
                piece = waiting.popleft()
                found, piece = self._look(piece)
                yield from found
                mine = self.claims.take([run_id(config) for config in piece.missing]) if piece.missing else []
                try:
                    if mine and (len(mine) == len(piece.missing) or not intact):
                        own = Work(tuple(c for c in piece.missing if run_id(c) in mine))
                        own = piece if len(own.missing) == len(piece.missing) else own
                        piece = Work(tuple(c for c in piece.missing if run_id(c) not in mine))
                        moved = True
                        # a record may have been written between the look and the claim
                        found, own = self._look(own)
                        yield from found
                        if own.missing:
                            yield from self.train(own)
                finally:
                    self.claims.release(mine)
                moved = moved or bool(found)
                if piece.missing:
                    waiting.append(piece)
            if moved:
                quiet = time.monotonic()
            elif intact:
                intact = False  # rather parts of stacks than nothing
            else:
                self._wait(waiting, time.monotonic() - quiet)

    def _look(self, piece: Work) -> tuple[list[Done], Work]:
        found = {run_id(config): done for config in piece.missing if (done := self.present(config)) is not None}
        if not found:
            return [], piece
        left = tuple(config for config in piece.missing if run_id(config) not in found)
        ready = tuple(config for config in piece.missing if run_id(config) in found)
        # of a stack that was interrupted, also those that just got their record belong to the checkpoint
        return list(found.values()), Work(left, (*piece.beside, *ready) if piece.order else (), piece.order)

    def _wait(self, waiting: Sequence[Work], waited: float) -> None:
        names = [run_id(config) for piece in waiting for config in piece.missing]
        if self.patience is not None and waited > self.patience:
            raise HeldElsewhere(f"{len(names)} runs are being trained by others, first {self._who(names)}")
        if waited < POLL:
            log.warning("waiting for %d runs that others train, first %s", len(names), self._who(names))
        time.sleep(POLL)

    def _who(self, names: Sequence[str]) -> str:
        return f"{names[0]} by {self.claims.owner(names[0]) or 'nobody any more'}"
