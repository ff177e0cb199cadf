"""The real program, as a user calls it; one test starts an interpreter of its own."""

import os
import shutil

import programs
import pytest

from experiments.cli import app
from experiments.config.compose import options
from experiments.core.paths import ROOT


def _run(arguments, cwd, script, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ("HYDRA_FULL_ERROR", "NGN_SCRATCH")}
    return programs.run(script, *arguments, cwd=cwd, env=clean | environment)


SCRIPT = ROOT / "run.py"


def test_help_names_groups_seeds_and_exit_statuses(tmp_path):
    done = _run(["--help"], tmp_path, SCRIPT)
    assert (done.returncode, done.stderr) == (0, "")
    for part in (
        "task: cifar10, cora, gsm8k, manifold, mnist, regression1d, spider, squad, tinystories, twist",
        "seed=0..9",
        "gate=conv",
        "Exit status",
    ):
        assert part in done.stdout


def test_cfg_shows_the_first_seed(tmp_path):
    done = _run(["task=cifar10", "seed=5..9", "--cfg", "job", "--package", "seed"], tmp_path, SCRIPT)
    assert done.returncode == 0
    assert "value: 5" in done.stdout
    assert "seed.value=5" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_info_and_hydra_help_are_hydras_own(tmp_path):
    done = _run(["--info", "defaults", "task=cora"], tmp_path, SCRIPT)
    assert done.returncode == 0
    assert "setting/cora-gcn" in done.stdout
    assert "Hydra" in _run(["--hydra-help"], tmp_path, SCRIPT).stdout


def test_completion_offers_choices_and_keys(tmp_path):
    def offered(line):
        return _run(["-sc", "query=bash"], tmp_path, SCRIPT, COMP_LINE=line).stdout.split()

    assert offered("python run.py task=") == [f"task={name}" for name in options("task")]
    # Hydra alone cannot compose the words before the last one: a seed, and a task without its gate.
    assert offered("python run.py task=cora seed=0..9 train.ste") == ["train.steps="]


@pytest.fixture
def project(tmp_path):
    """Copy the program into a path with blanks."""
    copy = tmp_path / "a project"
    for name in ("ngn", "experiments", "conf", "hydra_plugins"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SCRIPT, copy)
    return copy


@pytest.mark.slow
def test_runs_work_from_another_folder_and_in_a_path_with_blanks(project, tmp_path):
    """$NGN_OUTPUT is the folder for all output, including Hydra's folder and plans."""
    (elsewhere := tmp_path / "some where").mkdir()
    line = ["profile=smoke", "seed=0,1", "device=cpu"]
    before = sorted(project.iterdir())
    done = _run(line, elsewhere, project / "run.py", NGN_OUTPUT=str(elsewhere / "my output"))
    assert done.returncode == 0, done.stderr
    assert [text.split("]")[0] for text in done.stdout.splitlines()][:3] == ["[1/2", "[2/2", "medians:"]
    assert "-> my output/results/regression1d/" in done.stdout
    found = sorted(path.name for path in (elsewhere / "my output" / "results" / "regression1d").glob("*.json"))
    assert found == [f"{job.run.id}.json" for job in app.expand(app.rewrite.rewrite(line))]
    assert [path.name for path in elsewhere.iterdir()] == ["my output"]
    assert {path.name for path in (elsewhere / "my output").iterdir()} == {"checkpoints", "results", "sweeps"}
    assert sorted(project.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize("line", [["task=mnist,cifar10", "gate=conv"], ["task=tinystories", "gate=heads,slices"]])
def test_choices_with_their_own_settings_can_be_swept(project, tmp_path, line):
    small = ["train.steps=2", "train.epochs=null"] if "mnist" in line[0] else ["train.steps=2"]
    words = [*line, "profile=smoke", "phases=[grown]", *small]
    done = programs.run(project / "run.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("grown t = ") == 2
