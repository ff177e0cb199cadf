"""Train the runs that have no record yet. Several processes may launch the same runs: one trains each."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from experiments.config.run_files import Run, runs_of
from experiments.core.config import Config
from experiments.runs.outcome import RunOutcome, present
from experiments.runs.sharing import HeldElsewhere, divide_into_work, remove_leftovers, turns
from experiments.store.leases import Leases


def launch(configs: Sequence[Config], patience: float | None = None) -> list[RunOutcome]:
    """Train configurations without a record, as :func:`share` does. Return one outcome per run, in their order.

    Raises:
        DataError, RecordError, ConfigError: with a message for the reader; the first one if there are several.
        experiments.runs.sharing.HeldElsewhere: see :func:`share`.
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
        experiments.runs.sharing.HeldElsewhere: if others hold runs for longer than ``patience``.
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
