"""Damaged, foreign, stale and dirty records are named, and never averaged."""

# ruff: noqa: F401, F811 (fixtures are imported, and then named as arguments)

import json
import re
from typing import Any

import pytest
import record_samples as samples
from table_samples import build, cell, filled, store

from experiments.analysis.collect import Reader
from experiments.store.records import RecordError, Store
from experiments.studies.one_d import BASELINE


def _dirty(store):
    samples.put(store, BASELINE, 3, {"grown": samples.grown([6.0], 1e-5, 1e-5)}, clean=False)


def _stale(store):
    code = {"commit": None, "clean": True, "source": "git", "numerics": {"task": 1, "method": 0}}
    samples.put(store, BASELINE, 3, {"grown": samples.grown([6.0], 1e-5, 1e-5)}, code=code)


def _text(store, change):
    path = store.path(samples.baseline_id(3))
    path.write_text(change(path.read_text()))


def _edited(store, **changes):
    _text(store, lambda text: json.dumps(samples.sealed({**json.loads(text), **changes})))


def _other_configuration(store):
    config = json.loads(store.path(samples.baseline_id(3)).read_text())["config"]
    config["schedule"]["lambda0"] = 0.5
    _edited(store, config=config)


def _not_finite(store):
    _text(store, lambda text: re.sub(r'"mse": [\d.e-]+', '"mse": NaN', text))


def _other_data(store):
    _edited(store, data={"name": "regression1d", "sha256": "1" * 64, "provenance": "elsewhere"})


def _synthetic_data(store):
    _edited(store, data={"name": "synthetic-regression1d", "sha256": "0" * 64, "provenance": "made"})


def _other_engine(store):
    execution = json.loads(store.path(samples.baseline_id(3)).read_text())["execution"]
    _edited(store, execution={**execution, "engine": "fused-step"})


@pytest.mark.parametrize(
    ("harm", "kind", "message"),
    [
        (_other_data, "data", "another sha256"),
        (_synthetic_data, "data", "trained on synthetic-regression1d"),
        (_other_engine, "engine", "another engine than the other seeds"),
        (_dirty, "dirty", "uncommitted code"),
        (_stale, "numerics", "this code has"),
        (lambda store: _text(store, lambda text: text[:200]), "damaged", "unreadable"),
        (lambda store: _text(store, lambda text: "[1, 2]"), "damaged", "not a record"),
        (lambda store: _edited(store, run_id=samples.baseline_id(4)), "damaged", "in the file's name"),
        (_other_configuration, "foreign", "schedule.lambda0"),
        (_not_finite, "damaged", "not a finite number"),
    ],
)
def test_a_bad_record_is_named_and_not_averaged(store, capsys, harm, kind, message):
    harm(store)
    status, text = build(store)
    warning = capsys.readouterr().err
    assert status == 0
    assert f"warning: skipped: {kind}: {samples.baseline_id(3)}: " in warning
    assert message in warning
    assert "datafourbody.baseline" in warning
    line = re.search(r"^baseline & .*$", text, re.MULTILINE)
    assert "--" in line[0]
    assert "e-0" not in line[0]


def test_records_of_uncommitted_code_are_shown_on_request(store, capsys):
    _dirty(store)
    assert build(store, "--strict")[0] == 1
    assert f"dirty: {samples.baseline_id(3)}: " in capsys.readouterr().err
    assert len(Reader(store, allow_dirty=True).collect(BASELINE).runs) == 10
    assert len(Reader(store).collect(BASELINE).runs) == 9


def test_a_missing_seed_is_counted_and_its_row_not_printed(store, capsys):
    store.path(samples.baseline_id(3)).unlink()
    status, text = build(store)
    assert status == 0
    assert "warning: not printed: datafourbody.baseline: 9 of 10 seeds" in capsys.readouterr().err
    line = re.search(r"^baseline & .*$", text, re.MULTILINE)
    assert "e-0" not in line[0]

    assert build(store, "--strict")[0] == 1
    assert "datafourbody.baseline: 9 of 10 seeds" in capsys.readouterr().err
