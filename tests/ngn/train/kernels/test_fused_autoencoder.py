"""The compiled gradients of the manifold study's autoencoder against autograd in float64 and the plain trainer."""

from __future__ import annotations

import copy
import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fused_cases import Stop, assert_close, assert_same, state
from torch import Tensor

from experiments.blocks import ConfigError
from experiments.config.compose import compose
from experiments.config.schema import Config
from experiments.runs import places, training
from experiments.runs.phases import learner_of, trainer_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from experiments.tasks.base import Task
from ngn.components.latent import GatedBottleneck
from ngn.learner import CapacityLearner
from ngn.schedules import COSINE
from ngn.train.kernels import AutoencoderTrainer, trainer_for
from ngn.train.kernels.autoencoder import Gradients
from ngn.train.kernels.kernel import compiled
from ngn.train.trainer import Course, Trainer, TrainPlan

needs_kernel = pytest.mark.skipif(compiled("autoencoder") is None, reason="no C++ compiler that can build the kernel")


def case(**settings: Any) -> tuple[Config, Task, CapacityLearner]:
    """The study's own model, with parameters stirred so that every gradient counts."""
    config = compose({"task": "manifold", "gate": "latent"}, {"task.D": 4, "gate.t0": 2.3, **settings})
    task = make_task(config, torch.device("cpu"))
    learner = learner_of(Stack((config,)), task)
    source = torch.Generator().manual_seed(5)
    bottleneck = learner.axes[0]
    assert isinstance(bottleneck, GatedBottleneck)
    with torch.no_grad():
        bottleneck.bank.B.normal_(0.0, 0.3, generator=source)
        bottleneck.log_variance.normal_(0.0, 0.5, generator=source)
    return config, task, learner


def plan(steps: int, **settings: Any) -> TrainPlan:
    return TrainPlan(**({"steps": steps, "lr": 1e-3, "lr_shape": COSINE, "clip": 1.0} | settings))


def train(kind: type[Trainer], how: TrainPlan, samples: int = 150, **settings: Any) -> tuple[CapacityLearner, Course]:
    config, task, learner = case(**{"train.batch": samples})
    batches = task.batches(config.train, config.seed.value)
    return learner, kind(learner, batches, task.loss, how, progress="never", **settings).fit()


@needs_kernel
def test_gelu_and_its_slope() -> None:
    """Both within 3e-7 of float64, or of their own size; what is not finite does not become finite."""
    function = compiled("autoencoder").ngn_gelu  # type: ignore[union-attr]
    function.argtypes, function.restype = [*[ctypes.c_void_p] * 3, ctypes.c_int64], None

    def of(x: Tensor) -> tuple[Tensor, Tensor]:
        y, slope = torch.empty_like(x), torch.empty_like(x)
        function(x.data_ptr(), y.data_ptr(), slope.data_ptr(), len(x))
        return y, slope

    x = torch.cat([torch.linspace(-20, 20, 160_000), torch.logspace(-30, 30, 800), -torch.logspace(-30, 30, 800)])
    exact = x.double().requires_grad_()
    wanted = torch.nn.functional.gelu(exact)
    (slope,) = torch.autograd.grad(wanted.sum(), exact)
    for got, want in zip(of(x), (wanted.detach(), slope), strict=True):
        assert float(((got.double() - want).abs() / want.abs().clamp(min=1.0)).max()) < 3e-7
    for got in of(torch.tensor([float("nan")] * 16)):
        assert got.isnan().all()
    assert not of(torch.full((16,), float("inf")))[0].isfinite().any()


@needs_kernel
@pytest.mark.parametrize(
    ("samples", "settings"),
    [
        (150, {}),
        (1, {}),
        (64, {"gate.K": 1, "gate.t0": 0.3}),
        (65, {"gate.K": 16, "gate.t0": 14.0, "gate.hidden_layers": 1}),
        (129, {"gate.width": 32, "gate.hidden_layers": 2, "task.ambient": 32}),
    ],
)
def test_gradients(samples: int, settings: dict[str, Any]) -> None:
    """The loss and the gradient of every parameter, boundary and log variances among them."""
    config, task, learner = case(**{"train.batch": samples}, **settings)
    x, target = task.batches(config.train, config.seed.value).at(3)
    exact = copy.deepcopy(learner).double()
    for each in (learner, exact):
        each.set_progress(0.4)
        each.before_step(3)
    wanted = task.loss(exact.model, (x.double(), target.double()))
    activity = exact.activity_penalty()
    assert activity is not None
    wanted = wanted + activity
    wanted.backward()  # type: ignore[no-untyped-call]
    found = Gradients(learner.model)(x)
    torch.testing.assert_close(found.double(), wanted.detach(), rtol=1e-5, atol=0)
    for (name, p), q in zip(learner.model.named_parameters(), exact.model.parameters(), strict=True):
        assert p.grad is not None, name
        assert q.grad is not None, name
        largest = float(q.grad.abs().max())
        assert largest > 0, name
        torch.testing.assert_close(
            p.grad.double(), q.grad, rtol=5e-5, atol=6e-6 * largest, msg=lambda m, n=name: f"{n}: {m}"
        )


@needs_kernel
@pytest.mark.parametrize("clip", [1.0, None])
def test_follows_the_plain_trainer(clip: float | None) -> None:
    how = plan(60, clip=clip)
    (plain, a), (fast, b) = train(Trainer, how), train(AutoencoderTrainer, how)
    assert_close(plain, fast, 2e-4)  # Adam's first steps follow the sign of a gradient, however small
    for name in ("loss", "task", "t"):
        np.testing.assert_allclose(a.curves[name], b.curves[name], rtol=2e-4, atol=1e-5)


@needs_kernel
def test_resuming_changes_nothing(tmp_path: Path) -> None:
    straight, course = train(AutoencoderTrainer, plan(30))

    def stop(step: int) -> None:
        if step == 17:
            raise Stop

    with pytest.raises(Stop):
        train(AutoencoderTrainer, plan(30), folder=tmp_path, checkpoint_seconds=0.0, on_step=stop)
    resumed, again = train(AutoencoderTrainer, plan(30), folder=tmp_path)
    assert again.resumed == 1
    assert_same(state(resumed), state(straight))
    assert np.array_equal(again.curves["loss"], course.curves["loss"])


@needs_kernel
def test_divergence_is_seen() -> None:
    config, task, learner = case()
    with torch.no_grad():
        next(learner.model.parameters())[0, 0] = float("nan")
    batches = task.batches(config.train, 0)
    course = AutoencoderTrainer(learner, batches, task.loss, plan(3), progress="never").fit()
    assert course.diverged_at.tolist() == [0]


@needs_kernel
def test_what_fits_is_taken() -> None:
    def chosen(how: TrainPlan | None = None, **settings: Any) -> type[Trainer]:
        config, task, learner = case(**settings)
        return trainer_for(learner, task.batches(config.train, 0), task.loss, how or plan(2))

    assert chosen() is AutoencoderTrainer
    assert chosen(**{"gate.width": 24}) is Trainer
    assert chosen(**{"gate.K": 17}) is Trainer
    assert chosen(plan(2, accumulate=2)) is Trainer
    config, task, learner = case(**{"gate.width": 24})
    with pytest.raises(ConfigError, match="no multiple of 16"):
        trainer_of("fused", learner, task.batches(config.train, 0), task, plan(2))


@needs_kernel
def test_runs_by_either_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From configuration to record."""
    monkeypatch.setattr(places, "SCRATCH", tmp_path / "scratch")
    found = {}
    for engine in ("auto", "torch"):
        settings = {"train.steps": 40, "engine": engine, "results": str(tmp_path / engine), "progress": "never"}
        config = compose({"task": "manifold", "gate": "latent"}, settings | {"train.batch": 128})
        found[engine] = json.loads(training.train_stack(Stack((config,)))[0].path.read_text())
    fast, plain = found["auto"], found["torch"]
    assert fast["execution"]["engine"] == "fused-autoencoder"
    for mode in ("soft", "truncated"):
        ours, theirs = (record["phases"]["grown"][mode]["nmse"] for record in (fast, plain))
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    np.testing.assert_allclose(fast["phases"]["grown"]["t"], plain["phases"]["grown"]["t"], rtol=0, atol=1e-4)
