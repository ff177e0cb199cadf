"""Commands in files: presets of the command line, and users' own studies."""

import contextlib
import json

import programs
import pytest

from experiments.cli import app
from experiments.cli.sweep import FileStudy
from experiments.config import compose
from experiments.core.blocks import ConfigError
from experiments.core.paths import RUNS
from experiments.store import provenance
from scripts import sweep

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
def mine(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def test_typed_overrides_replace_those_of_a_preset():
    _, jobs = app.prepare(["experiment=prices", "seed=7", "schedule.lambda0=1e-2"])
    assert [(job.run.config.seed.value, job.run.config.schedule.lambda0) for job in jobs] == [(7, 1e-2)]
    assert {job.run.config.tag for job in jobs} == {"prices"}
    assert len(app.prepare(["experiment=methods", "profile=smoke"])[1]) == 12, "also with few components"


ROWS = "rows={schedule.lambda0:1e-5,schedule.alpha_max:1e-5},{schedule.lambda0:1e-3,schedule.alpha_max:1e-3}"


def test_rows_vary_settings_together(tmp_path):
    (path := tmp_path / "mine.yaml").write_text(
        "seed: 0..1\nsweep:\n  gate.t0: [1, 2]\nrows:\n"
        "- {schedule.lambda0: 1e-5, schedule.alpha_max: 1e-5}\n- {schedule.lambda0: 1e-3, schedule.alpha_max: 1e-3}\n"
    )
    _, typed = app.prepare([ROWS, "gate.t0=1,2", "seed=0..1"])
    assert {job.run.id for job in FileStudy(path).jobs} == {job.run.id for job in typed}
    pairs = [(job.run.config.schedule.lambda0, job.run.config.schedule.alpha_max) for job in typed]
    assert pairs == [(1e-5, 1e-5)] * 4 + [(1e-3, 1e-3)] * 4
    assert [job.tokens[-2:] for job in typed] == [
        (f"gate.t0={t}", f"seed.value={s}") for t in (1, 2) for s in (0, 1)
    ] * 2
    assert typed[4].tokens[:2] == ("schedule.lambda0=0.001", "schedule.alpha_max=0.001"), "what Hydra composes"
    assert typed[0].label == "schedule.lambda0=1e-05 schedule.alpha_max=1e-05 gate.t0=1 seed=0"


def test_a_single_row_is_its_settings():
    tokens, jobs = app.prepare(["rows={gate.t0:2,schedule:beta4}"])
    assert {"gate.t0=2", "schedule=beta4"} <= set(tokens)
    assert (jobs[0].run.config.gate.t0, jobs[0].run.config.schedule.beta_end) == (2, 4)
    assert "schedule.lambda0=1e-05" in app.prepare([ROWS, "--cfg", "job"])[0]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("- a\n", "has no settings"),
        ("seed: [1\n", "mine.yaml, line 2: did not find expected ',' or ']'"),
        ("schedule.lambda0: [1e-5, 1e-3]\n", "with each of these values, write it below 'sweep:'"),
        ("sweep: {seed: 3}\n", "needs a list of values"),
        ("sweep: [{gate.t0: 1}]\n", "go below 'rows:'"),
        ("rows: {gate.t0: 1}\n", "needs a list of settings that vary together"),
        ("train.stepz: 3\n", r"unknown key 'train\.stepz'"),
        ("hydra.callbacks: {a: b}\n", "callbacks are not allowed"),
    ],
)
def test_a_damaged_study_is_refused_by_name(tmp_path, content, fault):
    (path := tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ConfigError, match=fault):
        _ = FileStudy(path).jobs


def test_a_users_study_is_planned_run_and_shown(mine, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NGN_OUTPUT", str(tmp_path / "output"))  # for the worker
    assert FileStudy(mine).results == RUNS
    places = [str(mine), f"--results={tmp_path / 'records'}"]
    assert sweep.main(["status", *places]) == 1
    assert sweep.main(["run", *places]) == 0
    assert sweep.main(["status", *places]) == 0
    assert "4 of 4 runs done" in capsys.readouterr().out
    assert sweep.main(["table", *places]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:3]] == [["0.0001", "2"], ["0.001", "2"]]


@pytest.fixture
def own_conf(tmp_path, monkeypatch):
    """Set $NGN_CONF to a folder with a schedule, a set of seeds and a preset."""
    folder = tmp_path / "conf"
    for group, content in {
        "schedule/slow": "# @package _global_\nschedule:\n  lambda0: 3.0e-5\n",
        "seed/three": "# @package _global_\nseed:\n  set: 4..6\n",
        "experiment/own": "schedule: slow\nseed: three\n",
    }.items():
        (path := folder / f"{group}.yaml").parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setenv("NGN_CONF", str(folder))
    caches = (compose.options, compose._selection, provenance.conf_digest)
    for cached in caches:
        cached.cache_clear()
    yield folder
    for cached in caches:
        cached.cache_clear()


def test_a_fault_in_a_users_file_names_it(own_conf):
    (own_conf / "schedule" / "slow.yaml").write_text("schedule:\n  beta_start:\n")
    with pytest.raises(ConfigError, match=r"beta_start: must be a number .*\n\(with your .*/schedule/slow.yaml\)"):
        app.prepare(["schedule=slow"])


def test_a_users_configuration_folder_adds_choices(own_conf):
    _, jobs = app.prepare(["experiment=own"])
    assert [(job.run.config.seed.value, job.run.config.schedule.lambda0) for job in jobs] == [
        (n, 3e-5) for n in (4, 5, 6)
    ]
    for foreign in ("schedule=../../../etc/x", "schedule=../schedule/slow", "schedule=papr", f"schedule={own_conf}/x"):
        with pytest.raises(ConfigError, match="no such schedule"):
            app.prepare([foreign])


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("schedule/paper", "schedule: {}", "the suite already has schedule=paper; rename your file"),
        ("hydra/launcher/x", "_target_: os.system", "there is no group hydra/launcher"),
        ("hydra/x", "run: {dir: x}", "there is no group hydra"),
        ("schedule/evil", "hydra: {callbacks: {x: {_target_: os.system}}}", "unknown key 'hydra'"),
    ],
)
def test_a_users_configuration_folder_changes_nothing_else(own_conf, name, content, fault):
    (path := own_conf / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    with pytest.raises(ConfigError, match=fault):
        app.prepare(["schedule=evil"])


def test_the_record_holds_its_digest_and_hydra_shows_its_choices(own_conf, tmp_path):
    places = {"cwd": tmp_path, "NGN_CONF": str(own_conf), "NGN_OUTPUT": str(tmp_path / "out")}
    assert "lambda0: 3.0e-05" in programs.suite("schedule=slow", "--cfg", "job", **places).stdout
    programs.suite("schedule=slow", "profile=smoke", "train.steps=2", "phases=[grown]", **places)
    (path,) = (tmp_path / "out").rglob("regression1d-*.json")
    record = json.loads(path.read_text())
    assert record["execution"]["conf"] == provenance.conf_digest(own_conf)
    assert record["config"]["schedule"]["lambda0"] == 3e-5


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("task=", [f"task={name}" for name in compose.options("task")]),
        # Hydra alone cannot compose the words before the last one: a seed, and a task without its gate.
        ("task=cora seed=0..9 train.ste", ["train.steps="]),
        ("ex", ["experiment="]),
        ("experiment=s", ["experiment=search", "experiment=sizes", "experiment=starts"]),
    ],
)
def test_completion_is_hydras_after_any_words_of_the_suite(typed, offered, monkeypatch, capsys):
    monkeypatch.setenv("COMP_LINE", f"python run.py {typed}")
    with contextlib.suppress(SystemExit):  # what Hydra itself completes returns
        app.main(["-sc", "query=bash"])
    assert capsys.readouterr().out.split() == offered


@pytest.mark.parametrize("name", ["..yaml", "...yaml", ".yaml", "a\x1b[2J.yaml"])
def test_a_study_has_a_name_that_a_folder_can_have(tmp_path, name):
    """``..yaml`` would put its plans among the folders of all studies."""
    with pytest.raises(ConfigError, match="rename it") as refused:
        print(FileStudy(tmp_path / name).name)
    assert str(refused.value).isprintable()
