"""One total for several maps: SoRA, singular values and explained variance against closed forms and peft."""

import copy
import itertools

import numpy as np
import pytest
import torch
from stopping import resumed
from torch import nn

import ngn
from experiments.methods.low_rank.sora import SoRA, SoRALearner, proximal
from experiments.methods.low_rank.svd import Allotted, ExplainedVarianceLearner, SingularValueLearner
from ngn.components.low_rank import LowRankLinear, attach_low_rank
from ngn.methods.fixed import Retained
from ngn.train.trainer import Trainer

K, TOTAL = 4, 6
SCALES = torch.tensor([9.0, 3.0, 1.0, 0.5, 0.2, 0.1])
X = torch.randn(256, 6, generator=torch.Generator().manual_seed(0)) * SCALES + 2.0
Y = X @ torch.randn(6, 6, generator=torch.Generator().manual_seed(1)) * 0.1
NAMES = ["0", "2", "3"]


def plain():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Linear(5, 6)).requires_grad_(False)


def adapted(capacity):
    attach_low_rank(model := plain(), NAMES, capacity, seed=0)
    return model


def loss(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])


class Halves:
    """The samples as two batches."""

    def at(self, index):
        rows = slice(128 * (index % 2), 128 * (index % 2) + 128)
        return X[rows], Y[rows]


def train(learner, steps=60, **settings):
    plan = ngn.TrainPlan(steps=steps, lr=1e-2)
    ngn.fit(learner, X, Y, nn.functional.mse_loss, plan, progress="never", **settings)
    return learner


def test_the_proximal_step_minimises_its_objective():
    g, xi = torch.linspace(-2, 2, 41, dtype=torch.float64), 0.3
    z = torch.linspace(-2.5, 2.5, 500_001, dtype=torch.float64)
    best = torch.stack([z[((z - one) ** 2 / 2 + xi * z.abs()).argmin()] for one in g])
    torch.testing.assert_close(proximal(g, xi), best, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("power", "wanted"), [(1.0, [0.0, 0.5, 0.5, 0.5]), (2.0, [0.0, 0.125, 0.375, 0.625])])
def test_thresholds_sum_to_the_shrinkage(power, wanted):
    gate = SoRA(3, seed=0, shrinkage=2.0, power=power)
    start, thresholds = gate.g.detach().clone(), []
    for step in range(4):
        gate.set_progress(step / 4)
        thresholds.append(float(gate.xi))
        gate.after_step()
    assert thresholds == wanted
    torch.testing.assert_close(gate.g.detach(), proximal(start, sum(wanted)))
    gate.set_progress(1.0)
    assert sum(thresholds) + float(gate.xi) == 2.0


def sora(target, shrinkage=6.0):
    return SoRALearner(adapted(lambda n: SoRA(K, 5, shrinkage=shrinkage, name=n)), target)


@pytest.mark.parametrize("target", [0, 1, 5, 12])
def test_sora_ends_at_its_target(target):
    learner = train(sora(target))
    assert int(learner.count().sum()) == target
    small = learner.deploy(example=X)
    assert torch.allclose(small(X), learner(X), atol=1e-6)
    assert sum(module.down.shape[0] for module in small if isinstance(module, LowRankLinear)) == target


def test_gates_are_frozen_once_the_target_is_reached():
    learner = sora(4)
    for step, g in enumerate(([3.0, 0.1, 0.2, 2.0], [0.3, 0.0, 2.5, -1.0], [0.1] * 4)):
        learner.capacities[step].g.data[:] = torch.tensor(g)
    learner.set_progress(0.5)  # xi = 1.5, which alone would leave three gates open
    learner.after_step(0)
    assert learner.count().tolist() == [2, 2, 0]
    assert learner.capacities[1].g.tolist() == pytest.approx([0, 0, 2.5, -1.0], abs=1e-7)
    for capacity in learner.capacities:
        capacity.g.data += 0.01
    learner.set_progress(0.9)
    learner.after_step(1)
    assert learner.capacities[0].g.tolist() == pytest.approx([3.01, 0, 0, 2.01], abs=1e-6)
    other = sora(4)
    other.restore(learner.state())
    other.set_progress(0.95)
    other.after_step(2)
    assert [c.g.tolist() for c in other.capacities] == [c.g.tolist() for c in learner.capacities]


def decomposed(total):
    learner = SingularValueLearner(adapted(lambda n: Retained(K)), total)
    for map_ in learner.maps:
        nn.init.normal_(map_.up)
    return learner


@pytest.mark.parametrize("total", [0, 3, 12])
def test_truncation_by_singular_values_is_the_best_allocation(total):
    learner = decomposed(total)
    before = copy.deepcopy(learner)
    learner.finish(None)
    torch.testing.assert_close(learner(X), before(X), rtol=1e-4, atol=1e-4)  # soft: only the basis has changed
    assert int(learner.count().sum()) == total
    small = learner.deploy(example=X)
    products = [(map_.up @ map_.down).detach() for map_ in before.maps]
    values = [torch.linalg.svdvals(product)[:K] for product in products]

    def lost(counts):
        return sum(float(s[n:].square().sum()) for s, n in zip(values, counts, strict=True))

    every = [counts for counts in itertools.product(range(K + 1), repeat=3) if sum(counts) == total]
    assert lost(learner.count().tolist()) <= min(map(lost, every)) + 1e-6
    for number, (name, product) in enumerate(zip(NAMES, products, strict=True)):
        left, s, right = torch.linalg.svd(product)
        n = int(learner.count()[number])
        terms = min(n, len(s))
        best = left[:, :terms] * s[:terms] @ right[:terms]
        module = small.get_submodule(name)
        got = module.up @ module.down if n else torch.zeros_like(product)
        torch.testing.assert_close(got, best, rtol=1e-4, atol=1e-4)


def test_terms_are_truncated_when_training_ends_and_not_in_earlier_checkpoints(tmp_path):
    def trainer(**settings):
        learner = SingularValueLearner(adapted(lambda n: Retained(K)), 5)
        plan = ngn.TrainPlan(steps=60, lr=1e-2)
        return Trainer(learner, Halves(), loss, plan, progress="never", **settings)

    learner, _ = resumed(trainer, tmp_path, 39)
    assert int(learner.count().sum()) == 5


def explained():
    return ExplainedVarianceLearner(adapted(lambda number: Allotted(K)), TOTAL, 2, loss)


def inputs_of(model, x):
    """The inputs of the three maps."""
    first = x
    second = torch.tanh(model[0](first))
    return [first, second, model[2](second)]


def test_ranks_and_directions_are_those_of_the_inputs():
    learner = explained()
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
    learner = train(explained(), steps=30)
    small = learner.deploy(example=X)
    ranks = learner.count().tolist()
    assert sum(ranks) == TOTAL
    for map_, rank in zip(learner.maps, ranks, strict=True):
        assert not map_.up[:, rank:].any()
        assert rank == 0 or map_.up[:, :rank].any()
    with torch.no_grad():
        assert float(loss(small, (X, Y))) < float(loss(plain(), (X, Y)))
