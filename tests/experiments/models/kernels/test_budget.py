"""Trainings under a budget, where the price follows the boundaries, against the plain trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases import (
    LEARNED,
    Case,
    Stop,
    assert_close_committed,
    assert_same,
    assert_same_curves,
    learned,
    needs_kernel,
    plan,
    state,
    stop_after,
)

from experiments.models.kernels import KernelTrainer
from experiments.models.price import PricedLearner
from ngn.budget import Budget
from ngn.orders import Order
from ngn.train.trainer import Trainer

pytestmark = needs_kernel


def budgeted(case: Case, shares: list[float], K: int | None = 12, **settings: Any) -> PricedLearner:
    """Make one model per share of the parameters of 12 components. Boundaries start above the budget, or below it."""
    largest = PricedLearner(case.learner(0, K=12).model, Budget(parameters="100%")).cost.full
    model = case.learner(list(range(len(shares))), K=K, t0=6.0, beta=(6.0, 15.0), **settings).model
    return PricedLearner(model, Budget(parameters=[share * largest for share in shares]))


@learned
def test_follows_the_plain_trainer(case: Case) -> None:
    """The price before and after the commit, with and without a binding budget."""
    how = plan(60, lr_boundary=0.2)
    plain, fast = (budgeted(case, [0.3, 0.5, 1.0]) for _ in range(2))
    a, b = case.train(Trainer, plain, how), case.train(KernelTrainer, fast, how)
    assert_close_committed(plain, fast, 1e-5)
    for name, values in a.curves.items():
        np.testing.assert_allclose(values, b.curves[name], rtol=1e-4, atol=1e-4)
    assert plain.reached.tolist() == fast.reached.tolist() == [True, True, False]
    assert plain.count().tolist() == fast.count().tolist()
    np.testing.assert_allclose(plain.price, fast.price, rtol=1e-4)
    assert float(fast.price[0]) > 1e-4


@pytest.mark.parametrize("kind", ["annealed", "matryoshka", "nested_dropout"])
def test_changing_weights_are_those_of_each_step(kind: str, tmp_path: Path) -> None:
    """Before and after the commit, and after an interruption."""
    case, how, order = LEARNED["bank"], plan(60, lr_boundary=0.2), {"order": Order(kind, seeds=[0, 1, 2])}
    plain, fast, resumed = (budgeted(case, [0.3, 0.5, 1.0], **order) for _ in range(3))
    a, b = case.train(Trainer, plain, how), case.train(KernelTrainer, fast, how)
    for name, values in a.curves.items():
        np.testing.assert_allclose(values, b.curves[name], rtol=1e-4, atol=1e-4)
    more = {"folder": tmp_path, "checkpoint_seconds": 0.0, "on_step": stop_after(40)}
    with pytest.raises(Stop):
        case.train(KernelTrainer, budgeted(case, [0.3, 0.5, 1.0], **order), how, **more)
    case.train(KernelTrainer, resumed, how, folder=tmp_path)
    assert_same(state(resumed), state(fast))
    assert_close_committed(plain, fast, 1e-5)


@learned
@pytest.mark.parametrize("cut", [30, 70])
def test_resuming_changes_nothing(case: Case, cut: int, tmp_path: Path) -> None:
    """Before and after the commit."""
    how, shares = plan(75, lr_boundary=0.2), [0.3, 0.6]
    straight, resumed = budgeted(case, shares), budgeted(case, shares)
    history = case.train(KernelTrainer, straight, how)
    more = {"folder": tmp_path, "checkpoint_seconds": 0.0, "on_step": stop_after(cut), "chunk": 3}
    with pytest.raises(Stop):
        case.train(KernelTrainer, budgeted(case, shares), how, **more)
    again = case.train(KernelTrainer, resumed, how, folder=tmp_path)
    assert again.resumed == 1
    assert_same(state(resumed), state(straight))
    assert_same_curves(again, history)
    assert resumed.count().tolist() == straight.count().tolist()


def test_without_a_preset_number() -> None:
    case, how = LEARNED["bank"], plan(60, lr_boundary=0.2)
    plain, fast = (budgeted(case, [0.9, 0.9], K=None) for _ in range(2))
    case.train(Trainer, plain, how)
    case.train(KernelTrainer, fast, how)
    assert plain.axes[0].K == fast.axes[0].K > 12
    assert_close_committed(plain, fast, 1e-5)
