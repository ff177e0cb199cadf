"""Build the content of the report from records alone: tables, claims, alternatives, settings, licences, compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from experiments.analysis.build import problems_of
from experiments.analysis.claims import Judged
from experiments.analysis.collect import Problem, Reader, RecordedRun
from experiments.analysis.compare import Comparison, Totals, compare_all, totals, verdict_counts
from experiments.analysis.compute import costs, hardware
from experiments.analysis.figures import Data
from experiments.analysis.reduce import Cell, reduce_row
from experiments.analysis.selection import Selection, selected_runs
from experiments.analysis.tables import OwnTable, Row, Table
from experiments.analysis.verdict import NOT_RUN
from experiments.core.blocks import ConfigError
from experiments.report.alternatives import BothSettings, alternatives
from experiments.report.disagreements import Group, groups
from experiments.report.settings import Settings, settings_of
from experiments.report.truncation import TwoWays, two_ways
from experiments.studies import FIGURES, OWN, STUDIES, judge_all, macros

_HERE = Path(__file__).parent
LICENCES: list[dict[str, str | None]] = yaml.safe_load((_HERE / "licences.yaml").read_text())
"""The data sets and the terms of their distributors, as the paper's appendix records them."""
TEXTS: dict[str, Any] = yaml.safe_load((_HERE / "sections.yaml").read_text())
"""What a reader needs first, and the sections of the report: which tables of the paper each holds, and its text."""


@dataclass(frozen=True)
class TableContent:
    """A table of the paper with one comparison per number. Stand-ins follow the rows that they stand for."""

    table: Table
    items: tuple[Comparison, ...]

    @property
    def ran(self) -> tuple[Comparison, ...]:
        """The cells with at least one run."""
        return tuple(item for item in self.items if item.verdict.word != NOT_RUN)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs behind its cells."""
        return tuple(run_id for item in self.items for run_id in item.cell.run_ids)


@dataclass(frozen=True)
class OwnContent:
    """A table that the paper does not have: each row with one cell per column, from the usable seeds."""

    table: OwnTable
    rows: tuple[tuple[Row, tuple[Cell, ...]], ...]

    @property
    def cells(self) -> dict[str, Cell]:
        """``table.row.column`` → cell."""
        keys = [column.key for column in self.table.columns]
        named = ((row.key, pair) for row, cells in self.rows for pair in zip(keys, cells, strict=True))
        return {f"{self.table.name}.{row}.{key}": cell for row, (key, cell) in named}

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs behind its cells."""
        return tuple(run_id for _, cells in self.rows for cell in cells for run_id in cell.run_ids)

    @property
    def ran(self) -> tuple[tuple[Row, tuple[Cell, ...]], ...]:
        """The rows with at least one run."""
        return tuple((row, cells) for row, cells in self.rows if any(cell.n for cell in cells))

    @property
    def absent(self) -> str:
        """A sentence that names the rows without a usable run; empty if there are none."""
        none = [(row, cells) for row, cells in self.rows if not any(cell.n for cell in cells)]
        missing = [", ".join(row.labels) for row, _ in none]
        if any(problem.refused for _, cells in none for cell in cells for problem in cell.problems):
            return f"No usable record: {'; '.join(missing)}."
        if len(missing) == len(self.rows):
            return "Nothing of this has been run."
        return f"Not run: {'; '.join(missing)}." if missing else ""


@dataclass(frozen=True)
class Section:
    """A study of the paper: its text, its tables, and the names of its figures."""

    key: str
    title: str
    paragraphs: tuple[str, ...]
    tables: tuple[TableContent, ...]
    figures: tuple[str, ...]

    @property
    def items(self) -> tuple[Comparison, ...]:
        """Every comparison of its tables."""
        return tuple(item for table in self.tables for item in table.items)

    @property
    def ran_itself(self) -> bool:
        """Whether it has a run that is not a stand-in."""
        return any(word != NOT_RUN for word in self.counts)

    @property
    def counts(self) -> Counter[str]:
        """Cells by verdict, without stand-ins."""
        return verdict_counts(self.items)


@dataclass(frozen=True)
class Origin:
    """Where the records behind the report come from.

    Attributes:
        run_ids: their runs.
        first, last: days on which the first and the last run started.
        commits: number of commits of the code that made them.
        hardware, packages: machines, and versions of packages.
    """

    run_ids: tuple[str, ...]
    first: str
    last: str
    commits: int
    hardware: tuple[str, ...]
    packages: tuple[str, ...]


@dataclass(frozen=True)
class ReportContent:
    """Everything that a renderer needs.

    Attributes:
        alternatives: the alternative settings beside the stated one.
        problems: the records that were skipped and the runs that diverged, each with the cells that it concerns. Runs
            that do not exist yet are not among them.
        figures: name → what the records give.
        compute: what each study has cost, then all together; each record counts once.
        origin: None if there are no records.
        data_notes: run ids → how their data differ from the published files.
        kernel_notes: ``macro.row`` → which seeds a kernel of which commit trained, for rows of several commits.
    """

    sections: tuple[Section, ...]
    truncation: tuple[TwoWays, ...]
    own: tuple[OwnContent, ...]
    settings: tuple[Settings, ...]
    licences: tuple[Mapping[str, str | None], ...]
    claims: tuple[Judged, ...]
    alternatives: tuple[BothSettings, ...]
    disagreements: tuple[Group, ...]
    problems: tuple[tuple[Problem, tuple[str, ...]], ...]
    figures: Mapping[str, Data]
    compute: Sequence[Any]
    origin: Origin | None
    data_notes: Callable[[Iterable[str]], tuple[str, ...]]
    kernel_notes: Mapping[str, str]

    @property
    def items(self) -> tuple[Comparison, ...]:
        """Every comparison of every section."""
        return tuple(item for section in self.sections for item in section.items)

    @property
    def used(self) -> tuple[str, ...]:
        """The runs behind cells, claims, alternatives and figures."""
        return self.origin.run_ids if self.origin else ()

    @property
    def counts(self) -> Counter[str]:
        """Cells by verdict, without stand-ins."""
        return verdict_counts(self.items)

    @property
    def totals(self) -> Totals:
        """Facts by verdict, and what to expect by chance."""
        return totals(self.items)


def _sections(items: Sequence[Comparison]) -> tuple[Section, ...]:
    figures: dict[str, list[str]] = {entry["key"]: [] for entry in TEXTS["sections"]}
    for spec in FIGURES.values():
        if spec.section not in figures:
            raise ConfigError(
                f"figure {spec.name}: no section '{spec.section}'. The sections are: {', '.join(figures)}"
            )
        figures[spec.section].append(spec.name)
    tables = {
        table.name: TableContent(table, tuple(item for item in items if item.table is table)) for table in macros()
    }
    return tuple(
        Section(
            entry["key"],
            entry["title"],
            tuple(entry.get("paragraphs", ())),
            tuple(tables[name] for name in entry["macros"]),
            tuple(figures[entry["key"]]),
        )
        for entry in TEXTS["sections"]
        if entry["macros"] or figures[entry["key"]]
    )


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


def _origin(reader: Reader) -> Origin | None:
    used = {name: run.record for name, run in reader.seen.items() if isinstance(run, RecordedRun)}
    records = [*used.values()]
    if not records:
        return None
    days = sorted(record["time"]["started"][:10] for record in records)
    versions = Counter(f"{name} {record['packages'].get(name)}" for record in records for name in ("python", "torch"))
    return Origin(
        tuple(used),
        days[0],
        days[-1],
        len({record["code"]["commit"] for record in records}),
        tuple(sorted({hardware(record) for record in records})),
        tuple(sorted(text for text in versions if not text.endswith("None"))),
    )


def _kernel_notes(reader: Reader, items: Sequence[Comparison]) -> dict[str, str]:
    rows = {f"{item.table.name}.{item.row.key}": item.row.runs for item in items}
    noted = {name: reader.kernel_note(runs) for name, runs in rows.items() if runs is not None}
    return {name: note for name, note in noted.items() if note}


def build_content(reader: Reader) -> ReportContent:
    """Read the records, reduce them to cells, compare these with the published values, and judge the claims."""
    items = compare_all(reader, macros())
    cells = {item.name: item.cell for item in items if not item.stand_in}
    own = tuple(
        OwnContent(table, tuple((row, reduce_row(reader, table, row)) for row in table.rows)) for table in OWN.values()
    )
    every = cells | {name: cell for content in own for name, cell in content.cells.items()}
    problems = [(p, tuple(names)) for p, names in problems_of(every) if p.refused or p.kind == "diverged"]
    sections, studied = _sections(items), _studied()
    claims = judge_all(reader, items)
    return ReportContent(
        sections=sections,
        truncation=two_ways(reader, items),
        own=own,
        settings=settings_of(selection for selections in studied.values() for selection in selections),
        licences=tuple(LICENCES),
        claims=claims,
        alternatives=alternatives(reader, items, claims),
        disagreements=groups(items),
        problems=tuple(problems),
        figures={name: FIGURES[name].data(reader) for section in sections for name in section.figures},
        compute=costs(reader, {name: STUDIES[name].make() for name in studied}),
        origin=_origin(reader),
        data_notes=reader.data_notes,
        kernel_notes=_kernel_notes(reader, items),
    )
