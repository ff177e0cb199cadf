"""From configurations to records: what has none yet is trained, each run by one of the processes that were given it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from experiments.blocks import ConfigError
from experiments.contract.config import Config
from experiments.runs.outcome import Outcome, present, reference
from experiments.runs.run_files import Run, runs_of
from experiments.runs.sharing import HeldElsewhere, Sharing, Work, arrange, tidy
from experiments.store.leases import Leases
from experiments.store.records import RecordError


def launch(configs: Sequence[Config], patience: float | None = None) -> list[Outcome]:
    """Train what has no record yet, stacked where that is faster; one record and one outcome per run, in order.

    Raises:
        DataError, RecordError, ConfigError: with a message for the reader; of several errors the first.
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


def share(runs: Sequence[Run], patience: float | None = None) -> dict[str, Outcome | Exception]:
    """What became of every run, by run id; a stack that fails leaves the others.

    Of several processes that are given the same run, one trains it. The others do what is left, and then wait for it,
    for good or for ``patience`` seconds.

    Raises:
        experiments.runs.sharing.HeldElsewhere: if others hold runs for longer than ``patience``.
    """
    done: dict[str, Outcome | Exception] = {run.id: found for run in runs if (found := reference(run)) is not None}
    roots: dict[Path, list[Run]] = defaultdict(list)
    for run in (run for run in runs if run.id not in done):
        roots[run.root].append(run)
    for root, wanted in roots.items():
        try:
            done |= {run.id: result for run in wanted if (result := _present(run)) is not None}
            missing = [run for run in wanted if run.id not in done]
            if missing:
                with Leases(root) as leases:
                    done.update(Sharing(leases, _present, _train, patience).run(arrange(missing, root)))
            tidy([run.id for run in wanted if isinstance(done.get(run.id), Outcome)], root)
        except HeldElsewhere:
            raise
        except Exception as error:  # of the folder rather than of a stack; reported with each of its runs
            done |= {run.id: error for run in wanted if run.id not in done}
    return done


def _present(run: Run) -> Outcome | Exception | None:
    try:
        return present(run)
    except RecordError as damaged:
        return RecordError(f"{damaged}; force=true runs it again and replaces that file")


def _train(work: Work) -> dict[str, Outcome | Exception]:
    """Train leased runs; what became of those that had no record."""
    from experiments.runs import training  # not earlier: it imports torch

    names = [run.id for run in work.missing]
    try:
        outcomes = {outcome.run_id: outcome for outcome in training.train_stack(work.stack())}
    except Exception as error:  # reported with its runs by the caller
        if isinstance(error, ConfigError) and len(names) > 1:  # of one of them, perhaps: a budget out of reach
            return {name: done for run in work.missing for name, done in _train(Work((run,))).items()}
        return dict.fromkeys(names, error)
    return {name: outcomes[name] for name in names}
