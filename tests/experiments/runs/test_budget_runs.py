"""``method=budget``: runs stay within their budget, and invalid budgets are refused before training."""

import pytest

from experiments.blocks import ConfigError
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.runs import launch
from experiments.runs.run_files import runs_of
from experiments.store.records import Store


def config(folder, task="regression1d", gate="mlp", **own):
    keys = {"results": str(folder), "progress": "never", "train.steps": 30, "train.epochs": None, **own}
    return compose({"task": task, "gate": gate, "method": "budget", "profile": "smoke"}, keys)


@pytest.mark.parametrize(
    ("task", "gate", "limits"),
    [
        ("regression1d", "mlp", [{"method.count": 2}, {"method.count": 3}, {"method.parameters": "50%"}]),
        ("mnist", "conv", [{"method.macs": "60%"}]),
        ("twist", "layers", [{"method.parameters": "60%"}]),
    ],
)
def test_no_run_deploys_more_than_its_budget(tmp_path, task, gate, limits):
    configs = [config(tmp_path, task, gate, **limit, **{"gate.t0": 2.6}) for limit in limits]
    records = [Store(tmp_path).get(outcome.run_id) for outcome in launch.launch(configs)]
    assert len(records) == len(limits)
    for limit, record in zip(limits, records, strict=True):
        phase = record["phases"]["grown"]
        budget = phase["budget"]
        assert budget["cost"] <= budget["limit"]
        assert all(phase["integer"])
        if "method.count" in limit:
            assert phase["count"][0] <= limit["method.count"]
        if budget["kind"] == "parameters":
            assert phase["parameters"]["deployed"] == budget["cost"]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({}, "a budget needs its size"),
        ({"method.count": 2, "method.macs": "50%"}, "a budget is one of"),
        ({"method.count": 2, "schedule.commit": None}, "schedule.commit"),
        ({"method.count": 2, "continue_with": [0.1]}, "no price"),
        ({"method.count": [2, 2]}, "method.count=N"),
        ({"method.parameters": "half"}, "method.parameters"),
        ({"method.parameters": "50%", "gate.K": None}, "needs a largest model"),
    ],
)
def test_invalid_budgets_are_refused(tmp_path, own, message):
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, **own)


def test_an_unreachable_budget_does_not_stop_the_other_runs(tmp_path):
    configs = [config(tmp_path, **{"method.parameters": share}) for share in ("10%", "70%")]
    done = launch.share(runs_of(configs))
    assert isinstance(done[run_id(configs[0])], ConfigError)
    assert "is too small: the smallest model has" in str(done[run_id(configs[0])])
    assert done[run_id(configs[1])].status == "complete"


def test_text_has_no_multiply_adds(tmp_path):
    with pytest.raises(ConfigError, match=r"use method\.parameters"):
        launch.launch([config(tmp_path, "wikisql_easy", "lora", **{"method.macs": "90%"})])


def test_the_price_is_no_part_of_a_budget_runs_identity(tmp_path):
    same = {run_id(config(tmp_path, **{"method.count": 2, "schedule.lambda0": price})) for price in (1e-4, 1e-2)}
    assert len(same) == 1
    assert run_id(config(tmp_path, **{"method.count": 3})) not in same


def test_a_commit_needs_a_boundary():
    with pytest.raises(ConfigError, match=r"no boundary that schedule\.commit could round"):
        compose({"method": "decay"}, {"method.boundary": False, "schedule.commit": 0.9, "phases": ["grown"]})
