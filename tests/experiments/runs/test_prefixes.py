"""A record holds the scores of every smaller prefix of its trained model."""

from types import SimpleNamespace

import pytest
import torch
from kernel_cases import BANK

import ngn
from experiments.runs.measure import prefixes_of


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
