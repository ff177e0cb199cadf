"""The real program as a user calls it, the list of studies; both compositions of a configuration are equal."""

import re
import shlex
import shutil
import subprocess
import sys

import programs
import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from experiments.cli import app, arguments, expand
from experiments.cli.app import prepare
from experiments.config import compose
from experiments.core.paths import CONF, ROOT
from experiments.studies import FIGURES, STUDIES, macros
from experiments.tasks import GATES_OF_TASK, TASKS


def test_help_names_groups_seeds_and_exit_statuses(tmp_path):
    done = programs.suite("--help", cwd=tmp_path)
    assert done.stderr == ""
    tasks = "task: cifar10, cora, gsm8k, manifold, mnist, regression1d, spider, squad, tinystories, twist"
    assert all(part in done.stdout for part in (tasks, "seed=0..9", "gate=conv", "Exit status"))


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
    command = [sys.executable, "-X", "importtime", "run.py", "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "experiments.analysis" in done.stderr
    assert not re.search(r"\| +(torch|hydra)$", done.stderr, re.M)
    rows = dict(re.findall(r"^(\w+) {2,}(\S.*)$", done.stdout, re.M))
    assert rows.keys() == STUDIES.keys() | {"study"}
    assert rows["schedules"].startswith("300 ")
    assert "GiB" in rows["vision"], "its records tell"
    assert re.search(r"[\d.]+ h +\?$", rows["lora_llama3"].strip()), "its own estimate, as no record tells"
    shown = {name for line in re.findall(r"→((?:.*\n {6})*.*)", done.stdout) for name in re.split(r"[,\s]+", line)}
    assert shown - {""} == {table.name for table in macros() if table.runs} | FIGURES.keys()


PAIRS = [(task, gate) for task, gates in GATES_OF_TASK.items() for gate in gates]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "gate"), PAIRS)
def test_the_two_compositions_are_equal_for_every_selection(task, gate):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        pretrained = TASKS[task].usual_model != "none"
        groups = ("schedule", "method", "profile", *(("model", "budget") if pretrained else ()))
        names = {group: list(compose.options(group)) for group in groups}
        # Two choices of each group in turn, so that each choice occurs. All products would take minutes, and the file
        # of a group does not depend on the choices of other groups.
        first = 2 * PAIRS.index((task, gate))
        for n in (first, first + 1):
            choices = {"task": task, "gate": gate, **{group: each[n % len(each)] for group, each in names.items()}}
            hydras = hydra_compose("config", overrides=[f"{key}={value}" for key, value in choices.items()])
            assert OmegaConf.to_container(hydras, resolve=True) == compose.selection(choices), choices


def test_the_two_compositions_are_equal_under_overrides():
    overrides = ["task=mnist", "gate=conv", "train.lr_shape={kind:linear}", "gate.channels=[4,4]", "train.clip=0.1"]
    changes = {"train.lr_shape": {"kind": "linear"}, "gate.channels": [4, 4], "train.clip": 0.1}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        hydras = OmegaConf.to_container(hydra_compose("config", overrides=overrides))
    assert isinstance(hydras, dict)
    ours = compose.compose({"task": "mnist", "gate": "conv"}, changes)
    assert compose.check({str(key): value for key, value in hydras.items()}) == ours
    assert ours.gate.channels == [4, 4]


def test_exactly_the_fitting_pairs_have_a_setting():
    assert list(compose.options("setting")) == sorted(f"{task}-{gate}" for task, gate in PAIRS)


def _commands():
    """Return every command in the first lines of conf/ files, in docs/study.md and in the help."""
    found = []
    for path in sorted(CONF.rglob("*.yaml")):
        header = path.read_text().splitlines()[:2]
        named = [line.removeprefix("# ") for line in header if line.startswith("# python run.py")]
        assert len(named) == 1, f"{path} does not name its command in its first two lines"
        group, choice = path.parent.name, path.stem
        unnamed = group in ("conf", "setting", "hydra", "help") or choice == "none"
        assert unnamed or f"{group}={choice}" in named[0], path
        found += named
    for path in (CONF.parent / "docs" / "study.md", CONF / "hydra" / "help" / "ngn.yaml"):
        found += re.findall(r"^ +(python run\.py .*?)(?:  .*)?$", path.read_text(), re.MULTILINE)
    readme = (CONF.parent / "README.md").read_text()
    found += [line.strip() for line in re.findall(r"^(python run\.py [^#\n]*)", readme, re.MULTILINE)]
    return sorted({command for command in found if not re.search("--(list|watch)", command)})  # these run nothing


@pytest.mark.parametrize("command", _commands())
def test_documented_commands_are_accepted(command, monkeypatch):
    for module in (arguments, expand):
        monkeypatch.setattr(module, "missing", lambda *modules: None)  # plug-ins of Hydra, loggers
    monkeypatch.setattr(arguments, "refuse_unknown_settings", lambda tokens: None)
    rewritten, jobs = prepare(shlex.split(command, comments=True)[2:])
    assert jobs or "--cfg" in rewritten or "--help" in rewritten
