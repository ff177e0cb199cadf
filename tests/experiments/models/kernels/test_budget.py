"""Trainings under a budget, where the learner moves the boundaries, against the plain trainer."""

import numpy as np
import pytest
import torch
from kernel_cases import LEARNED, assert_close_committed, assert_same, learned, needs_kernel, plan, state
from stopping import resumed

from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.trainer import StudyTrainer
from ngn.budget import Budget
from ngn.budget.allocation import BudgetLearner
from ngn.methods.orders import Order

pytestmark = needs_kernel


def budgeted(case, shares, K=12, **settings):
    """Make one model per share of the parameters of 12 components. Boundaries start above the budget, or below it."""
    largest = BudgetLearner(case.learner(0, K=12).model, Budget(parameters="100%")).cost.full
    model = case.learner(list(range(len(shares))), K=K, **({"t0": 6.0} | settings)).model
    return BudgetLearner(model, Budget(parameters=[share * largest for share in shares]))


@learned
@pytest.mark.parametrize("clip", [0.003, None])
def test_follows_the_plain_trainer(case, clip):
    """Before and after the commit, for one size and for several that part on evidence."""
    how = plan(60, clip=clip)
    plain, fast = (budgeted(case, [0.3, 0.5, 1.0]) for _ in range(2))
    a, b = case.train(StudyTrainer, plain, how), case.train(KernelTrainer, fast, how)
    for name, values in a.curves.items():
        np.testing.assert_allclose(values, b.curves[name], rtol=1e-4, atol=1e-4)
    assert plain.count().tolist() == fast.count().tolist()
    assert bool((fast.costs()[0] <= fast.limit).all())
    assert torch.equal(fast.lead != 0, fast.strongest.abs() > 3.0)
    assert bool(fast.lead.any()) == (len(fast.axes) > 1)
    for name in ("sizes", "lead", "above", "even"):
        torch.testing.assert_close(plain.get_buffer(name), fast.get_buffer(name), rtol=1e-4, atol=1e-4)
    for name, value in plain.evidence.named_buffers():
        torch.testing.assert_close(value, fast.evidence.get_buffer(name), rtol=1e-3, atol=1e-12)
    assert_close_committed(plain, fast, 1e-5)


@pytest.mark.parametrize("kind", ["annealed", "matryoshka", "nested_dropout"])
def test_changing_weights_are_those_of_each_step(kind, tmp_path):
    """Before and after the commit, and after an interruption."""
    case, how, order = LEARNED["bank"], plan(60), {"order": Order(kind, seeds=[0, 1, 2])}
    plain = budgeted(case, [0.3, 0.5, 1.0], **order)
    a = case.train(StudyTrainer, plain, how)

    def trainer(**settings):
        return case.trainer(KernelTrainer, budgeted(case, [0.3, 0.5, 1.0], **order), how, **settings)

    fast, b = resumed(trainer, tmp_path, 40)
    for name, values in a.curves.items():
        np.testing.assert_allclose(values, b.curves[name], rtol=1e-4, atol=1e-4)
    assert_close_committed(plain, fast, 1e-5)


@learned
@pytest.mark.parametrize("cut", [20, 70])
def test_resuming_changes_nothing(case, cut, tmp_path):
    """Before and after the commit."""

    def trainer(**settings):
        return case.trainer(KernelTrainer, budgeted(case, [0.3, 0.6]), plan(75), chunk=3, **settings)

    resumed(trainer, tmp_path, cut)


@pytest.mark.parametrize("t0", [1e-4, 6.0])
def test_without_a_preset_number(t0):
    """Components are allocated as the limit rises to the budget, or are all there from the start."""
    case, how = LEARNED["bank"], plan(60)
    plain, fast = (budgeted(case, [0.9, 0.3], K=None, t0=t0) for _ in range(2))
    case.train(StudyTrainer, plain, how)
    case.train(KernelTrainer, fast, how)
    assert plain.axes[0].K == fast.axes[0].K > 12
    assert fast.count().tolist() == plain.count().tolist() == [[10], [3]]
    assert_close_committed(plain, fast, 1e-5)


def test_no_replica_depends_on_the_others():
    case, how = LEARNED["bank"], plan(60)
    stack, alone = budgeted(case, [0.3, 0.5]), budgeted(case, [0.3])
    case.train(KernelTrainer, stack, how)
    case.train(KernelTrainer, alone, how)
    assert_same({name: value[0] for name, value in state(alone).items()},
                {name: value[0] for name, value in state(stack).items()})  # fmt: skip
