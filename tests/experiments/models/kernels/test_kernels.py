"""Every training of a compiled kernel, also under a budget, against the plain trainer and autograd in float64."""

import copy
import ctypes

import numpy as np
import pytest
import torch
from kernel_cases import (
    BANK,
    FIXED,
    LEARNED,
    assert_close,
    assert_close_committed,
    assert_same,
    assert_same_curves,
    every,
    learned,
    needs_kernel,
    plan,
    replica,
    state,
)
from stopping import resumed

from experiments.core import checkpoint
from experiments.models.kernels.libraries import library
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.trainer import StudyTrainer
from ngn.budget import Budget
from ngn.budget.allocation import BudgetLearner
from ngn.losses import mean_squared_error
from ngn.methods.base import CapacityExceeded
from ngn.methods.ngn import CountGate
from ngn.methods.orders import Order
from ngn.schedules import CONSTANT

RATES = torch.tensor([1e-3, 2e-3, 5e-4], dtype=torch.float64)


@learned
@pytest.mark.parametrize(("t0", "delta"), [(1e-4, 0.5), (2.3, 0.5), (2.3, -0.5), (2.9999999, 0.5), (5.7, -0.5)])
def test_gradients(case, t0, delta, tmp_path):
    """Compare the gradients of one step with autograd in float64, penalties included, read from Adam's first moment."""
    shapes = dict.fromkeys(("lambda_shape", "alpha_shape", "beta_shape"), CONSTANT)
    prices = {"lambda0": 0.03, "alpha_max": 0.05, "r": [0.5, 0.8, 0.95]}
    learner = case.learner([0, 1, 2], stirred=True, t0=t0, delta=delta, **prices, **shapes)
    exact = copy.deepcopy(learner).double()
    exact.set_progress(0.0)
    x, wanted = case.batches().at(0)
    (mean_squared_error(exact(x.double()), wanted.double()) + exact.penalty()).sum().backward()
    gradients = {name: p.grad for name, p in exact.model.named_parameters()}
    name_of = {id(p): name for name, p in learner.model.named_parameters()}
    names = [name_of[id(p)] for p in (*learner.body_parameters(), *learner.controller_parameters())]
    case.train(KernelTrainer, learner, plan(1, clip=None), folder=tmp_path, checkpoint_seconds=0.0)
    saved = checkpoint.latest(tmp_path)
    assert saved[0] == 1
    for i, name in enumerate(names):
        gradient, moment = gradients[name], saved[1][f"adam.{i}.exp_avg"].double() / 0.1
        # Errors are relative to the parameter's largest gradient: it sums samples of alternating sign.
        largest = float(gradient.abs().max())
        assert largest > 0
        torch.testing.assert_close(moment, gradient, rtol=2e-5, atol=4e-6 * largest, msg=lambda m, n=name: f"{n}: {m}")


@every
def test_follows_the_plain_trainer(case):
    for steps, atol in ((1, 1e-7), (60, 1e-5)):
        plain, fast = case.learner([3, 4, 5]), case.learner([3, 4, 5])
        how = plan(steps, lr=RATES)
        a, b = case.train(StudyTrainer, plain, how), case.train(KernelTrainer, fast, how)
        assert_close(plain, fast, atol)
        for name, values in a.curves.items():
            np.testing.assert_allclose(values, b.curves[name], rtol=0, atol=10 * atol)
        assert b.diverged_at.tolist() == [-1, -1, -1]
        for group, other in zip(plain.axes, fast.axes, strict=True):
            if isinstance(group.capacity, CountGate):  # the schedules are at their end
                assert isinstance(other.capacity, CountGate)
                assert torch.equal(group.capacity.beta, other.capacity.beta)


@pytest.mark.parametrize(
    ("name", "width", "samples"),
    [
        *(("bank", width, samples) for width, samples in ((5, 13), (8, 64), (20, 100), (40, 33), (64, 16))),
        *(("chain", width, samples) for width, samples in ((5, 13), (8, 64), (20, 65), (64, 129))),
        ("layers", None, 65),
    ],
)
def test_padding_changes_nothing(name, width, samples):
    case, settings = LEARNED[name], {} if width is None else {"width": width}
    plain, fast = (case.learner([1, 2], stirred=True, **settings) for _ in range(2))
    case.train(StudyTrainer, plain, plan(20), samples)
    case.train(KernelTrainer, fast, plan(20), samples)
    assert_close(plain, fast, 5e-6)


@learned
@pytest.mark.parametrize("scope", ["joint", "separate", "body", None])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_clipping_and_decay(case, scope, weight_decay):
    """Norms cover all groups, and weight decay reaches closed components."""
    settings = {"lambda_shape": CONSTANT, "lambda0": 0.5, "K": 24, "t0": 0.5}
    plain, fast, other, start = (case.learner([1, 2], stirred=True, **settings) for _ in range(4))
    scoped = {"clip": None} if scope is None else {"clip": 0.01, "clip_scope": scope}
    # One Adam step hardly depends on the scale of its gradients; several steps with growing gradients do.
    how = plan(30, weight_decay=weight_decay, **scoped)
    case.train(StudyTrainer, plain, how)
    case.train(KernelTrainer, fast, how)
    assert_close(plain, fast, 4e-6)
    case.train(KernelTrainer, other, plan(30, weight_decay=weight_decay, clip=1e-4))
    name, last = next((name, p[:, -1]) for name, p in state(fast).items() if "W" in name or "U" in name)
    assert any(not torch.allclose(p, state(other)[n], rtol=0, atol=1e-5) for n, p in state(fast).items())
    assert torch.equal(last, state(start)[name][:, -1]) == (weight_decay == 0)


@every
def test_a_replica_does_not_depend_on_the_other_replicas(case, threads):
    """Nor on the number of threads. Learning rates and gate settings differ between the replicas."""
    scalars = {"t0": [0.4, 2.9, 1.5], "lambda0": [1e-4, 0.2, 1e-3], "beta": ([4.0, 6.0, 8.0], [15.0, 12.0, 9.0])}
    boundary = torch.tensor([5e-2, 0.2, 0.1], dtype=torch.float64)
    together = case.learner([7, 8, 9], **scalars)
    history = case.train(KernelTrainer, together, plan(60, lr=RATES, lr_boundary=boundary))
    for count in (2, 3, 8):
        threads(count)
        again = case.learner([7, 8, 9], **scalars)
        assert_same_curves(case.train(KernelTrainer, again, plan(60, lr=RATES, lr_boundary=boundary)), history)
        assert_same(state(again), state(together))
    for r in range(3):
        one = {name: v[r] if isinstance(v, list) else (v[0][r], v[1][r]) for name, v in scalars.items()}
        alone = case.learner(7 + r, **one)
        own = case.train(KernelTrainer, alone, plan(60, lr=float(RATES[r]), lr_boundary=float(boundary[r])))
        assert_same(state(alone), replica(state(together), r))
        for name in ("loss", "task", "t"):
            assert np.array_equal(own.curves[name][:, 0], history.curves[name][:, r])


@every
@pytest.mark.parametrize("cut", [7, 58])
def test_resuming_changes_nothing(case, cut, tmp_path):
    def trainer(**settings):
        how = plan(80, lr_boundary=0.3)
        return case.trainer(KernelTrainer, case.learner([1, 2]), how, chunk=7, **settings)

    resumed(trainer, tmp_path, cut)


@learned
def test_growth_without_a_preset_number(case, tmp_path):
    """Each group gets components when its boundary needs them, with the same result as a preset K."""
    settings = {"t0": 0.5, "beta": (15.0, 15.0), "price": -1.0, "r": 0.9}
    how = plan(60, clip=None, lr_boundary=0.2)
    grown, preset = (case.learner([1, 2], K=K, **settings) for K in (None, 40))
    before = [group.bank.K for group in grown.axes]
    a, b = case.train(KernelTrainer, grown, how), case.train(KernelTrainer, preset, how)
    assert any(group.bank.K > K for group, K in zip(grown.axes, before, strict=True))
    assert np.array_equal(a.curves["t"], b.curves["t"])
    for name, p in state(grown).items():
        q = state(preset)[name]
        assert torch.equal(p, q[:, : p.shape[1]] if p.dim() > 1 else q), name

    def trainer(**more):
        return case.trainer(KernelTrainer, case.learner([1, 2], K=None, **settings), how, chunk=7, **more)

    again, _ = resumed(trainer, tmp_path, 33)
    assert_same(state(again), state(grown))


DIVERGING = [(StudyTrainer, LEARNED["bank"]), *((KernelTrainer, case) for case in (LEARNED | FIXED).values())]


@pytest.mark.parametrize(("kind", "case"), DIVERGING)
def test_a_diverging_replica_leaves_the_others_alone(kind, case):
    both, alone = case.learner([1, 2], stirred=True), case.learner([1, 2], stirred=True)
    with torch.no_grad():
        next(both.axes[-1].bank.parameters())[0] = float("nan")
    history = case.train(kind, both, plan(40))
    reference = case.train(kind, alone, plan(40))
    assert history.diverged_at.tolist() == [0, -1]
    assert reference.diverged_at.tolist() == [-1, -1]
    assert_same(replica(state(both), 1), replica(state(alone), 1))
    assert np.array_equal(history.curves["loss"][:, 1], reference.curves["loss"][:, 1])


def test_divergence_is_seen_at_the_same_step_as_in_the_plain_trainer():
    case, how = LEARNED["bank"], plan(80, lr=torch.tensor([1e-3, 1e30, 1e-3]))
    history = case.train(KernelTrainer, case.learner([1, 2, 3]), how, chunk=5)
    assert 0 < history.diverged_at[1] < 75
    assert history.diverged_at.tolist() == case.train(StudyTrainer, case.learner([1, 2, 3]), how).diverged_at.tolist()
    assert not np.isfinite(history.curves["loss"][-1, 1])


@every
def test_calls_at_chunk_ends_and_chunks_do_not_matter(case):
    seen = []
    a, b = case.learner([1, 2]), case.learner([1, 2])
    case.train(KernelTrainer, a, plan(50), chunk=20, on_step=seen.append)
    assert seen == [20, 40, 50]
    history = case.train(KernelTrainer, b, plan(50), chunk=1)
    assert_same(state(a), state(b))
    assert history.curves["step"].tolist() == list(range(50))


pytestmark = needs_kernel


def fast_tanh(x):
    """Return the kernel's tanh of a float32 vector."""
    padded = torch.nn.functional.pad(x, (0, -len(x) % 16))
    out = torch.empty_like(padded)
    bank1d = library("bank1d")
    function = bank1d.loaded.ngn_bank1d_tanh
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    function(padded.data_ptr(), out.data_ptr(), len(padded))
    return out[: len(x)]


def test_tanh():
    x = torch.cat([torch.linspace(-12, 12, 400_001), torch.logspace(-30, 30, 2001)])
    x = torch.cat([x, -x])
    exact = x.double().tanh()
    error = (fast_tanh(x).double() - exact).abs()
    assert error.max() <= 2.5e-7
    assert error.square().mean().sqrt() <= 6e-8
    special = fast_tanh(torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0]))
    assert special[0].isnan()
    torch.testing.assert_close(special[1:], torch.tensor([1.0, -1.0, 0.0]), rtol=0, atol=4e-7)


def test_growth_ends_at_its_limit():
    learner = BANK.learner([1, 2], K=None, t0=0.5, price=-1.0, beta=(4.0, 5.0), K_max=11)
    with pytest.raises(CapacityExceeded, match="K_max = 11"):
        BANK.train(KernelTrainer, learner, plan(200))


def test_components_may_enter_and_leave_the_window():
    """Closed components that were active before continue with zero gradients, as in the plain trainer."""
    settings = {"t0": [9.0, 0.5], "beta": (15.0, 15.0), "price": [3.0, -10.0], "r": 0.9}
    how = plan(60, clip=None, lr_boundary=torch.tensor([0.3, 0.3]))
    plain, fast = (BANK.learner([1, 2], stirred=True, K=32, **settings) for _ in range(2))
    a, b = BANK.train(StudyTrainer, plain, how), BANK.train(KernelTrainer, fast, how)
    left, entered = b.curves["t"][:, 0, 0], b.curves["t"][:, 1, 0]
    assert left[-1] < left[0] - 3, "nothing left the window"
    assert entered[-1] > entered[0] + 2, "nothing entered the window"
    np.testing.assert_allclose(a.curves["t"], b.curves["t"], rtol=0, atol=1e-5)
    assert_close(plain, fast, 2e-5)


def budgeted(case, shares, K=12, **settings):
    """Make one model per share of the parameters of 12 components. Boundaries start above the budget, or below it."""
    largest = BudgetLearner(case.learner(0, K=12).model, Budget(parameters="100%")).cost.full
    model = case.learner(list(range(len(shares))), K=K, **({"t0": 6.0} | settings)).model
    return BudgetLearner(model, Budget(parameters=[share * largest for share in shares]))


@learned
@pytest.mark.parametrize("clip", [0.003, None])
def test_a_budget_follows_the_plain_trainer(case, clip):
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
def test_resuming_under_a_budget_changes_nothing(case, cut, tmp_path):
    def trainer(**settings):
        return case.trainer(KernelTrainer, budgeted(case, [0.3, 0.6]), plan(75), chunk=3, **settings)

    resumed(trainer, tmp_path, cut)
