"""``gate.order``: which orders run, which are refused, and that the paper's order leaves run ids unchanged."""

import pytest

from experiments.config.compose import compose
from experiments.config.identity import identity_keys, run_id
from experiments.core.blocks import ConfigError
from experiments.runs import launch
from experiments.store.records import Store

ORDERS = {
    "power": {"gate.order_exponent": 0.5},
    "annealed": {},
    "matryoshka": {"gate.order_ranks": (1, 3)},
    "nested_dropout": {},
}


def config(folder, order, method="ngn", **own):
    keys = {"results": str(folder), "progress": "never", "train.steps": 12, "gate.order": order, **own}
    return compose({"task": "regression1d", "method": method, "profile": "smoke"}, keys)


def test_every_order_gives_the_same_run_in_a_stack_and_alone(tmp_path):
    for order, own in ORDERS.items():
        own = {**own, "gate.t0": 2.6, "phases": ["grown", "fixed"]}
        runs = [config(tmp_path, order, **own, **{"seed.value": seed}) for seed in (3, 4)]
        stacked = [Store(tmp_path).get(outcome.run_id) for outcome in launch.launch(runs)]
        alone = config(tmp_path / "alone", order, **own, **{"seed.value": 4})
        again = Store(tmp_path / "alone").get(launch.launch([alone])[0].run_id)
        assert set(again["phases"]) == {"grown", "fixed"}
        for name, phase in again["phases"].items():
            assert phase["truncated"] == pytest.approx(stacked[1]["phases"][name]["truncated"], rel=1e-3)


def test_the_papers_order_is_no_part_of_the_identity(tmp_path):
    plain = config(tmp_path, "geometric")
    assert not any(key.startswith("gate.order") for key in identity_keys(plain))
    ids = {run_id(config(tmp_path, order, **own)) for order, own in ORDERS.items()}
    assert len(ids | {run_id(plain)}) == len(ORDERS) + 1


@pytest.mark.parametrize(
    ("order", "method", "own", "message"),
    [
        ("random", "ngn", {}, "gate.order: must be"),
        ("power", "l0", {}, "method=l0 does not support gate.order=power"),
        ("power", "decay", {}, "method=decay does not support gate.order=power"),
        ("annealed", "ngn", {"gate.order_exponent": 2.0}, "gate.order_exponent is for"),
        ("annealed", "ngn", {"gate.order_ranks": (1, 2)}, "gate.order_ranks are for"),
        ("matryoshka", "ngn", {"gate.K": None, "phases": ["grown"]}, "needs its gate.order_ranks"),
    ],
)
def test_invalid_orders_are_refused(tmp_path, order, method, own, message):
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, order, method, **own)
