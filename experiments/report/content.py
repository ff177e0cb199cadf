"""Build the content of the report from records: tables, claims, alternatives, disagreements, settings, compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import yaml

from experiments.analysis.build import problems_of
from experiments.analysis.claims import Judged
from experiments.analysis.collect import Problem, Reader, RecordedRun
from experiments.analysis.compare import Comparison, Totals, compare_all, totals, verdict_counts
from experiments.analysis.figures import Data
from experiments.analysis.reduce import Cell, reduce_row
from experiments.analysis.selection import Selection, selected_runs
from experiments.analysis.tables import OwnTable, Row
from experiments.analysis.verdict import CANNOT_TELL, DISAGREES
from experiments.config.compose import folders, options
from experiments.config.identity import identity_keys
from experiments.core.blocks import ConfigError
from experiments.report.alternatives import BothSettings, TwoWays, alternatives, two_ways
from experiments.studies import FIGURES, OWN, STUDIES, judge_all, macros


def costs(reader: Reader, studies: Mapping[str, Iterable[Selection]]) -> list[Any]:
    """Return the cost of each study, then of all together, from usable records, diverged ones and companions included.

    A run that belongs to two studies counts in both, and once in the sum.

    Args:
        studies: name → the selections of a study.

    Returns:
        tuples for each study and kind of hardware: ``study`` (empty for the sum), ``hardware`` (processor and visible
        cores, or the accelerator's name), ``runs``, ``run_steps`` (optimiser steps of single models; phases taken from
        another record count only there) and ``hours`` (wall time; that of a stack is divided among its runs).
    """
    import pandas as pd  # imported here: it takes longer than most commands need

    rows = []
    for study, selections in studies.items():
        runs = (run for selection in selections for run in reader.collect(selection).runs)
        by_id = {one.run_id: one.record for run in runs for one in (run, *run.companions.values())}
        for name, record in by_id.items():
            rows.append((study, hardware(record), name, _steps(record), record["time"]["seconds"] / 3600))
    table = pd.DataFrame(rows, columns=["study", "hardware", "runs", "run_steps", "hours"])
    each = pd.concat([table, table.drop_duplicates("runs").assign(study="")]).groupby(["study", "hardware"])
    sums = each.agg({"runs": "count", "run_steps": "sum", "hours": "sum"}).reset_index()
    places = [*studies, ""]
    return sorted(sums.itertuples(index=False, name="Cost"), key=lambda cost: (places.index(cost.study), cost.hardware))


def hardware(record: Mapping[str, Any]) -> str:
    """Describe the hardware of a run."""
    device, machine = record["execution"]["device"], record["hardware"]
    if device != "cpu":
        return str(device)
    return f"{machine.get('cpu', 'unknown processor')}, {machine.get('cores', '?')} cores"


def _steps(record: Mapping[str, Any]) -> int:
    """Return the optimiser steps of the phases that were trained for this record.

    A diverged grown model gives no size to retrain at: its fixed phase is empty.
    """
    phases = record["phases"]
    diverged = phases.get("grown", {}).get("status", "complete") != "complete"
    return sum(int(phase["steps"]) for name, phase in phases.items() if not (name == "fixed" and diverged))


_HERE = Path(__file__).parent
LICENCES: list[dict[str, str | None]] = yaml.safe_load((_HERE / "licences.yaml").read_text())
"""The data sets and the terms of their distributors, as the paper's appendix records them."""
TEXTS: dict[str, Any] = yaml.safe_load((_HERE / "sections.yaml").read_text())
"""What a reader needs first, and the sections of the report: which tables of the paper each holds, and its text."""
DISAGREEMENTS: dict[str, Any] = yaml.safe_load((_HERE / "disagreements.yaml").read_text())
"""What disagrees with the paper, and why; ``claims`` are the reasons for statements."""


class Settings(NamedTuple):
    """The settings of a task and gate under ``method=ngn schedule=paper``: every key that a run's identity holds, as
    YAML, and the files that they are merged from. A later file counts."""

    task: str
    gate: str
    values: str
    files: tuple[Path, ...]


def settings_of(selections: Iterable[Selection]) -> Iterator[Settings]:
    """Yield the settings of each task and gate, in order of appearance."""
    configs = (selection.config(selection.seeds[0]) for selection in selections)
    for task, gate in dict.fromkeys((config.task.name, config.gate.component) for config in configs):
        config = Selection.of({"task": task, "gate": gate, "method": "ngn", "schedule": "paper"}).config(0)
        model = "none" if config.model is None else config.model.name
        choices = {"task": task, "gate": gate, "model": model, "setting": f"{task}-{gate}", "method": "ngn"}
        files = folders()[0] / "config.yaml", *(options(group)[choice] for group, choice in choices.items())
        yield Settings(task, gate, yaml.safe_dump(identity_keys(config), allow_unicode=True), files)


@dataclass(frozen=True)
class OwnContent:
    """A table that the paper does not have: each row with one cell per column, from the usable seeds."""

    table: OwnTable
    rows: tuple[tuple[Row, tuple[Cell, ...]], ...]

    @property
    def ran(self) -> list[tuple[Row, tuple[Cell, ...]]]:
        """The rows with at least one run."""
        return [(row, cells) for row, cells in self.rows if any(cell.n for cell in cells)]

    @property
    def absent(self) -> str:
        """A sentence that names the rows without a usable run; empty if there are none."""
        none = [(row, cells) for row, cells in self.rows if not any(cell.n for cell in cells)]
        missing = "; ".join(", ".join(row.labels) for row, _ in none)
        if any(problem.refused for _, cells in none for cell in cells for problem in cell.problems):
            return f"No usable record: {missing}."
        if len(none) == len(self.rows):
            return "Nothing of this has been run."
        return f"Not run: {missing}." if none else ""


@dataclass(frozen=True)
class ReportContent:
    """Everything that a renderer needs.

    Attributes:
        sections: the entries of the file of sections, each with its ``tables`` (one comparison per number; stand-ins
            follow the rows that they stand for), all their ``comparisons``, and the names of its ``figures``.
        alternatives: the alternative settings beside the stated one.
        problems: the records that were skipped and the runs that diverged, each with the cells that it concerns. Runs
            that do not exist yet are not among them.
        figures: name → what the records give.
        compute: what each study has cost, then all together; each record counts once.
        origin: where the records come from: ``first`` and ``last`` day on which a run started, number of ``commits`` of
            the code, ``hardware`` and ``packages``; None if there are no records.
        used: the runs behind cells, claims, alternatives and figures.
        data_notes: run ids → how their data differ from the published files.
        origin_notes: ``macro.row`` → which kernels that are gone, or several kinds of processors, trained it.
    """

    sections: Sequence[Mapping[str, Any]]
    truncation: tuple[TwoWays, ...]
    own: tuple[OwnContent, ...]
    settings: tuple[Settings, ...]
    licences: Sequence[Mapping[str, str | None]]
    claims: tuple[Judged, ...]
    alternatives: tuple[BothSettings, ...]
    disagreements: Sequence[Mapping[str, Any]]
    problems: tuple[tuple[Problem, tuple[str, ...]], ...]
    figures: Mapping[str, Data]
    compute: Sequence[Any]
    origin: Mapping[str, Any] | None
    used: tuple[str, ...]
    data_notes: Callable[[Iterable[str]], tuple[str, ...]]
    origin_notes: Mapping[str, str]

    @property
    def items(self) -> tuple[Comparison, ...]:
        """Every comparison of every section."""
        return tuple(chain(*(section["comparisons"] for section in self.sections)))

    @property
    def counts(self) -> Counter[str]:
        """Cells by verdict, without stand-ins."""
        return verdict_counts(self.items)

    @property
    def totals(self) -> Totals:
        """Facts by verdict, and what to expect by chance."""
        return totals(self.items)


def _sections(items: Sequence[Comparison]) -> list[dict[str, Any]]:
    sections = {entry["key"]: {"paragraphs": (), **entry, "figures": []} for entry in TEXTS["sections"]}
    for spec in FIGURES.values():
        if spec.section not in sections:
            raise ConfigError(
                f"figure {spec.name}: no section '{spec.section}'. The sections are: {', '.join(sections)}"
            )
        sections[spec.section]["figures"].append(spec.name)
    of = {table.name: (table, [item for item in items if item.table is table]) for table in macros()}
    for section in sections.values():
        section["tables"] = [of[name] for name in section["macros"]]
        section["comparisons"] = [item for _, own in section["tables"] for item in own]
    return [section for section in sections.values() if section["macros"] or section["figures"]]


def _studied() -> dict[str, list[Selection]]:
    """Return the selections of every full-size study, each under the first study that has it."""
    seen: set[str] = set()
    studied: dict[str, list[Selection]] = {}
    for name, study in STUDIES.items():
        for selection in study.make():
            first = selected_runs(selection)[0]
            if first.id not in seen and first.config.profile == "full":
                seen.add(first.id)
                studied.setdefault(name, []).append(selection)
    return studied


def _origin(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    if not records:
        return None
    days = [record["time"]["started"][:10] for record in records]
    packages = {(name, record["packages"].get(name)) for record in records for name in ("python", "torch")}
    return {
        "first": min(days),
        "last": max(days),
        "commits": len({record["code"]["commit"] for record in records}),
        "hardware": sorted({hardware(record) for record in records}),
        "packages": sorted(f"{name} {version}" for name, version in packages if version is not None),
    }


def build_content(reader: Reader) -> ReportContent:
    """Read the records, reduce them to cells, compare these with the published values, and judge the claims."""
    items = compare_all(reader, macros())
    cells = {item.name: item.cell for item in items if not item.stand_in}
    own = tuple(
        OwnContent(table, tuple((row, reduce_row(reader, table, row)) for row in table.rows)) for table in OWN.values()
    )
    for table, row, of_row in ((each.table, *pair) for each in own for pair in each.rows):
        cells |= {f"{table.name}.{row.key}.{c.key}": cell for c, cell in zip(table.columns, of_row, strict=True)}
    sections, studied = _sections(items), _studied()
    claims = judge_all(reader, items)
    truncation, beside = two_ways(reader, items), alternatives(reader, items, claims)
    figures = {name: FIGURES[name].data(reader) for section in sections for name in section["figures"]}
    compute = costs(reader, {name: STUDIES[name].make() for name in studied})
    used = {name: run.record for name, run in reader.seen.items() if isinstance(run, RecordedRun)}
    rows = {f"{item.table.name}.{item.row.key}": item.row.runs for item in items}
    return ReportContent(
        sections=sections,
        truncation=truncation,
        own=own,
        settings=tuple(settings_of(chain(*studied.values()))),
        licences=LICENCES,
        claims=claims,
        alternatives=beside,
        disagreements=groups(items),
        problems=tuple((p, tuple(n)) for p, n in problems_of(cells) if p.refused or p.kind == "diverged"),
        figures=figures,
        compute=compute,
        origin=_origin([*used.values()]),
        used=tuple(used),
        data_notes=reader.data_notes,
        origin_notes={name: note for name, runs in rows.items() if runs and (note := reader.origin_note(runs))},
    )


def groups(items: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the entries of the file, each with the comparisons of its ``cells`` in place of their names.

    Each has a ``title``, ``cells``, a ``text`` on all of them, and ``explanations``. These have a ``heading``, one
    ``line``, a ``text``, a ``standing`` (shown, likely, in part, open or empty), ``cells``, and whether one of these
    ``differs`` under the rule. A single run outside the range of our seeds does not.

    Args:
        items: every comparison of the paper's tables.
    """
    by_name = {item.name: item for item in items if not item.stand_in}
    single = {item.fact: item for item in by_name.values() if item.row.seeds == 1 and item.verdict.parts}
    apart = [item for item in single.values() if not all(part.inside for part in item.verdict.parts)]
    # of n + 1 exchangeable runs one lies outside the range of the others with probability 2 / (n + 1)
    expected = f"{sum(2 / (item.verdict.seeds + 1) for item in single.values()):.1f}"
    numbers = {"outside": len(apart), "placed": len(single), "expected": expected}

    def cells(entry: Mapping[str, Any]) -> list[Comparison]:
        names = entry.get("cells", ())
        return apart if names == "outside" else [by_name[name] for name in names]

    def explained(entry: Mapping[str, Any]) -> dict[str, Any]:
        own = cells(entry)
        differs = any(item.verdict.word == DISAGREES for item in own)
        return {"standing": "", "line": "", **entry, "cells": own, "differs": differs}

    return [
        {
            **entry,
            "cells": cells(entry),
            "explanations": [explained(one) for one in entry["explanations"]],
            "text": Template(entry.get("text", "")).substitute(numbers),
        }
        for entry in DISAGREEMENTS["sections"]
    ]


def reasons(claims: Iterable[Judged]) -> Mapping[str, str]:
    """Return the reason, as far as known, for each claim that disagrees or that our runs cannot tell."""
    known: dict[str, str] = DISAGREEMENTS["claims"]
    words = {claim.key: claim.word for claim in claims}
    return {key: text for key, text in known.items() if words[key] in (DISAGREES, CANNOT_TELL)}
