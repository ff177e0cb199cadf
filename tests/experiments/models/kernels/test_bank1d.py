"""Properties of the kernel for banks of 1D blocks: its tanh, window and accuracy, and growth up to a limit."""

import copy
import ctypes
import dataclasses

import numpy as np
import pytest
import torch
from kernel_cases import BANK, assert_close, needs_kernel, plan

from experiments.config.compose import compose
from experiments.models.kernels import trainer as module
from experiments.models.kernels.array_layout import layout_of
from experiments.models.kernels.libraries import library
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.trainer import StudyTrainer
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.methods.base import CapacityExceeded
from ngn.train.optim import groups_of

pytestmark = needs_kernel


def fast_tanh(x):
    """Return the kernel's tanh of a float32 vector."""
    padded = torch.nn.functional.pad(x, (0, -len(x) % 16))
    out = torch.empty_like(padded)
    bank1d = library("bank1d")
    assert bank1d is not None
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


@pytest.mark.slow
def test_late_gradients_are_as_accurate_as_those_of_torch():
    """Late in a training, residuals are small and their errors matter. Compare both with float64, over four seeds.

    A comparison per seed would fail: where the gradient has nearly vanished, either error may be much larger.
    """
    seeds = range(4)
    stack = Stack.of(*(compose({}, {"seed.value": seed, "train.steps": 5_000}) for seed in seeds))
    task = make_task(stack.first, torch.device("cpu"))
    batches, plan = task.batches(stack.first.train, list(seeds)), plan_of(stack, 512)
    learner = learner_of(stack, task)

    class Enough(Exception):
        pass

    def halt(step):
        if step >= 4_000:
            raise Enough

    with pytest.raises(Enough):
        KernelTrainer(learner, batches, task.loss, plan, progress="never", on_step=halt).fit()
    learner.set_progress(0.8)

    def gradients(model, dtype):
        x, y = (v.to(dtype) for v in batches.at(0))
        model.zero_grad()
        (model(x) - y).square().mean((-2, -1)).sum().backward()
        return {
            name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None and "tau" not in name
        }

    exact = gradients(copy.deepcopy(learner.model).double(), torch.float64)
    by_torch = gradients(copy.deepcopy(learner.model), torch.float32)
    groups, _ = groups_of(learner.body_parameters(), learner.controller_parameters(), 1e-3, 5e-2)
    optimizer = torch.optim.Adam(groups)
    state = module._State(learner, layout_of(learner.model), optimizer)
    module._Kernel(learner, batches, dataclasses.replace(plan, clip=None), state).advance(4_000, 1)
    state.unpack(4_001)
    ours = {name: optimizer.state[p]["exp_avg"].double() / 0.1 for name, p in learner.model.named_parameters()}

    def squares(v):
        return v.square().flatten(1).sum(1)

    def error(found):
        return torch.stack([squares(found[n] - exact[n]) / squares(exact[n]) for n in exact]).sum(0).sqrt()

    ratios = error(ours) / error(by_torch)
    assert float(ratios.log().mean().exp()) <= 2, ratios
