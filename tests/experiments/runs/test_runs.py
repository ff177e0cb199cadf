"""Complete runs, from configuration to record, on the project's own tiny data."""

import json

import pytest
from record_samples import untimed
from whole_runs import ALL, checked

from experiments.config import run_files
from experiments.config.compose import compose
from experiments.config.run_files import Run
from experiments.runs.launch import launch
from experiments.runs.result import prunes_back
from experiments.store import provenance
from experiments.tasks import COMPONENTS, GATES_OF_TASK, TASKS

# one of the tasks on a pretrained model: they differ only in their questions; test_stories.py trains tinystories
OTHERS = {name for name, task in TASKS.items() if task.usual_model != "none"} - {"wikisql_easy"} | {"tinystories"}
FITTING = [(task, gate) for task, gates in GATES_OF_TASK.items() if task not in OTHERS for gate in gates]
PAIRS = [(task, gate) for task, gate in FITTING if not COMPONENTS[gate].given]
SLOW = ("conv", "lora", "adapter", "prune")


def smoke(tmp_path, task="regression1d", gate=None, method="ngn", **overrides):
    choices = {"task": task, "profile": "smoke", "method": method, **({"gate": gate} if gate else {})}
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return compose(choices, {"results": str(tmp_path / "results"), "progress": "never", "train.steps": 12, **keys})


@pytest.mark.parametrize(
    ("task", "gate"), [pytest.param(*pair, marks=[pytest.mark.slow] if pair[1] in SLOW else []) for pair in PAIRS]
)
def test_every_pair_goes_from_configuration_to_record(tmp_path, task, gate):
    steps = 3 if gate in SLOW else 12
    small = {"gate__K": 4, "train__steps": steps, **ALL}
    configs = [smoke(tmp_path, task, gate, seed__value=s, **small) for s in range(2)]
    outcomes = launch(configs)
    assert [o.status for o in outcomes] == ["complete"] * 2
    for config, outcome in zip(configs, outcomes, strict=True):
        checked(config, outcome, steps)
    assert not (tmp_path / "scratch").exists() or not list((tmp_path / "scratch").rglob("step-*"))


def test_a_diverged_run_has_a_status_and_no_scores(tmp_path):
    alone = [smoke(tmp_path / "calm", seed__value=seed) for seed in range(2)]
    wild = smoke(tmp_path, seed__value=1, train__lr=1e30)
    (undisturbed, _), (calm, wild) = launch(alone), launch([smoke(tmp_path, seed__value=0), wild])
    record, expected, got = (json.loads(one.path.read_text()) for one in (wild, undisturbed, calm))
    assert (calm.status, wild.status, record["status"]) == ("complete", "diverged", "diverged")
    assert untimed(got["phases"]) == untimed(expected["phases"]), "the others are the same to the bit"
    phase = record["phases"]["grown"]
    assert phase["diverged_at"] >= 0
    assert not {"soft", "truncated", "t"} & set(phase)
    assert "diverged" in wild.message


def test_smoke_and_dirty_runs_go_to_scratch(monkeypatch):
    clean, dirty = provenance.Code("c", True, "git"), provenance.Code("c", False, "git")
    for code, profile, place in (
        (clean, "full", provenance.ROOT / "runs"),
        (dirty, "full", run_files.SCRATCH / "results"),
        (clean, "smoke", run_files.SCRATCH / "results"),
    ):
        monkeypatch.setattr(run_files, "code", lambda code=code: code)
        assert Run.of(compose({"profile": profile})).root == place
    assert str(Run.of(compose({}, {"results": "elsewhere"})).root) == "elsewhere"


@pytest.mark.parametrize("task", ["regression1d", "cora"])
def test_a_stacked_run_equals_the_plain_run_of_its_seed(tmp_path, task):
    configs = [
        smoke(tmp_path, task, seed__value=s, schedule__lambda0=price, train__steps=30, phases=["grown"])
        for s, price in ((0, 1e-4), (1, 1e-2), (2, 1e-4))
    ]
    together = [json.loads(o.path.read_text())["phases"]["grown"] for o in launch(configs)]
    for config, stacked in zip(configs, together, strict=True):
        elsewhere = config.model_copy(update={"results": str(tmp_path / "plain")})
        (outcome,) = launch([elsewhere])
        alone = json.loads(outcome.path.read_text())["phases"]["grown"]
        assert stacked["t"] == pytest.approx(alone["t"], abs=1e-4)
        assert stacked["count"] == alone["count"]
        for mode in ("soft", "truncated", "gates_kept"):
            assert stacked[mode] == pytest.approx(alone[mode], rel=1e-2, abs=1e-6)


@pytest.mark.parametrize(
    ("grown", "high", "t", "outcome"),
    [
        ([3], [4], [3.0], "yes"),
        ([3], [5], [4.0], "partial"),
        ([3], [8], [6.5], "no"),
        ([3, 2], [3, 9], [2.0, 6.4], "no"),
        ([2], [1], [0.0], "yes"),
        ([3, 2], [3, 4], [2.0, 3.0], "partial"),
    ],
)
def test_prunes_back_follows_the_papers_definition(grown, high, t, outcome):
    """Rounded counts decide "yes", the continuous boundary decides "partial". Runs start at t = 7."""
    got = prunes_back(grown, high, t, [7.0] * len(t))
    assert got["outcome"] == outcome
