"""Small trainings of every model that a compiled kernel can train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from learners import put_price

from experiments.models.depth import ChainBank, LayerStack, TanhBank
from experiments.models.kernels.libraries import library
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised, mean_squared_error
from ngn.methods.fixed import FixedCount
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE
from ngn.train.batches import FullBatches, Split
from ngn.train.plan import TrainPlan

needs_kernel = pytest.mark.skipif(library("bank1d") is None, reason="no C++ compiler that can build the kernels")

LOSS = Supervised(mean_squared_error)


def length(seeds):
    return None if isinstance(seeds, int) else len(seeds)


def stir(learner, *names):
    """Fill zero maps with values that differ between replicas and components, so that every gradient counts."""
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name in names:
            p = learner.axes[0].bank.get_parameter(name)
            p.copy_(torch.randn(p.shape, generator=source) * 0.3)
    return learner


def bank(seeds, K=12, width=16, **settings):
    """Make a sum of 1D blocks with its initial values."""
    gate = CountGate(K, replicas=length(seeds), **({"t0": 2.3} | settings))
    return Learner(ParallelModel(OrderedSum(MLPBank([1, width, width, 1], gate.K, seeds), gate)))


def fixed_bank(seeds, K=4, **settings):
    assert K is not None
    size = FixedCount(K, r=0.7, replicas=length(seeds))
    return Learner(ParallelModel(OrderedSum(MLPBank([1, 16, 16, 1], K, seeds), size)))


def stack_of(seeds, capacities):
    last = len(capacities) - 1
    banks = [TanhBank(2, size.K, seeds, i, identity=i < last) for i, size in enumerate(capacities)]
    return Learner(LayerStack([OrderedSum(bank, size) for bank, size in zip(banks, capacities, strict=True)]))


def layers(seeds, K=6, **settings):
    """Make four layers with different boundaries, prices and ratios."""
    places = zip((0.3, 2.2, 1.4, 3.1), (1e-1, 1e-2, 1e-3, 1e-4), (0.5, 0.6, 0.7, 0.8), strict=True)
    return stack_of(
        seeds,
        [
            CountGate(K, replicas=length(seeds), **({"t0": t, "lambda0": price, "r": r} | settings))
            for t, price, r in places
        ],
    )


def fixed_layers(seeds, K=None, **settings):
    return stack_of(seeds, [FixedCount(count, r=0.7, replicas=length(seeds)) for count in (1, 3, 1, 2)])


def chain(seeds, K=7, width=32, **settings):
    """Make one chain with its initial values."""
    size = CountGate(K, replicas=length(seeds), **({"t0": 2.3, "r": 1.0} | settings))
    return Learner(ParallelModel(OrderedSum(ChainBank(2, width, size.K, seeds), size)))


def fixed_chain(seeds, K=3, **settings):
    assert K is not None
    size = FixedCount(K, r=1.0, replicas=length(seeds))
    return Learner(ParallelModel(OrderedSum(ChainBank(2, 32, K, seeds), size)))


@dataclass(frozen=True)
class Case:
    """One kind of model: its constructor, the names of its maps that start at zero, and the entries of a sample."""

    make: Callable[..., Learner]
    zero: tuple[str, ...]
    entries: int

    def learner(self, seeds, stirred=False, **settings):
        price = settings.pop("price", None)
        learner = self.make(seeds, **settings)
        if price is not None:
            put_price(learner, price)
        return stir(learner, *self.zero) if stirred else learner

    def batches(self, samples=150):
        x = torch.randn(samples, self.entries, generator=torch.Generator().manual_seed(1))
        y = (3 * x).sin() + x.flip(-1).square()
        return FullBatches(Split(x, y))

    def trainer(self, kind, learner, how, samples=150, **settings):
        return kind(learner, self.batches(samples), LOSS, how, progress="never", **settings)

    def train(self, *given, **settings):
        return self.trainer(*given, **settings).fit()


BANK = Case(bank, ("W3", "b3"), 1)
LEARNED = {"bank": BANK, "layers": Case(layers, (), 2), "chain": Case(chain, ("V", "b"), 2)}
FIXED = {
    "fixed bank": Case(fixed_bank, ("W3", "b3"), 1),
    "fixed layers": Case(fixed_layers, (), 2),
    "fixed chain": Case(fixed_chain, ("V", "b"), 2),
}
learned = pytest.mark.parametrize("case", LEARNED.values(), ids=LEARNED)
every = pytest.mark.parametrize("case", (LEARNED | FIXED).values(), ids=LEARNED | FIXED)


def plan(steps, lr=1e-3, clip=0.003, **settings):
    return TrainPlan(steps=steps, lr=lr, lr_shape=COSINE, clip=clip, **settings)


def state(learner):
    return {name: p.detach().clone() for name, p in learner.model.named_parameters()}


def assert_close(a, b, atol):
    for name, value in state(a).items():
        torch.testing.assert_close(value, state(b)[name], rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


def assert_close_committed(a, b, atol):
    """Skip tau: after the commit, the optimiser's momentum still moves it, without effect."""
    assert torch.equal(a.size(), b.size())
    with torch.no_grad():
        for axis in (*a.axes, *b.axes):
            assert isinstance(axis.capacity, CountGate)
            axis.capacity.tau.zero_()
    assert_close(a, b, atol)


def assert_same(a, b):
    """Return whether all bits are equal, NaN included."""
    for name, value in a.items():
        assert value.numpy().tobytes() == b[name].numpy().tobytes(), name


def assert_same_curves(a, b):
    for name, values in a.curves.items():
        assert np.array_equal(values, b.curves[name], equal_nan=True), name


def replica(values, r):
    return {name: value[r].clone() for name, value in values.items()}
