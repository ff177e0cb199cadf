"""Hydra and experiments.config.compose compose the same configurations; and the forms of seeds."""

import re
import shlex

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from experiments.cli import arguments
from experiments.cli.app import prepare
from experiments.config import compose
from experiments.core.paths import CONF
from experiments.tasks import GATES_OF_TASK, TASKS

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
        assert f"{group}={choice}" in named[0] or group in ("conf", "setting", "hydra", "help") or choice == "none", (
            path
        )
        found += named
    for path in (CONF.parent / "docs" / "study.md", CONF / "hydra" / "help" / "ngn.yaml"):
        found += re.findall(r"^ +(python run\.py .*?)(?:  .*)?$", path.read_text(), re.MULTILINE)
    readme = (CONF.parent / "README.md").read_text()
    found += [line.strip() for line in re.findall(r"^(python run\.py [^#\n]*)", readme, re.MULTILINE)]
    return sorted({command for command in found if "--list" not in command})  # --list runs nothing


@pytest.mark.parametrize("command", _commands())
def test_documented_commands_are_accepted(command, monkeypatch):
    monkeypatch.setattr(arguments, "missing", lambda *modules: None)  # plug-ins of Hydra
    monkeypatch.setattr(arguments, "refuse_unknown_settings", lambda tokens: None)
    rewritten, jobs = prepare(shlex.split(command, comments=True)[2:])
    assert jobs or "--cfg" in rewritten or "--help" in rewritten
