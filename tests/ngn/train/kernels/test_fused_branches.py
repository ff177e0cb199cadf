"""The compiled gradients of convolution branches against autograd in float64 and the plain trainer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fused_cases import Stop, assert_close, assert_same, state
from torch import Tensor

from experiments.config.compose import compose
from experiments.runs import places, training
from experiments.runs.stack import Stack
from experiments.tasks.base import Classification
from experiments.tasks.images.task import ImageTask
from ngn.components.base import OrderedSum
from ngn.components.conv import ConvBank
from ngn.components.parallel import ParallelModel
from ngn.learner import CapacityLearner
from ngn.methods.base import Capacity
from ngn.methods.fixed import FixedCount
from ngn.methods.l0 import HardConcrete
from ngn.methods.ngn import CountGate
from ngn.methods.ste import StraightThrough
from ngn.schedules import COSINE
from ngn.train.batches import FullBatches, MiniBatches, Split
from ngn.train.kernels import BranchesTrainer, trainer_for
from ngn.train.kernels.branches import NAMES, Gradients
from ngn.train.kernels.kernel import compiled
from ngn.train.losses import cross_entropy
from ngn.train.trainer import Course, Trainer, TrainPlan

needs_kernel = pytest.mark.skipif(compiled("branches") is None, reason="no C++ compiler that can build the kernel")

TASK = object.__new__(ImageTask)
"""Only its loss is used, which needs no data."""
SHAPES = [
    ((3, 32, 32), (16, 16), 10),
    ((1, 28, 28), (8, 16), 10),
    ((1, 28, 28), (5, 7), 3),
    ((3, 8, 20), (16, 3), 16),
    ((1, 4, 4), (1, 1), 2),
]
Image = tuple[int, int, int]


def stirred(bank: ConvBank) -> ConvBank:
    """Last maps and biases that are not zero, so that every gradient counts."""
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name in ("b1", "b2", "V", "v"):
            p = bank.get_parameter(name)
            p.copy_(torch.randn(p.shape, generator=source) * 0.1)
    return bank


def images(shape: Image, samples: int, classes: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    return torch.randn(samples, *shape, generator=source), torch.randint(classes, (samples,), generator=source)


@needs_kernel
@pytest.mark.parametrize(("shape", "channels", "classes"), SHAPES)
def test_gradients(shape: Image, channels: tuple[int, int], classes: int) -> None:
    """The loss and every gradient, for fewer coefficients than branches; unused branches have none."""
    bank = stirred(ConvBank(shape, channels, classes, 4, 0))
    x, labels = images(shape, 9, classes)
    c = torch.tensor([1.3, 0.4, 0.05], dtype=torch.float64)
    exact, known = copy.deepcopy(bank).double(), c.clone().requires_grad_()
    wanted = cross_entropy(exact(x.double(), known), labels)
    wanted.backward()  # type: ignore[no-untyped-call]
    loss, slope = Gradients(bank)(x, labels, c)
    torch.testing.assert_close(loss.double(), wanted.detach(), rtol=1e-6, atol=0, check_dtype=False)
    torch.testing.assert_close(slope, known.grad, rtol=1e-5, atol=1e-7)
    for name in NAMES:
        gradient, right = bank.get_parameter(name).grad, exact.get_parameter(name).grad
        assert gradient is not None
        assert right is not None
        assert not gradient[3].any()
        largest = float(right.abs().max())
        assert largest > 0
        torch.testing.assert_close(
            gradient.double(), right, rtol=2e-5, atol=4e-6 * largest, msg=lambda m, n=name: f"{n}: {m}"
        )


@needs_kernel
def test_what_is_no_batch_is_refused() -> None:
    """The kernel would read what is not there."""
    gradients, c = Gradients(ConvBank((1, 28, 28), (8, 16), 10, 2, 0)), torch.ones(2)
    x, labels = images((1, 28, 28), 4, 10)
    for wrong in (x[:, :, :-1], x[:3]):
        with pytest.raises(ValueError, match="classes for branches"):
            gradients(wrong, labels, c)
    for label in (-1, 10):
        with pytest.raises(ValueError, match=r"not in 0 \.\.\. 9"):
            gradients(x, labels.clone().fill_(label), c)


@needs_kernel
def test_of_equal_pixels_the_first_has_the_gradient() -> None:
    """Pooling windows over even background are ties, which torch gives to their first pixel."""
    bank = stirred(ConvBank((1, 28, 28), (8, 16), 10, 2, 0))
    plain = copy.deepcopy(bank)
    x, labels = torch.zeros(6, 1, 28, 28), torch.arange(6)
    x[:, :, 9:20, 12:17] = images((1, 11, 5), 6, 10)[0]
    c = torch.ones(2)
    cross_entropy(plain(x, c), labels).backward()  # type: ignore[no-untyped-call]
    Gradients(bank)(x, labels, c)
    for name in NAMES:
        gradient, right = bank.get_parameter(name).grad, plain.get_parameter(name).grad
        assert gradient is not None
        assert right is not None
        torch.testing.assert_close(gradient, right, rtol=1e-4, atol=1e-5 * float(right.abs().max()))


def gated() -> Capacity:
    return CountGate(4, t0=1.7, alpha_max=0.05)


CAPACITIES: dict[str, Callable[[], Capacity]] = {
    "ngn": gated,
    "fixed": lambda: FixedCount(4, r=0.7),
    "ste": lambda: StraightThrough(4, t0=1.7),
    "l0": lambda: HardConcrete(4, 0, open_probability=0.6),
}


def batches(samples: int = 40) -> MiniBatches:
    return MiniBatches(Split(*images((1, 28, 28), samples, 10)), 16, 7, lambda x: x)


def learner(capacity: Callable[[], Capacity] = gated) -> CapacityLearner:
    return CapacityLearner(ParallelModel(OrderedSum(stirred(ConvBank((1, 28, 28), (8, 16), 10, 4, 0)), capacity())))


def plan(steps: int, **settings: Any) -> TrainPlan:
    return TrainPlan(**({"steps": steps, "lr": 1e-3, "lr_shape": COSINE} | settings))


def train(kind: type[Trainer], how: TrainPlan, capacity: Callable[[], Capacity] = gated, **more: Any) -> Any:
    trained = learner(capacity)
    course: Course = kind(trained, batches(), TASK.loss, how, progress="never", **more).fit()
    return trained, course


@needs_kernel
@pytest.mark.parametrize("name", CAPACITIES)
@pytest.mark.parametrize("settings", [{}, {"clip": 0.05, "weight_decay": 0.1}])
def test_follows_the_plain_trainer(name: str, settings: dict[str, Any]) -> None:
    how = plan(12, **settings)
    (plain, a), (fast, b) = train(Trainer, how, CAPACITIES[name]), train(BranchesTrainer, how, CAPACITIES[name])
    assert_close(plain, fast, 3e-4)  # Adam's first steps follow the sign of a gradient, however small
    for curve in ("loss", "task", "t"):
        np.testing.assert_allclose(a.curves[curve], b.curves[curve], rtol=1e-4, atol=1e-5)


@needs_kernel
def test_resuming_changes_nothing(tmp_path: Path) -> None:
    straight, course = train(BranchesTrainer, plan(9))

    def stop(step: int) -> None:
        if step == 5:
            raise Stop

    with pytest.raises(Stop):
        train(BranchesTrainer, plan(9), folder=tmp_path, checkpoint_seconds=0.0, on_step=stop)
    resumed, again = train(BranchesTrainer, plan(9), folder=tmp_path)
    assert again.resumed == 1
    assert_same(state(resumed), state(straight))
    assert np.array_equal(again.curves["loss"], course.curves["loss"])


@needs_kernel
@pytest.mark.parametrize("name", ["W1", "b2", "V"])
def test_divergence_is_seen(name: str) -> None:
    trained = learner()
    with torch.no_grad():
        trained.axes[0].bank.get_parameter(name).view(-1)[0] = float("nan")
    course = BranchesTrainer(trained, batches(), TASK.loss, plan(2), progress="never").fit()
    assert course.diverged_at.tolist() == [0]


@needs_kernel
def test_what_fits_is_taken() -> None:
    def chosen(bank: ConvBank, how: TrainPlan | None = None) -> type[Trainer]:
        capacity = CountGate(bank.K, replicas=bank.replicas)
        trained = CapacityLearner(ParallelModel(OrderedSum(bank, capacity)))
        return trainer_for(trained, batches(), TASK.loss, how or plan(2))

    assert isinstance(TASK, Classification)
    assert chosen(ConvBank((1, 28, 28), (8, 16), 10, 3, 0)) is BranchesTrainer
    assert chosen(ConvBank((1, 28, 28), (8, 16), 10, 3, 0), plan(2, autocast="bf16")) is Trainer
    assert chosen(ConvBank((1, 28, 28), (8, 32), 10, 3, 0)) is Trainer
    assert chosen(ConvBank((1, 28, 28), (8, 8, 8), 10, 3, 0)) is Trainer
    assert chosen(ConvBank((1, 30, 28), (8, 16), 10, 3, 0)) is Trainer
    assert chosen(ConvBank((1, 28, 28), (8, 16), 10, 3, [0, 1])) is Trainer
    full = FullBatches(Split(*images((1, 28, 28), 8, 10)))
    assert trainer_for(learner(), full, TASK.loss, plan(2)) is Trainer
    with pytest.raises(ValueError, match="minibatches"):
        BranchesTrainer(learner(), full, TASK.loss, plan(2), progress="never").fit()


@needs_kernel
@pytest.mark.parametrize("task", ["mnist", "cifar10"])
def test_runs_by_either_engine(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From configuration to record, all three phases."""
    monkeypatch.setattr(places, "SCRATCH", tmp_path / "scratch")
    found = {}
    for engine in ("auto", "torch"):
        settings = {"engine": engine, "results": str(tmp_path / engine), "progress": "never"}
        config = compose({"task": task, "gate": "conv", "profile": "smoke"}, settings)
        found[engine] = json.loads(training.train_stack(Stack((config,)))[0].path.read_text())
    fast, plain = found["auto"], found["torch"]
    assert fast["execution"]["engine"] == "fused-branches"
    assert plain["execution"]["engine"] == "torch"
    for phase in ("grown", "fixed", "from_high"):
        ours, theirs = (record["phases"][phase] for record in (fast, plain))
        assert ours["count"] == theirs["count"]
        np.testing.assert_allclose(ours["truncated"]["loss"], theirs["truncated"]["loss"], rtol=1e-3)
