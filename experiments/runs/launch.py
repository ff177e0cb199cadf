"""Train the configurations that have no record yet. Several processes may launch the same runs: one trains each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from experiments.blocks import ConfigError
from experiments.contract.config import Config
from experiments.data import DataError
from experiments.runs.outcome import RunOutcome, existing_outcome, renewed
from experiments.runs.run_files import Run, runs_of
from experiments.runs.sharing import HeldElsewhere, Sharing, Work, divide_into_work, remove_leftovers
from experiments.store.leases import Leases
from experiments.store.records import RecordError


def launch(configs: Sequence[Config], patience: float | None = None) -> list[RunOutcome]:
    """Train all configurations without a record, in stacks where that is faster.

    Returns:
        one outcome per run, in the order of ``configs``.

    Raises:
        DataError, RecordError, ConfigError: with a message for the reader; the first one if there are several.
        experiments.runs.sharing.HeldElsewhere: see :func:`share`.
    """
    runs = runs_of(configs)
    done = share(runs, patience)
    outcomes = []
    for run in runs:
        result = done[run.id]
        if isinstance(result, Exception):
            raise result
        outcomes.append(result)
    return outcomes


def share(runs: Sequence[Run], patience: float | None = None) -> dict[str, RunOutcome | Exception]:
    """Train runs together with other processes. If a stack fails, the others still train.

    When several processes are given the same run, one trains it. The others train the remaining runs, then wait for it.

    Args:
        patience: seconds to wait for runs of other processes; None waits without a limit.

    Returns:
        run id → the outcome, or the error that stopped the run.

    Raises:
        experiments.runs.sharing.HeldElsewhere: if others hold runs for longer than ``patience``.
    """
    runs = [renewed(run) for run in runs]
    done: dict[str, RunOutcome | Exception] = {}
    roots: dict[Path, list[Run]] = defaultdict(list)
    for run in runs:
        roots[run.root].append(run)
    for root, wanted in roots.items():
        try:
            done |= {run.id: result for run in wanted if (result := _present(run)) is not None}
            missing = [run for run in wanted if run.id not in done]
            if missing:
                with Leases(root) as leases:
                    done.update(Sharing(leases, _present, _train, patience).run(divide_into_work(missing, root)))
            remove_leftovers([run.id for run in wanted if isinstance(done.get(run.id), RunOutcome)], root)
        except HeldElsewhere:
            raise
        except Exception as error:  # an error of the folder, not of one stack: report it for each of its runs
            done |= {run.id: error for run in wanted if run.id not in done}
    return done


def _present(run: Run) -> RunOutcome | Exception | None:
    try:
        return existing_outcome(run)
    except RecordError as refused:
        return RecordError(f"{refused}; add force=true to run it again and replace that file")
    except DataError as damaged:
        return damaged


def _train(work: Work) -> dict[str, RunOutcome | Exception]:
    """Train leased runs. Return run id → outcome or error, for the runs that had no record."""
    from experiments.runs import training  # imported here because it imports torch

    names = [run.id for run in work.missing]
    try:
        outcomes = {outcome.run_id: outcome for outcome in training.train_stack(work.stack())}
    except Exception as error:  # the caller reports it for each run
        # The error may concern one run only, such as a budget out of reach: train each run alone.
        if isinstance(error, ConfigError) and len(names) > 1:
            return {name: done for run in work.missing for name, done in _train(Work((run,))).items()}
        return dict.fromkeys(names, error)
    return {name: outcomes[name] for name in names}
