"""Properties of the kernel for banks of 1D blocks: its tanh, window and accuracy, and growth up to a limit."""

import ctypes

import numpy as np
import pytest
import torch
from kernel_cases import BANK, assert_close, needs_kernel, plan

from experiments.models.kernels.libraries import library
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.trainer import StudyTrainer
from ngn.methods.base import CapacityExceeded

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
