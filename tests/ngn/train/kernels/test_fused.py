"""The compiled kernel for banks of 1D blocks against the plain trainer, step by step."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from fused_cases import (
    assert_close,
    assert_same,
    batches,
    fixed,
    gated,
    needs_kernel,
    plan,
    replica,
    state,
    stir,
    train,
)
from torch import Tensor

from experiments.config.compose import compose
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.schedules import CONSTANT
from ngn.train import checkpoint
from ngn.train.kernels import FusedTrainer
from ngn.train.kernels import whole as module
from ngn.train.kernels.kernel import fast_tanh
from ngn.train.kernels.layout import layout_of
from ngn.train.losses import mean_squared_error
from ngn.train.optim import ClipScope, adam
from ngn.train.trainer import Trainer


@needs_kernel
def test_tanh() -> None:
    x = torch.cat([torch.linspace(-12, 12, 400_001), torch.logspace(-30, 30, 2001)])
    x = torch.cat([x, -x])
    exact = x.double().tanh()
    error = (fast_tanh(x).double() - exact).abs()
    assert error.max() <= 2.5e-7
    assert error.square().mean().sqrt() <= 6e-8
    special = fast_tanh(torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0]))
    assert special[0].isnan()
    torch.testing.assert_close(special[1:], torch.tensor([1.0, -1.0, 0.0]), rtol=0, atol=4e-7)


@needs_kernel
@pytest.mark.parametrize("t", [1e-4, 2.3, 2.9999999, 3.0000001, 6.5, 11.4, 14.0])
@pytest.mark.parametrize("delta", [0.5, -0.5])
def test_gradients(t: float, delta: float, tmp_path: Path) -> None:
    """One step's gradients, read from Adam's first moment, against autograd in float64."""
    settings = {"delta": delta, "lambda0": 0.03, "alpha_max": 0.05, "r": [0.5, 0.8, 0.95]}
    constant = dict.fromkeys(("lambda_shape", "alpha_shape", "beta_shape"), CONSTANT)
    learner = stir(gated([0, 1, 2], K=12, t0=t, **settings, **constant))
    exact = copy.deepcopy(learner).double()
    x, wanted = batches().at(0)
    exact.set_progress(0.0)
    (mean_squared_error(exact(x.double()), wanted.double()) + exact.penalty()).sum().backward()
    train(FusedTrainer, learner, plan(2, clip=None), folder=tmp_path, checkpoint_seconds=0.0, chunk=1)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found[0] == 1
    names = [name for name, _ in learner.model.named_parameters() if "tau" not in name] + ["group.capacity.tau"]
    gradients = dict(exact.model.named_parameters())
    for i, name in enumerate(names):
        gradient = gradients[name].grad
        assert gradient is not None
        moment = found[1][f"adam.{i}.exp_avg"].double() / 0.1
        # Errors relative to the largest gradient of that parameter: sums over 512 samples of alternating sign.
        largest = float(gradient.abs().max())
        assert largest > 0
        torch.testing.assert_close(moment, gradient, rtol=2e-5, atol=4e-6 * largest, msg=lambda m, n=name: f"{n}: {m}")


@needs_kernel
@pytest.mark.parametrize(("steps", "atol"), [(1, 1e-7), (10, 1e-6), (100, 1e-5)])
@pytest.mark.parametrize("t0", [1e-4, 2.3, 9.0])
def test_follows_the_plain_trainer(steps: int, atol: float, t0: float) -> None:
    settings = {"lambda0": [1e-4, 1e-3, 1e-2], "r": [0.5, 0.6, 0.7]}
    plain, fast = gated([3, 4, 5], t0=t0, **settings), gated([3, 4, 5], t0=t0, **settings)
    how = plan(steps, lr=torch.tensor([1e-3, 2e-3, 5e-4]))
    a, b = train(Trainer, plain, how), train(FusedTrainer, fast, how)
    assert_close(plain, fast, atol)
    assert a.curves["step"].tolist() == b.curves["step"].tolist()
    for name in ("loss", "task", "t"):
        assert a.curves[name].shape == b.curves[name].shape
        np.testing.assert_allclose(a.curves[name], b.curves[name], rtol=0, atol=10 * atol)
    assert b.diverged_at.tolist() == [-1, -1, -1]
    # The schedules stand at their end, as after the plain trainer.
    assert torch.equal(learner_beta(fast), learner_beta(plain))


def learner_beta(learner: CapacityLearner) -> Tensor:
    capacity = learner.axes[0].capacity
    assert isinstance(capacity, CountGate)
    return capacity.beta


@needs_kernel
@pytest.mark.parametrize(("h", "samples"), [(5, 13), (8, 64), (16, 100), (20, 64), (32, 40), (40, 33), (64, 16)])
def test_other_widths_and_sample_counts(h: int, samples: int) -> None:
    plain, fast = stir(gated([1, 2], K=6, h=h)), stir(gated([1, 2], K=6, h=h))
    train(Trainer, plain, plan(20), samples)
    train(FusedTrainer, fast, plan(20), samples)
    assert_close(plain, fast, 5e-6)


@needs_kernel
@pytest.mark.parametrize("scope", ["joint", "separate", "body", None])
def test_clip_scopes(scope: ClipScope | None) -> None:
    settings = {"lambda0": 0.5, "lambda_shape": CONSTANT}
    plain, fast, other = (stir(gated([1, 2], K=8, **settings)) for _ in range(3))
    # One plain Adam step hardly feels the size of its gradients; with growing ones over some steps the scale counts.
    how = plan(30, clip=None if scope is None else 0.01, **({} if scope is None else {"clip_scope": scope}))
    train(Trainer, plain, how)
    train(FusedTrainer, fast, how)
    assert_close(plain, fast, 2e-6)
    train(FusedTrainer, other, plan(30, clip=0.003 if scope is None else None))
    assert float((state(other)["group.bank.W2"] - state(fast)["group.bank.W2"]).abs().max()) > 1e-4


@needs_kernel
def test_weight_decay_reaches_closed_components() -> None:
    plain, fast = stir(gated([1, 2], K=32, t0=0.5)), stir(gated([1, 2], K=32, t0=0.5))
    start = state(fast)["group.bank.W2"][:, 31]
    for kind, learner in ((Trainer, plain), (FusedTrainer, fast)):
        train(kind, learner, plan(10, weight_decay=0.1))
    assert_close(plain, fast, 2e-6)
    assert float((state(fast)["group.bank.W2"][:, 31] - start).abs().max()) > 1e-3


@needs_kernel
@pytest.mark.parametrize("count", [1, 4])
def test_fixed_models(count: int) -> None:
    plain, fast = fixed([1, 2], count), fixed([1, 2], count)
    a, b = train(Trainer, plain, plan(50)), train(FusedTrainer, fast, plan(50))
    assert_close(plain, fast, 5e-6)
    np.testing.assert_allclose(a.curves["loss"], b.curves["loss"], rtol=0, atol=1e-5)
    assert np.array_equal(a.curves["t"], b.curves["t"])
    alone = fixed(2, count)
    train(FusedTrainer, alone, plan(50))
    assert_same(state(alone), replica(state(fast), 1))


@needs_kernel
def test_components_enter_and_leave_the_window() -> None:
    """Components that were active and then closed go on with zero gradients, as in the plain trainer."""
    settings = {"t0": [9.0, 0.5], "beta": (15.0, 15.0), "lambda0": [3.0, -1.0], "r": 0.9}
    how = plan(60, clip=None, lr_boundary=torch.tensor([0.3, 0.3]))
    plain, fast = stir(gated([1, 2], **settings)), stir(gated([1, 2], **settings))
    a, b = train(Trainer, plain, how), train(FusedTrainer, fast, how)
    left, entered = b.curves["t"][:, 0, 0], b.curves["t"][:, 1, 0]
    assert left[-1] < left[0] - 3, "nothing left the window"
    assert entered[-1] > entered[0] + 2, "nothing entered the window"
    np.testing.assert_allclose(a.curves["t"], b.curves["t"], rtol=0, atol=1e-5)
    assert_close(plain, fast, 2e-5)


@needs_kernel
def test_the_number_of_candidates_does_not_matter() -> None:
    """Growth without a preset K: the components beyond the window change no bit of the others."""
    small, large = gated(3, K=24, t0=1e-4), gated(3, K=40, t0=1e-4)
    for learner in (small, large):
        train(FusedTrainer, learner, plan(200))
    assert_same(state(small), {n: v[:24] if v.dim() else v for n, v in state(large).items()})


@needs_kernel
@pytest.mark.slow
def test_late_gradients_are_as_accurate_as_torchs() -> None:
    """Late in a training the residuals are small and their errors count; both against float64, over four seeds.

    Not seed by seed: where the gradient itself has nearly vanished, either may be several times the other.
    """
    seeds = range(4)
    stack = Stack(tuple(compose({}, {"seed.value": seed}) for seed in seeds))
    task = make_task(stack.first, torch.device("cpu"))
    batches, plan = task.batches(stack.first.train, list(seeds)), plan_of(stack, 512)
    learner = learner_of(stack, task)

    class Enough(Exception):
        pass

    def halt(step: int) -> None:
        if step >= 20_000:
            raise Enough

    with pytest.raises(Enough):
        FusedTrainer(learner, batches, task.loss, plan, progress="never", on_step=halt).fit()
    learner.set_progress(0.8)

    def gradients(model: torch.nn.Module, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        x, y = (v.to(dtype) for v in batches.at(0))
        model.zero_grad()
        (model(x) - y).square().mean((-2, -1)).sum().backward()
        return {
            name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None and "tau" not in name
        }

    exact = gradients(copy.deepcopy(learner.model).double(), torch.float64)
    by_torch = gradients(copy.deepcopy(learner.model), torch.float32)
    rates = (torch.full((len(seeds),), rate, dtype=torch.float64) for rate in (1e-3, 5e-2))
    optimizer = adam(learner.body_parameters(), learner.controller_parameters(), *rates, weight_decay=0.0)
    state = module._State(learner, layout_of(learner.model), optimizer)
    module._Kernel(learner, batches, dataclasses.replace(plan, clip=None), state).advance(20_000, 1)
    state.unpack(20_001)
    ours = {name: optimizer.state[p]["exp_avg"].double() / 0.1 for name, p in learner.model.named_parameters()}

    def squares(v: torch.Tensor) -> torch.Tensor:
        return v.square().flatten(1).sum(1)

    def error(found: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([squares(found[n] - exact[n]) / squares(exact[n]) for n in exact]).sum(0).sqrt()

    ratios = error(ours) / error(by_torch)
    assert float(ratios.log().mean().exp()) <= 2, ratios
