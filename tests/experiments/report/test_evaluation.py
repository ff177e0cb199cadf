"""The evaluator's page: each row of the paper's tables with the command that trains its runs, and what they cost."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from record_samples import grown, record

from experiments.analysis.collect import Reader
from experiments.analysis.selection import selected_runs
from experiments.cli import app
from experiments.paths import ROOT
from experiments.report import evaluation
from experiments.store.records import Store
from experiments.studies import STUDIES
from experiments.tables import MACROS
from experiments.tables.numbers import FIGURES, WORDS, figure_of, tables_of
from experiments.tables.one_d import FOUR
from scripts import build_paper_data

RUNS = {f"{table.name}.{row.key}": row.runs for table in MACROS for row in table.rows if row.runs is not None}
RIVALS = {name: runs for name, runs in RUNS.items() if runs.about in dict(runs.companions)}


@pytest.mark.parametrize("name", [name for name in RUNS if name not in RIVALS])
def test_the_command_of_a_row_trains_its_runs(name: str) -> None:
    runs = RUNS[name].with_seeds(RUNS[name].seeds[:2])
    program, script, *words = shlex.split(evaluation.command_of(runs, "any"))
    assert (program, script) == ("python", "run.py")
    _, jobs = app.prepare(words)
    assert [job.run.id for job in jobs] == [run.id for run in selected_runs(runs)]


def test_the_command_of_a_rival_is_its_study_which_trains_it(tmp_path: Path) -> None:
    assert {runs.about for runs in RIVALS.values()} == {"sora", "adalora"}
    found = {row.cell: row for row in evaluation.rows(Reader(Store(tmp_path)))}
    for cell, runs in RIVALS.items():
        _, script, _, study, *rest = found[cell].command.split()
        assert (script, rest) == ("scripts/sweep.py", ["--results", "runs"])
        (first,) = selected_runs(runs)
        assert any(selected_runs(one)[0].id == first.id and runs.about in dict(one.companions)
                   for one in STUDIES[study].make())  # fmt: skip


def test_a_row_says_what_its_runs_cost_and_where(tmp_path: Path) -> None:
    runs = FOUR.runs["baseline"]
    for seed in (0, 1):
        phase = {**grown([6.0], 1e-5, 1e-5), "peak_memory_mib": 512.0}
        made = record(runs.config(seed), {"grown": phase}, hardware={"cpu": "Some CPU", "cores": 2})
        Store(tmp_path).write({**made, "time": {**made["time"], "seconds": 45.0}})
    row = next(row for row in evaluation.rows(Reader(Store(tmp_path))) if row.cell == "datafourbody.baseline")
    assert (row.place, row.study, row.runs, row.time, row.memory) == (
        "table 4",
        "baseline",
        "2 of 10",
        "1.5 min",
        "0.5 GiB",
    )
    assert "Some CPU" in row.where


@pytest.mark.parametrize("cell", ["dataeightbody.mnist-conv", "dataeightbody.cifar10-conv"])
def test_the_study_of_a_row_has_all_of_its_runs(tmp_path: Path, cell: str) -> None:
    """A smaller study has five of the ten seeds."""
    row = next(row for row in evaluation.rows(Reader(Store(tmp_path))) if row.cell == cell)
    there = {run.id for selection in STUDIES[row.study].make() for run in selected_runs(selection)}
    assert there.issuperset(run.id for run in selected_runs(RUNS[cell]))


def test_every_table_with_runs_and_a_study_is_on_the_page() -> None:
    """The committed page; `make paper` renews its costs."""
    page = (ROOT / "docs" / "evaluate.md").read_text().replace(" \\\n      ", " ")
    assert [line for line in page.splitlines() if line.startswith("### Table")] == [f"### Table {n}" for n in WORDS]
    commands = {line.strip() for line in page.splitlines() if line.startswith("  python ")}
    assert {evaluation.command_of(runs, "lora_llama3") for runs in RUNS.values()} == commands


def test_every_number_of_a_table_and_a_figure_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert [table.name for table in tables_of(10)] == ["datatenbody"]
    assert [table.name for table in tables_of(7)] == ["datasevenbody", "datasevenfullbody"]
    assert {table.name for table in tables_of(4)} == {"datafourbody", "datafourfullbody"}
    numbered = [table.name for number in WORDS for table in tables_of(number)]
    assert len(numbered) == len(set(numbered)), "no macro has two numbers"
    assert [figure_of(number) for number in FIGURES] == [f"figure{number}" for number in FIGURES]
    for line, said in (
        (["--table", "5"], "5 is a figure of the paper: --figure 5"),
        (["--figure", "8"], "8 is a table of the paper: --table 8"),
        (["--table", "12"], "the paper's tables with results are 4, 7, 8"),
        (["--figure", "4"], "4 is a table of the paper: --table 4"),
    ):
        assert build_paper_data.main(line) == 2
        assert said in capsys.readouterr().err


def test_a_figure_answers_with_its_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build_paper_data.main(["--figure", "5", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("untested: ")
    assert out.endswith("draw it: python scripts/build_figures.py --only figure5\n")
