"""Parts from a folder outside the suite: what their records say, and what is refused."""

import json
import os

import programs
import pytest

from experiments.core.blocks import ConfigError
from experiments.core.paths import ROOT
from experiments.core.plugins import discover_values
from experiments.studies.model import Study

EXAMPLE = ROOT / "examples" / "plugin"


def ngn(plugin, *arguments):
    return programs.run(ROOT / "run.py", *arguments, cwd=plugin.parent, env={**os.environ, "NGN_PLUGINS": str(plugin)})


@pytest.mark.slow
def test_what_the_records_of_a_task_and_a_method_from_outside_say(tmp_path):
    small = ["profile=smoke", "train.steps=6", f"results={tmp_path}"]
    done = ngn(EXAMPLE, "task=sine", "method=urgent", "method.factor=2,9", "seed=0..1", *small)
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in sorted((tmp_path / "sine").glob("*.json"))]
    assert len(records) == 4
    for record in records:
        assert record["code"]["numerics"] == {"task": 1, "method": 1}
        assert not record["code"]["clean"], "no commit of the suite says what a plug-in computes"
        assert record["data"]["provenance"] == "generated: 16 points", "the smoke twin"
    assert len({record["phases"]["grown"]["t"][0] for record in records}) == 4
    # and each goes with what the suite has
    assert ngn(EXAMPLE, "task=cora", "method=urgent", "phases=[grown]", *small).returncode == 0


def test_a_folder_that_is_not_there_is_named(tmp_path):
    refused = ngn(tmp_path / "nowhere", "task=cora")
    assert refused.returncode == 2
    assert f"there is no folder {tmp_path / 'nowhere'}" in refused.stderr


def test_a_folder_of_the_former_layout_is_named(tmp_path, monkeypatch):
    (tmp_path / "figures" / "__pycache__").mkdir(parents=True)  # is left by git, and holds nothing of the user
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "sizes.py").touch()
    monkeypatch.setenv("NGN_PLUGINS", str(tmp_path))
    with pytest.raises(ConfigError, match=r"tables: is read no more; move its files to .*/studies"):
        discover_values("experiments.studies", [], Study)
