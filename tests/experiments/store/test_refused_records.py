"""Damaged, foreign, stale and dirty records are named, and never averaged."""

# ruff: noqa: F401, F811 (fixtures are imported, and then named as arguments)

import json
import re

import pytest
import record_samples as samples
from table_samples import build, filled, store

from experiments.analysis.collect import Reader
from experiments.studies.one_d import BASELINE

GROWN = {"grown": samples.grown([6.0], 1e-5, 1e-5)}
DIRTY = {"clean": False}
STALE = {"code": {"commit": None, "clean": True, "source": "git", "numerics": {"task": 1, "method": 0}}}
OTHER_DATA = {"data": {"name": "regression1d", "sha256": "1" * 64, "provenance": "elsewhere"}}
MADE_DATA = {"data": {"name": "synthetic-regression1d", "sha256": "0" * 64, "provenance": "made"}}
OTHER_ENGINE = {"execution": {"device": "cpu", "engine": "fused-step", "replicas": 1, "threads": 1}}


def edited(change):
    """Change a record, and give it the digest of its new content."""

    def harm(text):
        change(record := json.loads(text))
        return json.dumps(samples.sealed(record))

    return harm


@pytest.mark.parametrize(
    ("harm", "kind", "message"),
    [
        (OTHER_DATA, "data", "another sha256"),
        (MADE_DATA, "data", "trained on synthetic-regression1d"),
        (OTHER_ENGINE, "engine", "another engine than the other seeds"),
        (DIRTY, "dirty", "uncommitted code"),
        (STALE, "numerics", "this code has"),
        (lambda text: text[:200], "damaged", "unreadable"),
        (lambda text: "[1, 2]", "damaged", "not a record"),
        (edited(lambda made: made.update(run_id=samples.baseline_id(4))), "damaged", "in the file's name"),
        (edited(lambda made: made["config"]["schedule"].update(lambda0=0.5)), "foreign", "schedule.lambda0"),
        (lambda text: re.sub(r'"mse": [\d.e-]+', '"mse": NaN', text), "damaged", "not a finite number"),
    ],
)
def test_a_bad_record_is_named_and_not_averaged(store, capsys, harm, kind, message):
    path = store.path(samples.baseline_id(3))
    if isinstance(harm, dict):
        samples.put(store, BASELINE, 3, GROWN, **harm)
    else:
        path.write_text(harm(path.read_text()))
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
    samples.put(store, BASELINE, 3, GROWN, **DIRTY)
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
