"""A record holds the scores of every smaller prefix of its trained model."""

from types import SimpleNamespace

import pytest
import torch
from kernel_cases import BANK

import ngn
from experiments.config.compose import compose
from experiments.runs import launch
from experiments.runs.measure import prefixes_of
from experiments.store.records import Store


@pytest.mark.parametrize("seeds", [5, [5, 6]])
def test_a_prefix_is_scored_as_the_sum_of_its_components(seeds):
    learner = BANK.learner(seeds, stirred=True, t0=3.2 if seeds == 5 else [3.2, 1.7], order=ngn.Order("power"))
    x = BANK.batches().at(0)[0]
    task = SimpleNamespace(
        prefix_score="mse", evaluate=lambda model: {"loss": torch.zeros(()), "mse": model(x).square().mean()}
    )
    f = learner.axes[0].bank.components(x).detach()
    with torch.no_grad():
        for r, count in enumerate((4,) if seeds == 5 else (4, 3)):
            own = f if seeds == 5 else f[r]
            weighted = own / torch.arange(1, 13).view(-1, 1, 1)
            expected = [float(weighted[:most].sum(0).square().mean()) for most in range(1, count)]
            assert prefixes_of(r, learner, task) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("task", "gate", "method"), [("regression1d", "mlp", "ngn"), ("mnist", "mlp", "decay")])
def test_records_hold_prefix_scores_if_a_boundary_was_learned(tmp_path, task, gate, method):
    keys = {"results": str(tmp_path), "progress": "never", "train.steps": 6, "train.epochs": None, "gate.t0": 2.6}
    choices = {"task": task, "gate": gate, "method": method, "profile": "smoke"}
    outcomes = launch.launch([compose(choices, {**keys, "seed.value": seed}) for seed in (0, 1)])
    for outcome in outcomes:
        phases = Store(tmp_path).get(outcome.run_id)["phases"]
        assert len(phases["grown"]["prefixes"]) == phases["grown"]["count"][0] - 1 > 0
        assert not any("prefixes" in phase for name, phase in phases.items() if name != "grown")
