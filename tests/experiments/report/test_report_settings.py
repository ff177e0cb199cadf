"""Settings tables: every scientific key has an origin, and the marks in the YAMLs agree with it."""

from __future__ import annotations

import re

import pytest
import yaml

from experiments.analysis.selection import Selection
from experiments.config.compose import compose
from experiments.config.identity import flatten, scientific
from experiments.paths import CONF
from experiments.report import settings
from experiments.report.licences import NOT_STATED, licences
from experiments.report.settings import CHOSEN, PAPER, origin_of, origins, settings_tables
from experiments.studies import STUDIES
from experiments.tables import MACROS
from experiments.tasks import GATES_OF_TASK

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
            except KeyError as error:
                missing.add(error.args[0])
                continue
            assert word in (PAPER, CHOSEN), key
            assert phrase, key
    assert not missing, "\n".join(sorted(missing))


def test_a_key_without_an_entry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "origins", lambda: {"any": {"gate.K": "paper: x"}})
    with pytest.raises(KeyError, match=r"'train\.lr' has no entry"):
        origin_of("train.lr", compose())


def test_the_most_specific_entry_counts() -> None:
    learned = compose({"task": "regression1d", "method": "ste"})
    assert origin_of("train.lr_boundary", learned)[0] == PAPER
    assert origin_of("train.lr_boundary", compose())[0] == CHOSEN
    assert origin_of("train.lr", compose())[0] == PAPER
    assert origin_of("train.lr", compose({"task": "cora"}))[0] == CHOSEN
    assert origin_of("schedule.alpha_shape.start", compose()) == origin_of("schedule.alpha_shape.kind", compose())


def test_no_entry_is_without_a_key() -> None:
    """An entry of a key that no configuration has, or a scope that is none, is a misspelling."""
    methods = {path.stem for path in (CONF / "method").glob("*.yaml")}
    pairs = {f"{task}-{gate}" for task, gates in GATES_OF_TASK.items() for gate in gates}
    assert set(origins()) <= methods | pairs | {"any"}
    known = set()
    for selection in {(s.choices): s for s in SELECTIONS}.values():
        for key in flatten(scientific(selection.config(selection.seeds[0]))):
            known |= {key, key.rpartition(".")[0]}
    unknown = {key for entries in origins().values() for key in entries} - known
    assert not unknown


def _marked() -> list[tuple[str, str, str]]:
    """(scope, key, mark) of every line of a setting or method file whose comment says where it is from."""
    found = []
    for path in [*(CONF / "setting").glob("*.yaml"), *(CONF / "method").glob("*.yaml")]:
        block = ""
        for line in path.read_text().splitlines():
            head = re.match(r"(\w+):\s*(?:#.*)?$", line)
            if head:
                block = head[1]
            mark = re.match(r"  (\w+):.*?#\s*(paper|not from the paper)\b", line)
            if mark:
                found.append((path.stem, f"{block}.{mark[1]}", mark[2]))
    return found


@pytest.mark.parametrize(("scope", "key", "mark"), _marked())
def test_the_marks_of_the_yaml_files_agree(scope: str, key: str, mark: str) -> None:
    entry = origins().get(scope, {}).get(key) or origins()["any"][key]
    assert entry.startswith(PAPER if mark == "paper" else CHOSEN)


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


def test_keys_that_a_method_does_not_use_are_left_out() -> None:
    fixed = Selection.of({"task": "regression1d", "method": "fixed"}, {"method.count": 3})
    (table,) = settings_tables({"fixed": [fixed]})
    assert [line.key for line in table.variants[0].changes] == ["method.name", "method.count"]


def test_licences_are_those_of_the_data() -> None:
    by_name = {entry.name: entry for entry in licences()}
    assert {"MNIST", "CIFAR-10", "Cora", "TinyStories", "synthetic data"} <= set(by_name)
    assert by_name["Cora"].terms == NOT_STATED
    assert all(entry.url is None or entry.url.startswith("https://") for entry in by_name.values())
    assert yaml.safe_load(settings.ORIGINS.read_text()) == origins()
