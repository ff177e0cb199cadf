"""Run identifiers: stable, shared where runs are shared, and indifferent to how a run is carried out."""

import json
from pathlib import Path

import pytest

from experiments.config import identity
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.config.schema import CheckedConfig
from experiments.paths import RESULTS
from experiments.runs.phases import fixed_configuration

FROZEN = Path(__file__).parent / "frozen_ids.json"


def test_frozen_ids_never_change():
    """Configurations as they were when their ids were first used, whole, so that new defaults do not matter.

    The file is only ever appended to: a changed line would orphan every record of that run.
    """
    rows = json.loads(FROZEN.read_text())
    assert len(rows) >= 20
    for row in rows:
        assert run_id(CheckedConfig.model_validate(row["config"])) == row["id"]


def test_every_committed_record_is_named_after_its_configuration():
    paths = sorted(RESULTS.glob("*/*.json"))
    assert paths
    for path in paths:
        record = json.loads(path.read_text())
        assert run_id(CheckedConfig.model_validate(record["config"])) == record["run_id"] == path.stem


@pytest.mark.parametrize(
    "override",
    [
        {"device": "cpu"},
        {"threads": 3},
        {"results": "x"},
        {"data_root": "y"},
        {"force": True},
        {"progress": "never"},
        {"checkpoint_seconds": 5.0},
        {"allow_many_jobs": True},
    ],
)
def test_how_a_run_is_carried_out_is_no_part_of_it(override):
    assert run_id(compose({}, override)) == run_id(compose())


@pytest.mark.parametrize(
    "override",
    [
        {"seed.value": 1},
        {"gate.K": 31},
        {"schedule.lambda0": 2e-4},
        {"train.steps": 24999},
        {"task.draw": 0},
        {"train.optimizer": "adamw"},
        {"train.warmup": 0.1},
    ],
)
def test_what_a_run_computes_is(override):
    assert run_id(compose({}, override)) != run_id(compose())


def test_equal_numbers_are_equal_runs():
    assert run_id(compose({}, {"schedule.lambda0": 0.0001, "gate.t0": 1})) == run_id(
        compose({}, {"schedule.lambda0": 1e-4, "gate.t0": 1.0})
    )


def test_a_key_added_later_counts_only_off_its_default(monkeypatch):
    """With task.draw as if it had been added after the first records were written."""
    before = {k: v for k, v in identity.identity_keys(compose()).items() if k != "task.draw"}
    monkeypatch.setattr(identity, "ADDED_LATER", {**identity.ADDED_LATER, "task.draw": 1})
    assert identity.identity_keys(compose()) == before
    assert identity.identity_keys(compose({}, {"task.draw": 2})) == {**before, "task.draw": 2}


def test_the_fixed_retraining_is_the_run_of_its_own():
    alone = compose({"task": "cora", "method": "fixed"}, {"method.count": 3, "seed.value": 4})
    grown = compose({"task": "cora"}, {"seed.value": 4, "schedule.lambda0": 0.5, "gate.t0": 2.0})
    assert run_id(fixed_configuration(grown, 3)) == run_id(alone)
