"""Small runs, and checks that hold for every run with all four kinds of phases, for any task."""

import json

import pytest

from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.runs import launch
from experiments.store.records import Store

ALL = {"phases": ["grown", "fixed", "from_high"], "continue_with": [10.0]}


def smoke(folder, task="regression1d", gate=None, method="ngn", **overrides):
    """A run of few steps with its record below a folder. In names of keys, ``__`` may stand for a dot."""
    choices = {"task": task, "profile": "smoke", "method": method, **({"gate": gate} if gate else {})}
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    return compose(choices, {"results": str(folder / "results"), "progress": "never", "train.steps": 12, **keys})


def trained(*configs):
    """Train; return the records."""
    return [json.loads(outcome.path.read_text()) for outcome in launch.launch(configs)]


def checked(config, outcome, steps):
    """Check the record and the curves of a run of ``steps`` steps, and return them."""
    record = json.loads(outcome.path.read_text())
    assert record["run_id"] == outcome.run_id == run_id(config)
    assert list(record["phases"]) == ["grown", "fixed", "from_high", "continue_10"]
    grown, fixed, high, continued = record["phases"].values()
    assert continued["lambda0"] == pytest.approx(10 * config.schedule.lambda0)
    assert grown["count"] == fixed["count"]
    assert {"soft", "truncated", "t", "integer"} <= set(grown)
    assert ("gates_kept" in grown) == (config.task.usual_model == "none")
    assert "soft" not in fixed
    assert high["prunes_back"]["outcome"] in ("yes", "partial", "no")
    assert grown["parameters"]["deployed"] <= grown["parameters"]["candidate"]
    assert high["t"][0] > 1
    if config.task.name in ("mnist", "cifar10", "cora"):
        of_grown, of_fixed = grown["cost"], fixed["cost"]
        assert set(of_grown["milliseconds"]) == {"candidate", "deployed"}
        assert set(of_fixed["milliseconds"]) == {"deployed"}
        assert 0 < of_grown["multiply_adds"]["deployed"] < of_grown["multiply_adds"]["candidate"]
        assert of_fixed["multiply_adds"]["deployed"] == of_grown["multiply_adds"]["deployed"]
    curves = Store(outcome.path.parents[1]).curves(outcome.run_id)
    assert curves["grown.t"].shape == (steps, config.gate.groups)
    assert {"fixed.task", "from_high.t"} <= set(curves)
    assert curves["continue_10.t"][0] == pytest.approx(grown["t"], rel=1e-6)
    assert record["data"]["sha256"]
    return record, curves
