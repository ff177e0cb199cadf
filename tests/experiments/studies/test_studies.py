"""Studies name the runs that the tables and figures need."""

import pytest
from record_samples import fill

from experiments.analysis.published import value_of
from experiments.analysis.selection import keys_of
from experiments.config.identity import canonical, identity_keys, run_id
from experiments.data.texts import SETS as TEXTS
from experiments.store.records import Store
from experiments.studies import NUMBERED, STUDIES, figure_of, macros, study, tables_of
from experiments.studies.one_d import SENSITIVITY
from experiments.studies.schedules import FOUR
from scripts import build_paper_data

COUNTS = {"schedules": 300, "lambda_sweep": 500, "fixed_frontier": 750, "init_sweep": 2550, "vision_frontier": 144}


@pytest.mark.parametrize("name", COUNTS)
def test_a_study_has_its_runs_each_once(name):
    found = list(study(name).runs())
    assert len(found) == len({run.id for run in found}) == COUNTS[name]
    assert all(run_id(run.config) == run.id for run in found[:: max(1, len(found) // 20)])


def test_continued_runs_are_the_baseline_and_three_prices():
    continued = [run.config for run in study("continue_learning").runs()]
    assert continued
    for config, baseline in zip(continued, study("baseline").runs(), strict=False):
        assert config.continue_with == [0.1, 1.0, 10.0]
        assert config.model_copy(update={"continue_with": []}) == baseline.config


def test_a_variant_of_the_sensitivity_study_changes_one_setting():
    (_, base), *variants = [(row.key, identity_keys(row.runs.config(0))) for row in SENSITIVITY.rows]
    for key, own in variants:
        assert len([name for name in base | own if base.get(name) != own.get(name)]) == 1, key


def test_what_the_tables_name_is_what_their_study_runs(tmp_path):
    named = {run.id for run in study("tables").runs()}
    assert {run_id(row.runs.config(s)) for row in FOUR.rows for s in row.runs.seeds} <= named
    store = Store(tmp_path)
    fill(store)
    followed = {run.id for run in study("tables").runs(store)}
    assert named < followed
    assert all("fixed" in run for run in followed - named)


QUESTIONS = {"wikisql_easy": 1000, "wikisql_hard": 1000, "spider": 1034, "gsm8k": 500, "squad": 1000}
"""Of a score of table 11, by the digits of its scores."""


def test_each_of_the_519_cells_has_a_study_of_the_papers_own_runs():
    studied = {canonical(keys_of(runs, 0)) for each in STUDIES.values() for runs in each.make()}
    cells, minutes = 0, {}
    for table, row in ((each, row) for each in macros() for row in each.rows):
        cells += sum(value_of(table, row, column.key) is not None for column in table.columns)
        config, task = row.runs.config(0), row.runs.config(0).task
        assert canonical(keys_of(row.runs, 0)) in studied, f"{table.name}.{row.key}"
        assert (config.profile, config.budget, getattr(task, "split", "test")) == ("full", "paper", "test")
        assert getattr(task, "corpus", "whole") in ("whole", *TEXTS)
        if config.model is not None:
            gate, prunes = config.gate.component, config.gate.component == "prune"
            assert config.model.name == ("pythia_410m" if table.name == "datathirteenbody" else "llama3_8b")
            assert (task.general, task.train_examples, task.train_tokens) == ("pile10k", 2000, None)
            assert (task.eval_examples, config.gate.t0) == ((200, 15.0) if prunes else (QUESTIONS[task.name], 1e-4))
            assert config.train.epochs == (20 if gate == "adapter" and task.subset in ("easy", "hard") else 10)
            unscored = task.model_copy(update={"eval_examples": 0}).seconds(config)
            minutes[table.name, row.key] = unscored / 60 / config.trainings
    assert cells == 519
    assert 8 < min(minutes.values()) < max(minutes.values()) < 27, "the paper: 9 to 27 minutes on an A100"


def test_every_number_of_a_table_and_a_figure_answers(capsys):
    assert [table.name for table in tables_of(10)] == ["dataninebody", "datatenbody"]
    assert [table.name for table in tables_of(7)] == ["datasevenbody", "datasevenfullbody"]
    assert {table.name for table in tables_of(4)} == {"datafourbody", "datafourfullbody"}
    numbered = {table.name for number in (4, 7, 8, 9, 11, 13, 14, 15) for table in tables_of(number)}
    assert {table.name for table in macros() if table.name.startswith("data")} == numbered
    assert [figure_of(number) for number in NUMBERED] == [f"figure{number}" for number in NUMBERED]
    for line, said in (
        (["--table", "5"], "5 is a figure of the paper: --figure 5"),
        (["--figure", "8"], "8 is a table of the paper: --table 8"),
        (["--table", "12"], "the paper's tables with results are 4, 7, 8"),
        (["--figure", "4"], "4 is a table of the paper: --table 4"),
    ):
        assert build_paper_data.main(line) == 2
        assert said in capsys.readouterr().err


def test_a_figure_answers_with_its_statements(tmp_path, capsys):
    assert build_paper_data.main(["--figure", "5", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("untested: ")
    assert out.endswith("draw it: python scripts/build_figures.py --only figure5\n")
