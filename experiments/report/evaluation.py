"""The evaluator's page: each row of the paper's tables with its command, cost, hardware and cell."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import Override

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.reductions.compute import hardware
from experiments.analysis.selection import Selection, selected_runs
from experiments.studies import STUDIES
from experiments.sweeps.status import duration_text
from experiments.tables import MACROS
from experiments.tables.model import Row, Table
from experiments.tables.numbers import WORDS, tables_of


@dataclass(frozen=True)
class EvaluatedRow:
    """One row of a table of the paper.

    Attributes:
        place: the table.
        title: the row's label, in TeX.
        command: trains its own runs; those of a rival are trained with the study.
        study: the smallest study that has them, with all that they are compared with.
        runs: recorded and wanted runs.
        time, memory: of the recorded runs and their companions on one worker; empty without records.
        where: their hardware.
        cell: what ``build_paper_data.py --explain`` takes.
    """

    place: str
    title: str
    command: str
    study: str
    runs: str
    time: str
    memory: str
    where: str
    cell: str


def command_of(selection: Selection, study: str) -> str:
    """Return the command that trains the runs of a selection into ``runs/``.

    A companion, such as a rival of the learned size, follows from a record. Only its ``study`` trains it.
    """
    if selection.about in dict(selection.companions):
        return f"python scripts/sweep.py run {study} --results runs"
    words = ["run.py", *(f"{group}={choice}" for group, choice in selection.choices)]
    words += [f"{key}={_typed(value)}" for key, value in selection.overrides]
    seeds = list(selection.seeds)
    spans = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
    words.append(f"seed={seeds[0]}..{seeds[-1]}" if spans else f"seed={','.join(map(str, seeds))}")
    return f"python {shlex.join(words)}"


def _typed(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return str(Override._get_value_element_as_str(plain))


def rows(reader: Reader) -> tuple[EvaluatedRow, ...]:
    """Return every row of the paper's tables that has runs, once per table, in the order of their numbers."""
    smallest, numbered = _smallest_studies(), {f"table {number}": tables_of(number) for number in WORDS}
    others = tuple(table for table in MACROS if not any(table in tables for tables in numbered.values()))
    places = {**numbered, "numbers and the decay table": others}
    return tuple(made for place, tables in places.items() for made in _rows_of(place, tables, reader, smallest))


def _rows_of(
    place: str, tables: Sequence[Table], reader: Reader, smallest: Callable[[Selection], str]
) -> Iterator[EvaluatedRow]:
    seen: set[Selection] = set()
    for table in tables:
        for row in table.rows:
            if row.runs is None or row.runs in seen:
                continue
            seen.add(row.runs)
            yield _row(place, f"{table.name}.{row.key}", row, row.runs, reader, smallest)


def _row(
    place: str, cell: str, row: Row, runs: Selection, reader: Reader, smallest: Callable[[Selection], str]
) -> EvaluatedRow:
    found = reader.collect(runs).runs
    every: dict[str, RecordedRun] = {one.run_id: one for run in found for one in (run, *run.companions.values())}
    records = [run.record for run in every.values()]
    study = smallest(runs)
    peaks = [phase.get("peak_memory_mib") or 0.0 for record in records for phase in record["phases"].values()]
    return EvaluatedRow(
        place,
        row.title,
        command_of(runs, study),
        study,
        f"{len(found)} of {len(runs.seeds)}",
        duration_text(sum(record["time"]["seconds"] for record in records)) if records else "",
        f"{max(peaks) / 1024:.1f} GiB" if any(peaks) else "",
        "; ".join(sorted({hardware(record) for record in records})),
        cell,
    )


def _smallest_studies() -> Callable[[Selection], str]:
    """Return selection → the study with the fewest selections that has all of its runs; "" without one."""
    seeds: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    sizes: dict[str, int] = {}

    def configuration(selection: Selection) -> str:
        return selected_runs(selection.with_seeds((0,)))[0].id

    for name, study in STUDIES.items():
        selections = study.make()
        sizes[name] = len(selections)
        for selection in selections:
            seeds[configuration(selection)][name].update(selection.seeds)

    def find(selection: Selection) -> str:
        having = seeds.get(configuration(selection), {})
        whole = [name for name, there in having.items() if there.issuperset(selection.seeds)]
        return min(whole, key=lambda name: (sizes[name], name), default="")

    return find
