"""Ranks by explained variance: against a singular value decomposition, and against peft's implementation."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import ngn
from experiments.methods.low_rank.eva import Allotted, ExplainedVarianceLearner

K, TOTAL = 4, 6
SCALES = torch.tensor([9.0, 3.0, 1.0, 0.5, 0.2, 0.1])
X = torch.randn(256, 6, generator=torch.Generator().manual_seed(0)) * SCALES + 2.0
Y = X @ torch.randn(6, 6, generator=torch.Generator().manual_seed(1)) * 0.1
NAMES = ["0", "2", "3"]


def plain():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Linear(5, 6)).requires_grad_(False)


def loss(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def made(total=TOTAL, capacity=lambda number: Allotted(K)):
    model = plain()
    ngn.attach_low_rank(model, NAMES, capacity, seed=0)
    return ExplainedVarianceLearner(model, total, 2, loss)


def inputs_of(model, x):
    """The inputs of the three maps."""
    first = x
    second = torch.tanh(model[0](first))
    return [first, second, model[2](second)]


class Halves:
    """The samples as two batches."""

    def at(self, index):
        rows = slice(128 * (index % 2), 128 * (index % 2) + 128)
        return X[rows], Y[rows]


def test_ranks_and_directions_are_those_of_the_inputs():
    learner = made()
    before = [map_.down.detach().clone() for map_ in learner.maps]
    learner.prepare(Halves())
    ratios, directions = [], []
    for x in inputs_of(plain(), X):
        _, s, vectors = np.linalg.svd((x - x.mean(0)).double().numpy(), full_matrices=False)
        ratios.append(s[:K] ** 2 / (s**2).sum())
        directions.append(vectors)
    threshold = np.sort(np.concatenate(ratios))[-TOTAL]
    assert learner.count().tolist() == [int((r >= threshold).sum()) for r in ratios]
    for map_, rank, wanted, old in zip(learner.maps, learner.count().tolist(), directions, before, strict=True):
        ours = map_.down.detach()[:rank].double().numpy()
        np.testing.assert_allclose(np.abs((ours * wanted[:rank]).sum(1)), 1.0, atol=1e-5)
        assert torch.equal(map_.down[rank:], old[rank:])


def test_only_the_allotted_terms_are_trained():
    learner = made()
    plan = ngn.TrainPlan(steps=30, lr=1e-2)
    ngn.fit(learner, X, Y, nn.functional.mse_loss, plan, progress="never")
    small = learner.deploy(example=X)
    ranks = learner.count().tolist()
    assert sum(ranks) == TOTAL
    for map_, rank in zip(learner.maps, ranks, strict=True):
        assert not map_.up[:, rank:].any()
        assert rank == 0 or map_.up[:, :rank].any()
    with torch.no_grad():
        assert float(loss(small, (X, Y))) < float(loss(plain(), (X, Y)))


def test_ranks_are_those_of_peft():
    peft = pytest.importorskip("peft")
    learner = made()
    learner.prepare(Halves())
    config = peft.LoraConfig(
        r=TOTAL // 3, target_modules=NAMES, init_lora_weights="eva", eva_config=peft.EvaConfig(rho=K / (TOTAL // 3))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = peft.get_eva_state_dict(
            plain(), [X[:128], X[128:]], config, forward_fn=lambda model, x: model(x), prepare_model_inputs_fn=None,
            prepare_layer_inputs_fn=None, adapter_name="default", show_progress_bar=False,
        )  # fmt: skip
    theirs = {name: len(rows) for name, rows in state.items()}
    assert learner.count().tolist() == [theirs.get(name, 0) for name in NAMES]
