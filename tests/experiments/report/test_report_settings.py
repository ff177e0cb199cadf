"""Settings tables: every scientific key has an origin, and the marks in the YAMLs agree with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from experiments.analysis.selection import Selection
from experiments.blocks import ConfigError
from experiments.config.compose import compose
from experiments.config.identity import flatten, scientific
from experiments.report import settings
from experiments.report.content import LICENCES
from experiments.report.settings import CHOSEN, PAPER, marks, origin_of, settings_tables
from experiments.studies import STUDIES
from experiments.tables import MACROS

SELECTIONS = [s for study in STUDIES.values() for s in study.make()]
SELECTIONS += [row.runs for table in MACROS for row in table.rows if row.runs is not None]


def test_every_scientific_key_of_every_study_has_an_origin() -> None:
    kinds = {(s.choices, tuple(key for key, _ in s.overrides)): s for s in SELECTIONS}
    missing = set()
    for selection in kinds.values():
        config = selection.config(selection.seeds[0])
        for key in flatten(scientific(config)):
            try:
                word, phrase = origin_of(key, config)
            except ConfigError as error:
                missing.add(str(error))
                continue
            assert word in (PAPER, CHOSEN), key
            assert phrase, key
    assert not missing, "\n".join(sorted(missing))


def test_a_key_without_a_mark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "marks", lambda path: {})
    with pytest.raises(ConfigError, match=r"regression1d-mlp\.yaml: 'train\.lr' has no origin; write '# paper: where'"):
        origin_of("train.lr", compose())


def test_the_most_specific_entry_counts() -> None:
    learned = compose({"task": "regression1d", "method": "ste"})
    assert origin_of("train.lr_boundary", learned)[0] == PAPER
    assert origin_of("train.lr_boundary", compose())[0] == CHOSEN
    assert origin_of("train.lr", compose())[0] == PAPER
    assert origin_of("train.lr", compose({"task": "cora"}))[0] == CHOSEN
    assert origin_of("schedule.alpha_shape.start", compose()) == origin_of("schedule.alpha_shape.kind", compose())


def test_marks_are_read_from_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "CONF", tmp_path)
    file = tmp_path / "x.yaml"
    file.write_text(
        "# paper\ngate:   # not from the paper: how; where\n  K: 3   # paper: table; 2\n  width: 4\n  # paper\n  r: 1\n"
        "  t0: 2   # the paper states 0\ntrain:\n  lr: 1\nphases: [grown]   # not from the paper; see the log\n"
    )
    assert marks(file) == {
        "gate.K": (PAPER, "table; 2"),
        "gate.width": (CHOSEN, "how; where"),
        "gate.r": (PAPER, ""),
        "gate.t0": (CHOSEN, "how; where"),
        "phases": (CHOSEN, ""),
    }


def test_a_line_of_a_plug_in_without_a_comment_names_its_file(tmp_path: Path) -> None:
    (file := tmp_path / "task" / "new.yaml").parent.mkdir()
    file.write_text("task:\n  points: 3\n  width: 4   # not from the paper: how\n")
    assert marks(file) == {"task.points": (CHOSEN, "task/new.yaml"), "task.width": (CHOSEN, "how")}


def test_tables_come_from_the_composed_configuration() -> None:
    standard = {"task": "regression1d", "gate": "mlp"}
    prices = [Selection.of(standard, {"schedule.lambda0": 1e-6 * n}, range(2)) for n in range(1, 11)]
    other = Selection.of({**standard, "schedule": "alpha_const"}, seeds=range(3))
    (table,) = settings_tables({"prices": prices, "constant": [other], "standard": [Selection.of(standard)]})
    lines = {line.key: line for line in table.settings}
    assert lines["gate.K"].value == "32"
    assert lines["schedule.alpha_shape"].value == "delayed linear, 0.5 to 1"
    assert (lines["gate.width"].origin, lines["gate.K"].origin) == (CHOSEN, PAPER)
    by_study = {variant.study: variant for variant in table.variants}
    (price,) = by_study["prices"].changes
    assert (price.key, price.value, by_study["prices"].runs) == ("schedule.lambda0", "10 values, 1e-06 to 1e-05", 20)
    (shape,) = by_study["constant"].changes
    assert (shape.key, shape.value) == ("schedule.alpha_shape", "constant")
    assert by_study["standard"].changes == ()


def test_a_table_that_is_nearly_an_earlier_one_shows_what_differs() -> None:
    pairs = (("wikisql_easy", "lora"), ("mnist", "mlp"), ("wikisql_hard", "lora"))
    studies = {task: [Selection.of({"task": task, "gate": gate})] for task, gate in pairs}
    first, other, third = settings_tables(studies)
    assert (first.like, other.like, third.like) == ("", "", "wikisql_easy, lora")
    assert first.shown == first.settings
    changed = set(third.settings) - set(first.settings)
    assert set(third.shown) == changed
    assert {line.key for line in third.shown} <= {line.key for line in first.settings}


def test_keys_that_a_method_does_not_use_are_left_out() -> None:
    fixed = Selection.of({"task": "regression1d", "method": "fixed"}, {"method.count": 3})
    (table,) = settings_tables({"fixed": [fixed]})
    assert [line.key for line in table.variants[0].changes] == ["method.name", "method.count"]


def test_licences_are_those_of_the_data() -> None:
    by_name = {entry["name"]: entry for entry in yaml.safe_load(LICENCES.read_text())}
    assert {"MNIST", "CIFAR-10", "Cora", "TinyStories", "synthetic data"} <= set(by_name)
    assert by_name["Cora"]["terms"] == "not stated"
    assert all(entry["url"] is None or entry["url"].startswith("https://") for entry in by_name.values())
