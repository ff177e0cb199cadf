"""Run ids: stable, equal for shared runs, independent of execution settings; and planning without torch."""

import json
import subprocess
import sys
from pathlib import Path

from experiments.config import identity
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.config.schema import CheckedConfig
from experiments.core.paths import RESULTS, ROOT

FROZEN = Path(__file__).parent / "frozen_ids.json"


def test_frozen_ids_never_change():
    """The file holds configurations from the first use of their ids. Only append: a changed line orphans records."""
    rows = json.loads(FROZEN.read_text())
    assert len(rows) >= 20
    for row in rows:
        assert run_id(CheckedConfig.model_validate(row["config"])) == row["id"]


def test_every_committed_record_has_the_run_id_of_its_configuration():
    paths = sorted(RESULTS.glob("*/*.json"))
    assert paths
    for path in paths:
        record = json.loads(path.read_text())
        assert run_id(CheckedConfig.model_validate(record["config"])) == record["run_id"] == path.stem


def test_execution_settings_are_no_part_of_the_run_id():
    execution = {"device": "cpu", "threads": 3, "results": "x", "data_root": "y", "force": True, "progress": "never"}
    execution |= {"checkpoint_seconds": 5.0, "allow_many_jobs": True}
    assert run_id(compose({}, execution)) == run_id(compose())


def test_scientific_settings_are_part_of_the_run_id():
    scientific = {"seed.value": 1, "gate.K": 31, "schedule.lambda0": 2e-4, "train.steps": 24999, "task.draw": 0}
    scientific |= {"train.optimizer": "adamw", "train.warmup": 0.1, "train.matmul": "high"}
    ids = {run_id(compose({}, changes)) for changes in ({}, *({key: value} for key, value in scientific.items()))}
    assert len(ids) == 1 + len(scientific)


def test_equal_numbers_give_equal_run_ids():
    assert run_id(compose({}, {"schedule.lambda0": 0.0001, "gate.t0": 1})) == run_id(
        compose({}, {"schedule.lambda0": 1e-4, "gate.t0": 1.0})
    )


def test_a_key_added_later_counts_only_off_its_default(monkeypatch):
    """The test treats task.draw as a key that was added after the first records."""
    before = {k: v for k, v in identity.identity_keys(compose()).items() if k != "task.draw"}
    monkeypatch.setattr(identity, "ADDED_LATER", {**identity.ADDED_LATER, "task.draw": 1})
    assert identity.identity_keys(compose()) == before
    assert identity.identity_keys(compose({}, {"task.draw": 2})) == {**before, "task.draw": 2}


SCRIPT = """
import shutil, subprocess, sys
for name in ("torch", "torchvision", "torch_geometric"):
    sys.modules[name] = None  # importing it raises ImportError
real = subprocess.Popen.__init__
def started(self, command, *args, **kwargs):
    program = command if isinstance(command, str) else str(command[0])
    assert program.rpartition("/")[2] == "git", f"started {command}"
    real(self, command, *args, **kwargs)
subprocess.Popen.__init__ = started

from experiments.analysis.selection import selected_runs
from experiments.cli.app import prepare
from experiments.config.identity import numerics
from experiments.runs.stack import stacks_of
from experiments.studies import STUDIES
import experiments.runs.sweeps.plan, experiments.runs.sweeps.status

runs = stacks = 0
for study in STUDIES.values():
    wanted = [run for selection in study.make() for run in selected_runs(selection)]
    assert all(numerics(run.config)["task"] >= 1 for run in wanted)
    planned = stacks_of(wanted)
    assert sum(map(len, planned)) == len(wanted)
    runs, stacks = runs + len(wanted), stacks + len(planned)
assert len(prepare(["task=cora", "seed=0..9"])[1]) == 10
print(runs, stacks)
"""


def test_every_study_is_planned_without_torch_and_without_a_compiler():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs, stacks = map(int, done.stdout.split())
    assert 0 < stacks < runs
