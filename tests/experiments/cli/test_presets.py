"""Commands kept in files: presets of the command line, and studies of one's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from experiments.blocks import ConfigError
from experiments.cli import app
from experiments.cli.presets import OwnStudy, written_out
from experiments.paths import CONF, RUNS

sys.path.insert(0, str(CONF.parent / "scripts"))
import sweep

MINE = """
task: regression1d
profile: smoke
train.steps: 4
gate.K: 3
phases: [grown]
seed: 0..1
sweep:
  schedule.lambda0: [1e-4, 1e-3]
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def test_every_preset_of_the_suite_is_legal() -> None:
    files = sorted((CONF / "experiment").glob("*.yaml"))
    assert files
    for path in files:
        assert path.read_text().splitlines()[0] == f"# python run.py experiment={path.stem}"
        assert app.prepare([f"experiment={path.stem}"])[1]


def test_what_is_typed_takes_the_place_of_a_presets_line() -> None:
    _, jobs = app.prepare(["experiment=prices", "seed=7", "schedule.lambda0=1e-2"])
    assert [(job.config.seed.value, job.config.schedule.lambda0) for job in jobs] == [(7, 1e-2)]
    assert {job.config.tag for job in jobs} == {"prices"}


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"experiment=price: one of .*prices.* Did you mean 'prices'\?"):
        written_out(["experiment=price"])


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("- a\n", "holds no settings"),
        ("seed: [1\n", "mine.yaml, line 2: expected"),
        ("sweep: {seed: 3}\n", "a list of values for each key"),
        ("train.stepz: 3\n", r"unknown key 'train\.stepz'"),
        ("hydra.callbacks: {a: b}\n", "callbacks are refused"),
    ],
)
def test_a_damaged_study_is_refused_by_name(tmp_path: Path, content: str, fault: str) -> None:
    (path := tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ConfigError, match=fault):
        _ = OwnStudy(path).jobs


def test_a_study_of_ones_own_is_planned_run_and_shown(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert OwnStudy(mine).results == RUNS
    places = [str(mine), f"--results={tmp_path / 'records'}"]
    assert sweep.main(["status", *places]) == 1
    assert sweep.main(["run", *places]) == 0
    assert sweep.main(["status", *places]) == 0
    assert "4 of 4 runs done" in capsys.readouterr().out
    assert sweep.main(["table", *places]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:3]] == [["0.0001", "2"], ["0.001", "2"]]
