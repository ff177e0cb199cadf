"""The real program, as a user calls it; and ``run.py --list``, with every study's cost, tables and figures."""

import re
import shutil
import subprocess
import sys

import programs
import pytest

from experiments.cli import app, listing
from experiments.core.paths import ROOT
from experiments.studies import FIGURES, STUDIES, macros


def test_help_names_groups_seeds_and_exit_statuses(tmp_path):
    done = programs.suite("--help", cwd=tmp_path)
    assert done.stderr == ""
    for part in (
        "task: cifar10, cora, gsm8k, manifold, mnist, regression1d, spider, squad, tinystories, twist",
        "seed=0..9",
        "gate=conv",
        "Exit status",
    ):
        assert part in done.stdout


def test_cfg_shows_the_first_seed(tmp_path):
    done = programs.suite("task=cifar10", "seed=5..9", "--cfg", "job", "--package", "seed", cwd=tmp_path)
    assert "value: 5" in done.stdout
    assert "seed.value=5" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_runs_work_from_another_folder_and_in_a_path_with_blanks(tmp_path):
    """$NGN_OUTPUT is the folder for all output, including Hydra's folder and plans."""
    project = tmp_path / "a project"
    for name in ("ngn", "experiments", "conf", "hydra_plugins"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "run.py", project)
    (elsewhere := tmp_path / "some where").mkdir()
    line = ["profile=smoke", "seed=0,1", "device=cpu"]
    before = sorted(project.iterdir())
    place = {"cwd": elsewhere, "script": project / "run.py", "NGN_OUTPUT": str(elsewhere / "my output")}
    done = programs.suite(*line, **place)
    assert [text.split("]")[0] for text in done.stdout.splitlines()][:3] == ["[1/2", "[2/2", "medians:"]
    assert "-> my output/results/regression1d/" in done.stdout
    found = sorted(path.name for path in (elsewhere / "my output" / "results" / "regression1d").glob("*.json"))
    assert found == [f"{job.run.id}.json" for job in app.expand(app.rewrite.rewrite(line))]
    assert [path.name for path in elsewhere.iterdir()] == ["my output"]
    assert {path.name for path in (elsewhere / "my output").iterdir()} == {"checkpoints", "results", "sweeps"}
    assert sorted(project.iterdir()) == before


def test_the_list_has_every_study_with_its_runs_and_outputs():
    code = "import sys; from experiments.cli.app import main; main(['--list'])"
    code = f"try:\n {code}\nexcept SystemExit as end:\n assert not end.code and 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = dict(re.findall(r"^(\w+) {2,}(\S.*)$", done.stdout, re.M))
    assert rows.keys() == STUDIES.keys() | {"study"}
    assert rows["schedules"].startswith("300 ")
    assert "GiB" in rows["vision"], "its records tell"
    assert rows["lora_llama3"].split()[-2:] == ["?", "?"], "the records of a small model tell nothing of a large one"
    shown = {name for line in re.findall(r"→((?:.*\n {6})*.*)", done.stdout) for name in re.split(r"[,\s]+", line)}
    assert shown - {""} == {table.name for table in macros() if table.runs} | FIGURES.keys()


def test_a_table_belongs_to_the_smallest_study_with_its_runs(monkeypatch):
    monkeypatch.setattr(listing, "_tables_and_figures", lambda: iter([("one", {"a"}), ("both", {"a", "c"})]))
    runs = {"all": dict.fromkeys("ab"), "first": dict.fromkeys("a"), "third": dict.fromkeys("cd")}
    outputs = listing.outputs_of(runs)
    assert outputs == {"all": ["both"], "first": ["one", "both"], "third": ["both"]}
