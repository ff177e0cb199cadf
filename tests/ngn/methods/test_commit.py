"""The commit of a boundary, and a snapping strength tied to the price."""

import copy
import math

import pytest
import torch
from kernel_cases import LEARNED, assert_close_committed, learned, needs_kernel, plan, state

import ngn
from experiments.methods.gates.decay import DecayGate
from experiments.methods.gates.ste import StraightThrough
from experiments.models.kernels.trainer import KernelTrainer
from ngn.schedules import DELAYED_LINEAR, POWER_DECAY, shape_at
from ngn.train.trainer import Trainer

BANK = LEARNED["bank"]
SEEDS = [3, 4, 5]


def moving(case, steps=60, **settings):
    """A learner whose boundaries lie between integers when they are rounded, and its plan."""
    return case.learner(SEEDS, stirred=True, alpha_max=0.0, commit=0.5, **settings), plan(steps, lr_boundary=0.03)


@pytest.mark.parametrize("kind", [ngn.CountGate, StraightThrough, DecayGate])
@pytest.mark.parametrize(("t0", "delta", "count"), [(2.49, 0.5, 3), (2.5, 0.5, 4), (0.3, -0.5, 0), (7.6, 0.5, 6)])
def test_a_committed_gate_is_the_prefix_and_pays_nothing(kind, t0, delta, count):
    gate = kind(6, t0=t0, delta=delta, commit=0.9, lambda0=1.0, alpha_max=1.0)
    gate.set_progress(0.89)
    assert float(gate.size()) == pytest.approx(t0)
    assert float(gate.penalty().detach()) > 0
    gate.set_progress(0.9)
    assert float(gate.size()) == math.floor(t0 + 0.5)
    assert int(gate.count()) == count
    for mode in ("soft", "hard", "kept"):
        g = gate.gates(mode)
        assert g.tolist() == [1.0] * count + [0.0] * (len(g) - count)
    assert torch.equal(gate.gates("soft"), gate.gates("hard"))
    (gate.coefficients("soft").sum() + gate.penalty()).backward()
    assert float(gate.penalty().detach()) == 0
    assert float(gate.tau.grad) == 0


def test_alpha_is_tied_to_the_price():
    gate = ngn.CountGate(6, t0=0.5, lambda0=[1e-2, 1e-5], alpha_max=1e-3, kappa=2.0, replicas=2)
    for p in (0.0, 0.6, 0.8, 1.0):
        gate.set_progress(p)
        price = [value * shape_at(POWER_DECAY, p) for value in (1e-2, 1e-5)]
        alpha = [max(1e-3, 2.0 * value) * shape_at(DELAYED_LINEAR, p) for value in price]
        expected = [value / 2 + snap for value, snap in zip(price, alpha, strict=True)]  # sin^2(pi / 2) = 1
        assert gate.penalty().tolist() == pytest.approx(expected, rel=1e-12)


def test_the_body_trains_on_and_the_boundary_does_not():
    learner, how = moving(BANK)
    seen = []
    BANK.train(Trainer, learner, how, on_step=lambda done: seen.append((learner.size().clone(), state(learner))))
    sizes = torch.stack([size for size, _ in seen])
    assert not torch.equal(sizes[28], sizes[28].round())
    assert bool((sizes[31:] == sizes[30].round()).all())
    assert not torch.equal(seen[31][1]["group.bank.W1"], seen[-1][1]["group.bank.W1"])


@pytest.mark.parametrize("commit", [0.5, None])
def test_a_fresh_learner_takes_the_state_of_a_committed_one(commit):
    """The state overrides the learner's own commit and weights; states of version 0.1, which hold less, load, too."""
    gate = ngn.CountGate(6, t0=2.4, commit=0.5, weights=torch.linspace(1.0, 0.5, 6))
    gate.set_progress(0.9)
    again = ngn.CountGate(6, commit=commit)
    again.load_state_dict(gate.state_dict())
    assert (again.commit, float(again.size())) == (0.5, 2.0)
    assert torch.equal(again.coefficients("soft"), gate.coefficients("soft"))
    said = {name: value for name, value in gate.state_dict().items() if name in ("tau", "progress")}
    infinite = {**said, "settled": torch.tensor(torch.inf).double()}  # "not settled" in unreleased states
    for old in (said, infinite, {**said, "settled": torch.tensor(torch.nan).double()}):
        again = ngn.CountGate(6, commit=commit)
        again.load_state_dict(old)
        assert float(again.size()) == pytest.approx(2.4 if commit is None else 2.0)


@pytest.mark.parametrize("decay", [0.5, 0.999])
def test_an_average_of_buffers_is_committed_too(decay):
    """An average over states before and after the commit has the integer boundary."""
    gate, swa = ngn.CountGate(6, t0=2.4, commit=0.5), torch.optim.swa_utils
    ema = swa.AveragedModel(gate, multi_avg_fn=swa.get_ema_multi_avg_fn(decay), use_buffers=True)
    for progress in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        gate.set_progress(progress)
        ema.update_parameters(gate)
        assert float(ema.module.size()) == pytest.approx(float(gate.size()), abs=1e-12)
    again = ngn.CountGate(6)
    again.load_state_dict(ema.module.state_dict())
    assert float(again.size()) == float(ema.module.to(torch.float32).size()) == pytest.approx(2.0, abs=1e-12)


def test_a_boundary_that_is_no_number_is_not_deployed():
    learner = BANK.learner(SEEDS)
    with torch.no_grad():
        learner.axes[0].capacity.tau[1] = torch.nan
    learner.deploy(0, unsettled="allow")
    with pytest.raises(ValueError, match=r"diverged: sizes \[nan"):
        learner.deploy(1, unsettled="allow")
    with pytest.raises(TypeError, match="pass an input as example="):
        learner.deploy(torch.zeros(3, 1))


@needs_kernel
@learned
def test_the_kernel_follows_the_plain_trainer(case):
    (plain, how), (fast, _) = moving(case, kappa=[0.0, 3.0, 50.0]), moving(case, kappa=[0.0, 3.0, 50.0])
    a, b = case.train(Trainer, plain, how), case.train(KernelTrainer, fast, how, chunk=7)
    assert_close_committed(plain, fast, 2e-5)
    for name, values in a.curves.items():
        assert b.curves[name] == pytest.approx(values, rel=2e-3, abs=2e-4), name


def test_growth_without_a_preset_K_stops_at_the_commit():
    learner = BANK.learner(SEEDS, K=None, price=-0.5, commit=0.5)
    before = copy.deepcopy(learner).size()
    BANK.train(Trainer, learner, plan(40, lr_boundary=0.1))
    assert bool((learner.size() > before).all())
    assert torch.equal(learner.size(), learner.size().round())


def test_fit_commits_unless_told_otherwise():
    def trained(**settings):
        learner = BANK.learner(0)
        x, y = BANK.batches().at(0)
        ngn.fit(learner, x, y, torch.nn.functional.mse_loss, plan(20, lr_boundary=0.03), progress="never", **settings)
        return learner

    assert float(trained().size()) == round(float(trained().size()))
    assert float(trained(commit=None).size()) != round(float(trained(commit=None).size()))
