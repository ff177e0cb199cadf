"""A folder outside the suite can add a method (a file and a YAML) and a task (a file and its YAMLs)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import programs
import pytest

from experiments.paths import ROOT

EXAMPLE = ROOT / "examples" / "plugin"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "mine"))


def ngn(plugin: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return programs.run(ROOT / "run.py", *arguments, cwd=plugin.parent, env={**os.environ, "NGN_PLUGINS": str(plugin)})


@pytest.mark.slow
def test_a_plugged_in_task_and_method_are_trained_and_recorded(plugin: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    small = ["profile=smoke", "gate.K=8", "gate.t0=1e-4", "train.steps=6", f"results={results}"]
    done = ngn(plugin, "task=sine", "method=urgent", "method.factor=2,3", "seed=0..1", *small)
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in sorted((results / "sine").glob("*.json"))]
    assert len(records) == 4
    for record in records:
        assert record["run_id"].startswith("sine-two_sums-urgent-s")
        assert record["code"]["numerics"] == {"task": 1, "method": 1, "fixed": 1}
        assert not record["code"]["clean"], "no commit of the suite says what a plug-in computes"
        grown, high = record["phases"]["grown"], record["phases"]["from_high"]
        assert len(grown["count"]) == 2
        assert grown["t"][0] < 0.3 < grown["t"][1], "each kind of groups has a start of its own"
        assert high["t"] == pytest.approx([7.0, 3.0], abs=0.5), "K - 1 of each group"
    assert len({record["phases"]["grown"]["t"][1] for record in records}) == 4
    # each also works with the suite's own tasks and methods
    assert ngn(plugin, "task=cora", "method=urgent", "phases=[grown]", *small).returncode == 0


def test_plugged_in_configurations_are_shown_and_checked(plugin: Path) -> None:
    shown = ngn(plugin, "task=sine", "--cfg", "job")
    assert "name: sine" in shown.stdout
    refused = ngn(plugin, "task=sine", "gate.kinds.outer.K=2", "gate.kinds.outer.t0=3")
    assert refused.returncode == 2
    assert "the initial boundary t0 = 3 lies beyond the K = 2 candidates" in refused.stderr
    fitting = ngn(plugin, "task=sine", "gate=mlp")
    assert "gate=mlp does not fit task=sine; the gates that fit are: two_sums" in fitting.stderr


def test_a_missing_plugin_folder_is_named(tmp_path: Path) -> None:
    refused = ngn(tmp_path / "nowhere", "task=cora")
    assert refused.returncode == 2
    assert f"there is no folder {tmp_path / 'nowhere'}" in refused.stderr


def test_a_missing_value_names_the_file_to_set_it_in(plugin: Path) -> None:
    setting = plugin / "conf" / "setting" / "sine-two_sums.yaml"
    setting.write_text(setting.read_text().replace("  lambda0: 1.0e-4\n", ""))
    refused = ngn(plugin, "task=sine")
    assert refused.returncode == 2
    assert f"schedule.lambda0: has no value; set it in {setting}" in refused.stderr
    unknown = ngn(plugin, "task=sine", "schedule=slow")
    assert "To add one, write conf/schedule/slow.yaml" in unknown.stderr


def test_plugged_in_tables_figures_studies_and_methods_are_found(plugin: Path) -> None:
    code = (
        "from experiments.figures import FIGURES; from experiments.methods import METHODS;"
        "from experiments.studies import STUDIES; from experiments.tables import MACROS, OWN;"
        "from experiments.analysis.collect import Reader; from experiments.paths import ROOT;"
        "from experiments.store.records import Store;"
        "figure = FIGURES['sine_error']; print(figure.section, len(figure.data(Reader(Store(ROOT / 'none'))).runs));"
        "print(list(OWN)[-1], len(MACROS), [*STUDIES][-1], len([*STUDIES['sine'].runs()]));"
        "print(METHODS['urgent'].source.name)"
    )
    environment = {**os.environ, "NGN_PLUGINS": str(plugin)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["own 2", "sine_sizes 22 sine 2", "NGN at a multiple of its price"], done.stderr
