"""``method=budget``: runs stay within their budget, and invalid budgets are refused before training."""

import pytest

from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.config.run_files import runs_of
from experiments.core.blocks import ConfigError
from experiments.runs import launch
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
        assert len(budget["even"]) == len(budget["evidence"]) == len(phase["count"])
        if len(phase["count"]) == 1:
            assert budget["even"] == phase["count"]
            assert budget["evidence"] == [0.0], "nothing to part from"


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({}, "a budget needs its size"),
        ({"method.count": 2, "method.macs": "50%"}, "a budget is one of"),
        ({"method.count": 2, "schedule.commit": None}, "schedule.commit"),
        ({"method.count": 2, "continue_with": [0.1]}, "no price"),
        ({"method.count": [2, 2]}, "method.count=N"),
        ({"method.parameters": "half"}, "method.parameters"),
        ({"method.parameters": "150%"}, "limits nothing"),
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


def test_what_moves_other_boundaries_changes_no_budget_run(tmp_path):
    def of(count=2, **more):
        return config(tmp_path, **{"method.count": count, "gate.t0": 2.6, "engine": "torch", **more})

    moved = {"schedule.lambda0": 0.1, "schedule.alpha_max": 0.3, "schedule.kappa": 2.0, "schedule.beta_start": 1.0,
             "schedule.beta_end": 40.0, "train.lr_boundary": 3.0, "train.clip_scope": "separate"}  # fmt: skip
    names = {run_id(of()), *(run_id(of(**{key: value})) for key, value in moved.items())}
    assert len(names) == 1
    assert run_id(of(count=3)) not in names
    (first,), (second,) = (launch.launch([of(**own, force=True)]) for own in ({}, moved))
    store, phase = Store(tmp_path), "grown"
    one, other = (store.get(outcome.run_id)["phases"][phase]["truncated"] for outcome in (first, second))
    assert one == other


def test_a_commit_needs_a_boundary():
    with pytest.raises(ConfigError, match=r"no boundary that schedule\.commit could round"):
        compose({"method": "decay"}, {"method.boundary": False, "schedule.commit": 0.9, "phases": ["grown"]})
