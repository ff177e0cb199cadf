"""What a study is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.analysis.collect import Alternative
from experiments.analysis.selection import Selection, selected_runs
from experiments.analysis.tables import Table
from experiments.config.identity import Run
from experiments.core.needs import NOTHING, Needs
from experiments.core.paths import RESULTS
from experiments.core.plugins import LAST
from experiments.store.records import RecordError, Store


@dataclass(frozen=True)
class Study:
    """The runs behind a table or a figure.

    Attributes:
        name, title: name on the command line, and a description.
        make: returns its selections; called only on demand, because thousands take a moment.
        results: folder of its records.
        curves: how many seeds of each selection, the first ones, keep their curve file in ``results``.
        rank: position among the studies.
        alternative: for the runs of an alternative setting, which runs of other studies they stand beside.
        needs: what one task of it needs of a machine.
    """

    name: str
    title: str
    make: Callable[[], list[Selection]]
    results: Path = RESULTS
    rank: int = LAST
    curves: int = 0
    alternative: Alternative | None = None
    needs: Needs = NOTHING

    def runs(self, store: Store | None = None, foreseen: bool = False) -> Iterator[Run]:
        """Every run, each once.

        Runs that are found through the record of another (the fixed model of a learned size) follow once ``store``
        has that record. With ``foreseen`` a missing record counts as one that retains a component of each group: for
        the number of runs to come and their time.
        """
        return _named(self.make(), store, foreseen)

    def has_second_pass(self, store: Store) -> bool:
        """Return whether further runs will follow from records that ``store`` does not have yet."""
        return any(_complete(store, run) is None for one in self.make() if one.companions for run in selected_runs(one))

    def with_curves(self, store: Store) -> set[str]:
        """Return the ids of the runs that keep their curve file, and of the runs found through their records."""
        kept = [one.with_seeds(one.seeds[: self.curves]) for one in self.make()] if self.curves else []
        return {run.id for run in _named(kept, store)}


def _complete(store: Store, run: Run) -> Mapping[str, Any] | None:
    """Return the record of a complete run; of a damaged one nothing is known before it is run again."""
    try:
        record = store.get(run.id)
    except RecordError:
        return None
    return record if record is not None and record["status"] == "complete" else None


def _named(selections: Iterable[Selection], store: Store | None, foreseen: bool = False) -> Iterator[Run]:
    seen: set[str] = set()

    def visit(selection: Selection) -> Iterator[Run]:
        for run in selected_runs(selection):
            if run.id not in seen:
                seen.add(run.id)
                yield run
            record = _complete(store, run) if selection.companions and store is not None else None
            if record is None and foreseen:
                record = {"run_id": run.id, "phases": {"grown": {"count": [1] * run.config.gate.groups}}}
            if record is not None:
                for _, find in selection.companions:
                    yield from visit(find(selection, run.config.seed.value, record))

    for selection in selections:
        yield from visit(selection)


def selections_of(*tables: Table) -> list[Selection]:
    """Return the selections that tables name."""
    return [runs for table in tables for runs in table.runs.values()]


def study_of(table: Table, title: str, rank: int, curves: int = 0, name: str = "") -> Study:
    """Return the study of the runs that a table names, by default with the table's name."""
    return Study(name or table.name, title, lambda: selections_of(table), rank=rank, curves=curves)
