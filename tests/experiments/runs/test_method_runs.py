"""Every method as a run: from configuration to record, in stacks, and refused where it cannot work."""

import json

import pytest

from experiments.analysis.selection import Selection, fixed_of_learned_count
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.core.blocks import ConfigError
from experiments.runs import launch
from experiments.runs.phases import fixed_configuration
from experiments.store.records import Store

METHODS = {
    "ste": ("ste", {}),
    "l0": ("l0", {}),
    "awnn": ("awnn", {"method.width": 3.0}),
    "decay": ("decay", {}),
    "decay-normalised": ("decay", {"method.learn_r": False, "method.normalise": True}),
    "decay-free": ("decay", {"method.boundary": False, "method.normalise": True}),
}


def smoke(tmp_path, name, **overrides):
    method, switches = METHODS[name]
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    own = {"results": str(tmp_path / "results"), "progress": "never", "train.steps": 12, "gate.K": 4}
    return compose({"method": method, "profile": "smoke"}, {**own, **switches, **keys})


@pytest.mark.parametrize("name", METHODS)
def test_from_configuration_to_record(tmp_path, name):
    configs = [smoke(tmp_path, name, seed__value=s, phases=["grown", "fixed"]) for s in range(2)]
    outcomes = launch.launch(configs)
    assert [o.status for o in outcomes] == ["complete"] * 2
    for config, outcome in zip(configs, outcomes, strict=True):
        record = json.loads(outcome.path.read_text())
        assert record["run_id"] == run_id(config)
        assert record["execution"]["replicas"] == 2
        grown, fixed = record["phases"]["grown"], record["phases"]["fixed"]
        assert grown["count"] == fixed["count"]
        assert {"t", "soft", "truncated"} <= set(grown)
        assert ("r" in grown) == (name in ("awnn", "decay", "decay-free"))
        assert ("integer" in grown) == (name in ("ste", "decay", "decay-normalised"))
        if name in ("l0", "awnn", "ste"):
            assert grown["soft"] == grown["truncated"], "these train what they deploy"


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [("l0", "method.price", (0.0, 50.0)), ("awnn", "method.width", (2.0, 4.0)), ("ste", "gate.t0", (0.5, 2.0))],
)
def test_replicas_of_a_stack_may_differ_in_scalars(tmp_path, name, key, values):
    together = [smoke(tmp_path, name, **{key: value}) for value in values]
    packed = [json.loads(o.path.read_text()) for o in launch.launch(together)]
    assert packed[0]["execution"]["replicas"] == 2
    assert packed[0]["phases"]["grown"]["t"] != packed[1]["phases"]["grown"]["t"]
    for value, record in zip(values, packed, strict=True):
        (alone,) = launch.launch([smoke(tmp_path / "alone", name, **{key: value})])
        single = json.loads(alone.path.read_text())
        assert single["phases"]["grown"]["t"] == pytest.approx(record["phases"]["grown"]["t"], rel=1e-4)


def test_every_gate_closed_is_an_empty_model(tmp_path):
    config = smoke(
        tmp_path, "l0", phases=["grown", "fixed"], method__price=100.0, train__lr_boundary=1.0, train__clip=None
    )
    (outcome,) = launch.launch([config])
    phases = Store(tmp_path / "results").get(outcome.run_id)["phases"]
    assert phases["grown"]["count"] == phases["fixed"]["count"] == [0]
    assert phases["grown"]["parameters"]["deployed"] <= 1  # the summed last bias


@pytest.mark.parametrize(
    ("method", "overrides", "named"),
    [
        ("l0", {"gate.K": None}, "gate.K=null needs a boundary that advances; method=l0"),
        ("awnn", {"gate.K": None}, "method=awnn needs a preset gate.K"),
        ("decay", {"gate.K": None}, "method=decay needs a preset gate.K"),
        ("l0", {"phases": ["grown", "from_high"]}, "remove from_high from phases"),
        ("awnn", {"phases": ["grown", "from_high"]}, "remove from_high from phases"),
        ("decay", {"phases": ["grown", "from_high"], "method.boundary": False}, "remove from_high from phases"),
        ("awnn", {"method.width": 33.0}, "method.width=33 exceeds the gate.K=32"),
        ("decay", {"method.learn_r": False}, "is method=ngn: use that"),
        ("decay", {"method.learn_r": False, "method.boundary": False}, "use method=fixed"),
        ("decay", {"gate.r": 1.0}, "must be below 1"),
        ("decay", {"method.normalise": True, "train.batch": 64}, "needs full batches"),
        ("l0", {"method.stretch_low": 0.1}, "method.stretch_low"),
        ("awnn", {"method.quantile": 1.0}, "method.quantile"),
    ],
)
def test_settings_that_cannot_work_are_refused(method, overrides, named):
    with pytest.raises(ConfigError, match=named):
        compose({"method": method}, overrides)


def test_a_boundary_may_grow_without_a_preset(tmp_path):
    (outcome,) = launch.launch([smoke(tmp_path, "ste", gate__K=None)])
    assert outcome.status == "complete"


def test_unused_settings_are_no_part_of_the_identity():
    for method in ("l0", "awnn"):
        assert run_id(compose({"method": method}, {"schedule.lambda0": 0.3, "gate.t0": 2.0})) == run_id(
            compose({"method": method})
        )
        assert run_id(compose({"method": method}, {"gate.r": 0.9})) != run_id(compose({"method": method}))
    assert run_id(compose({"method": "ste"}, {"schedule.lambda0": 0.3})) != run_id(compose({"method": "ste"}))


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
    keys = {"results": str(tmp_path), "progress": "never", "schedule.commit": 0.5, "gate.t0": 1.3, "phases": ("grown",)}
    choices = {"task": task, "gate": gate, "method": method, "profile": "smoke"}
    (outcome,) = launch.launch([compose(choices, keys)])
    phase = Store(tmp_path).get(outcome.run_id)["phases"]["grown"]
    assert all(phase["integer"])
    assert phase["truncated"][score] == pytest.approx(phase["soft"][score], rel=1e-5)
