"""Every method, budget and order as a run: recorded and stacked."""

import pytest
from whole_runs import smoke, trained

from experiments.analysis.selection import Selection, fixed_of_learned_count
from experiments.config.compose import compose
from experiments.config.identity import run_id, runs_of
from experiments.core.blocks import ConfigError
from experiments.runs import launch
from experiments.runs.phases import fixed_configuration

METHODS = {
    "ste": ("ste", {}),
    "l0": ("l0", {}),
    "awnn": ("awnn", {"method.width": 3.0}),
    "decay": ("decay", {}),
    "decay-normalised": ("decay", {"method.learn_r": False, "method.normalise": True}),
    "decay-free": ("decay", {"method.boundary": False, "method.normalise": True}),
}
ORDERS = {
    "power": {"gate.order_exponent": 0.5},
    "annealed": {},
    "matryoshka": {"gate.order_ranks": (1, 3)},
    "nested_dropout": {},
}


@pytest.mark.parametrize("name", METHODS)
def test_from_configuration_to_record(tmp_path, name):
    method, switches = METHODS[name]
    keys = {**switches, "gate.K": 4, "phases": ["grown", "fixed"]}
    configs = [smoke(tmp_path, method=method, **keys, seed__value=seed) for seed in range(2)]
    for config, record in zip(configs, trained(*configs), strict=True):
        assert (record["run_id"], record["status"]) == (run_id(config), "complete")
        assert record["execution"]["replicas"] == 2
        grown, fixed = record["phases"]["grown"], record["phases"]["fixed"]
        assert grown["count"] == fixed["count"]
        assert {"t", "soft", "truncated"} <= set(grown)
        assert ("r" in grown) == (name in ("awnn", "decay", "decay-free"))
        assert ("integer" in grown) == (name in ("ste", "decay", "decay-normalised"))
        if name in ("l0", "awnn", "ste"):
            assert grown["soft"] == grown["truncated"], "these train what they deploy"


def test_every_gate_closed_is_an_empty_model(tmp_path):
    keys = {"gate.K": 4, "method.price": 100.0, "train.lr_boundary": 1.0, "train.clip": None}
    (record,) = trained(smoke(tmp_path, method="l0", **keys, phases=["grown", "fixed"]))
    assert record["phases"]["grown"]["count"] == record["phases"]["fixed"]["count"] == [0]
    assert record["phases"]["grown"]["parameters"]["deployed"] <= 1  # the summed last bias


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("name", METHODS)
def test_the_fixed_model_of_a_learned_count_is_one_run(name, count):
    """Tables look up the same fixed run that a fixed phase trains, and all methods share it."""
    method, switches = METHODS[name]
    selection = Selection.of({"method": method}, switches, [5])
    found = fixed_of_learned_count(selection, 5, {"phases": {"grown": {"count": [count]}}})
    plain = compose({"method": "fixed"}, {"method.count": count, "seed.value": 5, "gate.delta": 0.5 if count else -0.5})
    assert run_id(found.config(5)) == run_id(fixed_configuration(selection.config(5), count)) == run_id(plain)


@pytest.mark.parametrize(
    ("task", "gate", "method", "score"),
    [
        ("manifold", "latent", "ngn", "nmse"),
        ("regression1d", "mlp", "decay", "mse"),
        ("tinystories", "states", "ngn", "bits_per_character"),
    ],
)
def test_a_committed_run_scores_the_same_when_truncated(tmp_path, task, gate, method, score):
    keys = {"schedule.commit": 0.5, "gate.t0": 1.3, "phases": ["grown"]}
    (record,) = trained(smoke(tmp_path, task, gate, method, **keys))
    phase = record["phases"]["grown"]
    assert all(phase["integer"])
    assert phase["truncated"][score] == pytest.approx(phase["soft"][score], rel=1e-5)


@pytest.mark.parametrize(
    ("task", "gate", "limits"),
    [
        ("regression1d", "mlp", [{"method.count": 2}, {"method.count": 3}, {"method.parameters": "50%"}]),
        ("mnist", "conv", [{"method.macs": "60%"}]),
        ("twist", "layers", [{"method.parameters": "60%"}]),
    ],
)
def test_no_run_deploys_more_than_its_budget(tmp_path, task, gate, limits):
    keys = {"train.steps": 30, "gate.t0": 2.6}
    records = trained(*(smoke(tmp_path, task, gate, "budget", **keys, **limit) for limit in limits))
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


def test_an_unreachable_budget_does_not_stop_the_other_runs(tmp_path):
    configs = [smoke(tmp_path, method="budget", method__parameters=share) for share in ("10%", "70%")]
    done = launch.share(runs_of(configs))
    assert isinstance(done[run_id(configs[0])], ConfigError)
    assert "is too small: the smallest model has" in str(done[run_id(configs[0])])
    assert done[run_id(configs[1])].status == "complete"


def test_what_moves_other_boundaries_changes_no_budget_run(tmp_path):
    moved = {"schedule.lambda0": 0.1, "schedule.alpha_max": 0.3, "schedule.kappa": 2.0, "schedule.beta_start": 1.0,
             "schedule.beta_end": 40.0, "train.lr_boundary": 3.0, "train.clip_scope": "separate"}  # fmt: skip
    keys = {"method.count": 2, "gate.t0": 2.6, "engine": "torch", "force": True}
    plain, other = (smoke(tmp_path, method="budget", **keys, **own) for own in ({}, moved))
    assert run_id(plain) == run_id(other) != run_id(smoke(tmp_path, method="budget", **{**keys, "method.count": 3}))
    (first,), (second,) = trained(plain), trained(other)
    assert first["phases"]["grown"]["truncated"] == second["phases"]["grown"]["truncated"]


def test_every_order_gives_the_same_run_in_a_stack_and_alone(tmp_path):
    for order, own in ORDERS.items():
        keys = {**own, "gate.order": order, "gate.t0": 2.6, "phases": ["grown", "fixed"]}
        stacked = trained(*(smoke(tmp_path, **keys, **{"seed.value": seed}) for seed in (3, 4)))
        (again,) = trained(smoke(tmp_path / "alone", **keys, **{"seed.value": 4}))
        assert set(again["phases"]) == {"grown", "fixed"}
        for name, phase in again["phases"].items():
            assert phase["truncated"] == pytest.approx(stacked[1]["phases"][name]["truncated"], rel=1e-3)
