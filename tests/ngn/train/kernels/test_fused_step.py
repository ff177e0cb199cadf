"""The kernel's gradients inside the plain trainer, for every learner of capacity that is not NGN's gate."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fused_cases import (
    TASK,
    Stop,
    assert_close,
    assert_same,
    batches,
    needs_kernel,
    plan,
    replica,
    state,
    stir,
    train,
)
from torch import Tensor

from experiments.config.compose import compose
from experiments.runs import launch, places
from experiments.runs.stack import LARGEST, LARGEST_FUSED, LARGEST_STEP, largest_stack
from ngn.components.base import OrderedSum
from ngn.components.mlp import MLPBank
from ngn.components.parallel import ParallelModel
from ngn.learner import CapacityLearner
from ngn.methods.awnn import AdaptiveWidth
from ngn.methods.base import Capacity
from ngn.methods.decay import DecayGate
from ngn.methods.fixed import FixedCount
from ngn.methods.l0 import HardConcrete
from ngn.methods.ste import StraightThrough
from ngn.schedules import COSINE
from ngn.train import checkpoint
from ngn.train.batches import FullBatches, Split
from ngn.train.kernels import StepTrainer, trainer_for
from ngn.train.kernels.kernel import NAMES
from ngn.train.kernels.step1d import Gradients
from ngn.train.losses import mean_squared_error
from ngn.train.trainer import Trainer

Seeds = int | Sequence[int]
GATE: dict[str, Any] = {"t0": 3.3, "lambda0": 1e-3, "alpha_max": 1e-2, "r": 0.7}
K = 16


def ste(seeds: Seeds, replicas: int | None) -> Capacity:
    return StraightThrough(K, beta=(2.0, 2.0), replicas=replicas, **GATE)


def l0(seeds: Seeds, replicas: int | None) -> Capacity:
    return HardConcrete(K, seeds, open_probability=0.6)


def awnn(seeds: Seeds, replicas: int | None) -> Capacity:
    return AdaptiveWidth(K, 512, width=5.0, prior_sd=0.3, replicas=replicas)


def decay(seeds: Seeds, replicas: int | None) -> Capacity:
    return DecayGate(K, replicas=replicas, **GATE)


def decay_alone(seeds: Seeds, replicas: int | None) -> Capacity:
    return DecayGate(K, boundary=False, replicas=replicas, **GATE)


def normalised(seeds: Seeds, replicas: int | None) -> Capacity:
    return DecayGate(K, normalise=True, learn_r=False, replicas=replicas, **GATE)


def normalised_alone(seeds: Seeds, replicas: int | None) -> Capacity:
    return DecayGate(K, normalise=True, boundary=False, replicas=replicas, **GATE)


NORMALISED = (normalised, normalised_alone)
PLAIN = (ste, l0, awnn, decay, decay_alone)
LEARNERS = (*PLAIN, *NORMALISED)
every_learner = pytest.mark.parametrize("kind", LEARNERS)
Kind = Callable[[Seeds, int | None], Capacity]


def learner_of(kind: Kind, seeds: Seeds, h: int = 16) -> CapacityLearner:
    capacity = kind(seeds, None if isinstance(seeds, int) else len(seeds))
    return CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, h, h, 1], capacity.K, seeds), capacity)))


@needs_kernel
@every_learner
def test_gradients(kind: Kind, tmp_path: Path) -> None:
    """One step's gradients, penalty included, read from Adam's first moment, against autograd in float64."""
    learner = stir(learner_of(kind, [0, 1, 2]))
    exact = copy.deepcopy(learner).double()
    exact.set_progress(0.0)
    exact.before_step(0)
    x, wanted = batches().at(0)
    (mean_squared_error(exact(x.double()), wanted.double()) + exact.penalty()).sum().backward()
    gradients = {name: p.grad for name, p in exact.model.named_parameters()}
    name_of = {id(p): name for name, p in learner.model.named_parameters()}
    names = [name_of[id(p)] for p in (*learner.body_parameters(), *learner.controller_parameters())]

    def stop(step: int) -> None:
        if step > 1:
            raise Stop

    with pytest.raises(Stop):
        train(StepTrainer, learner, plan(2, clip=None), folder=tmp_path, checkpoint_seconds=0.0, on_step=stop)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found[0] == 1
    for i, name in enumerate(names):
        gradient = gradients[name]
        assert gradient is not None
        moment = found[1][f"adam.{i}.exp_avg"].double() / 0.1
        # Errors relative to the largest gradient of that parameter: sums over 512 samples of alternating sign.
        largest = float(gradient.abs().max())
        assert largest > 0
        torch.testing.assert_close(moment, gradient, rtol=2e-5, atol=4e-6 * largest, msg=lambda m, n=name: f"{n}: {m}")


@needs_kernel
@pytest.mark.parametrize("kind", PLAIN)
def test_follows_the_plain_trainer(kind: Kind) -> None:
    plain, fast = learner_of(kind, [3, 4, 5]), learner_of(kind, [3, 4, 5])
    how = plan(100, lr=torch.tensor([1e-3, 2e-3, 5e-4]))
    a, b = train(Trainer, plain, how), train(StepTrainer, fast, how)
    assert_close(plain, fast, 1e-5)
    for name in ("loss", "task", "t"):
        np.testing.assert_allclose(a.curves[name], b.curves[name], rtol=0, atol=1e-4)
    assert torch.equal(plain.count(), fast.count())
    assert b.diverged_at.tolist() == [-1, -1, -1]


@needs_kernel
@pytest.mark.parametrize("kind", NORMALISED)
def test_normalised_is_as_near_to_float64_as_the_plain_trainer(kind: Kind) -> None:
    """From last maps of zero the first steps divide rounding by sqrt(eps), so float32 itself is the measure.

    In one seed of ten or so a rounding grows to 1e-5 and more, by torch or by the kernel: their means are compared.
    """
    seeds = range(3, 11)
    how = plan(100, lr=torch.tensor([1e-3, 2e-3, 5e-4, 1e-3] * 2))
    exact, plain, fast = (learner_of(kind, seeds) for _ in range(3))
    split = batches().split
    double = FullBatches(Split(split.inputs.double(), split.targets.double()))
    wanted = Trainer(exact.double(), double, TASK.loss, how, progress="never").fit()
    courses = train(Trainer, plain, how), train(StepTrainer, fast, how)

    def assert_as_near(name: str, right: Tensor, found: list[Tensor]) -> None:
        """Each [R, ...]; errors below 1e-7 are rounding of the last step."""
        errors = [(value.double() - right).abs().reshape(len(seeds), -1).amax(1).clamp(min=1e-7) for value in found]
        ratio = float((errors[1] / errors[0]).log().mean().exp())
        assert ratio <= 3, f"{name}: {errors}"
        assert float(errors[1].max()) <= 10 * float(errors[0].max()), f"{name}: {errors}"

    for name, value in state(exact).items():
        assert_as_near(name, value, [state(learner)[name] for learner in (plain, fast)])
    for name in ("loss", "task", "t"):
        right, *found = (torch.from_numpy(course.curves[name]).movedim(1, 0) for course in (wanted, *courses))
        assert_as_near(name, right, found)
    assert torch.equal(plain.count(), fast.count())


@needs_kernel
def test_growth_without_a_preset_number() -> None:
    def growing(seeds: Seeds, replicas: int | None) -> Capacity:
        return StraightThrough(None, t0=0.5, lambda0=-1.0, beta=(2.0, 2.0), replicas=replicas)

    plain, fast = learner_of(growing, [3, 4]), learner_of(growing, [3, 4])
    before = fast.axes[0].bank.K
    train(Trainer, plain, plan(60))
    train(StepTrainer, fast, plan(60))
    assert before < fast.axes[0].bank.K == plain.axes[0].bank.K
    assert_close(plain, fast, 1e-5)


def stacked_banks(h: int) -> tuple[CapacityLearner, Tensor]:
    """Three models of seven blocks, and coefficients of six of them, some zero."""
    learner = stir(learner_of(lambda _, replicas: FixedCount(7, replicas=replicas), [7, 8, 9], h))
    c = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    c[0, 2] = c[1, 0] = c[1, 5] = 0.0
    return learner, c


def gradients_of(learner: CapacityLearner, c: Tensor, samples: int, eps: float | None = None) -> dict[str, Tensor]:
    bank = learner.axes[0].bank
    assert isinstance(bank, MLPBank)
    task, slope = Gradients(bank, batches(samples), eps)(c)
    grads = {name: bank.get_parameter(name).grad for name in NAMES}
    return {"task": task, "slope": slope, **{name: g for name, g in grads.items() if g is not None}}


@needs_kernel
@pytest.mark.parametrize("eps", [None, 1e-8, 0.1])
@pytest.mark.parametrize(("h", "samples"), [(5, 13), (8, 64), (16, 100), (20, 64), (40, 33), (64, 16)])
def test_closed_blocks_have_a_slope_and_no_gradients(h: int, samples: int, eps: float | None) -> None:
    learner, c = stacked_banks(h)
    found = gradients_of(learner, c, samples, eps)
    exact = copy.deepcopy(learner).double()
    bank, coefficients = exact.axes[0].bank, c.clone().requires_grad_()
    x, wanted = batches(samples).at(0)
    bank.zero_grad()
    f = bank.components(x.double(), c.shape[-1])
    scale = 1.0 if eps is None else (f.square().mean((-2, -1), keepdim=True) + eps).sqrt()
    loss = mean_squared_error((coefficients[..., None, None] * f / scale).sum(-3), wanted.double())
    loss.sum().backward()
    expected = {"task": loss.detach(), "slope": coefficients.grad}
    expected |= {name: bank.get_parameter(name).grad for name in NAMES}
    for name, value in expected.items():
        assert value is not None
        largest = float(value.abs().max())
        torch.testing.assert_close(found[name].double(), value, rtol=2e-5, atol=4e-6 * largest)
    for r, k in ((0, 2), (1, 0), (1, 5)):
        assert abs(float(found["slope"][r, k])) > 1e-4
        assert all(not found[name][r, k].any() for name in NAMES)
    assert all(not found[name][:, 6].any() for name in NAMES), "beyond the coefficients"


@needs_kernel
@pytest.mark.parametrize("eps", [None, 1e-8])
def test_gradients_do_not_depend_on_companions(threads: Callable[[int], None], eps: float | None) -> None:
    learner, c = stacked_banks(11)
    together = gradients_of(learner, c, 100, eps)
    for count in (2, 3, 8):
        threads(count)
        assert_same(gradients_of(learner, c, 100, eps), together)
    for r in range(3):
        alone = learner_of(lambda _, replicas: FixedCount(7, replicas=replicas), 7 + r, 11)
        alone.load_state_dict({name: p[r] for name, p in learner.state_dict().items()})
        assert_same(gradients_of(alone, c[r], 100, eps), replica(together, r))


@needs_kernel
@every_learner
def test_a_stack_trains_each_model_as_if_alone(kind: Kind) -> None:
    """To rounding: torch makes the coefficients, and its vectors and tails round float64 differently.

    The window of a stack is that of its furthest boundary, so that a model also moves components beyond its own, by
    what a gate below 1e-15 gives: the absolute tolerance.
    """
    together = learner_of(kind, [7, 8, 9])
    course = train(StepTrainer, together, plan(60))
    for r in range(3):
        alone = learner_of(kind, 7 + r)
        own = train(StepTrainer, alone, plan(60))
        for name, value in state(alone).items():
            mine = state(together)[name][r]
            torch.testing.assert_close(value, mine, rtol=1e-6 if "bank" in name else 1e-12, atol=1e-10)
        np.testing.assert_allclose(own.curves["loss"][:, 0], course.curves["loss"][:, r], rtol=1e-9)


@needs_kernel
@every_learner
def test_a_diverging_replica_leaves_the_others_alone(kind: Kind) -> None:
    with_it, without = learner_of(kind, [1, 2, 3]), learner_of(kind, [1, 2, 3])
    # Normalised functions are bounded until their weights overflow. The kernel's rms is float64 and does so later.
    rate = 1e38 if kind in NORMALISED else 1e30
    course = train(StepTrainer, with_it, plan(40, lr=torch.tensor([1e-3, rate, 1e-3])))
    reference = train(StepTrainer, without, plan(40, lr=torch.tensor([1e-3, 2e-3, 1e-3])))
    plain = train(Trainer, learner_of(kind, [1, 2, 3]), plan(40, lr=torch.tensor([1e-3, rate, 1e-3])))
    assert 0 < course.diverged_at[1] < 40
    if kind in NORMALISED:
        assert 0 < plain.diverged_at[1] <= course.diverged_at[1]
    else:
        assert course.diverged_at.tolist() == plain.diverged_at.tolist()
    assert reference.diverged_at.tolist() == [-1, -1, -1]
    for r in (0, 2):
        for name, value in state(without).items():
            torch.testing.assert_close(state(with_it)[name][r], value[r], rtol=0, atol=1e-12)
        np.testing.assert_allclose(course.curves["loss"][:, r], reference.curves["loss"][:, r], rtol=1e-12)


@needs_kernel
@every_learner
@pytest.mark.parametrize("seeds", [4, [4, 5]])
def test_resuming_changes_nothing(kind: Kind, seeds: Seeds, tmp_path: Path) -> None:
    whole, resumed = learner_of(kind, seeds), learner_of(kind, seeds)
    expected = train(StepTrainer, whole, plan(40))

    def stop(step: int) -> None:
        if step > 23:
            raise Stop

    with pytest.raises(Stop):
        train(StepTrainer, learner_of(kind, seeds), plan(40), folder=tmp_path, checkpoint_seconds=0.0, on_step=stop)
    course = train(StepTrainer, resumed, plan(40), folder=tmp_path, checkpoint_seconds=1e9)
    assert course.resumed == 1
    assert_same(state(resumed), state(whole))
    for name, values in expected.curves.items():
        assert np.array_equal(course.curves[name], values), name


@needs_kernel
@every_learner
def test_what_fits_is_taken(kind: Kind) -> None:
    def chosen(learner: CapacityLearner, **settings: Any) -> type[Trainer]:
        return trainer_for(learner, batches(), TASK.loss, plan(5, **settings))

    assert chosen(learner_of(kind, [1, 2])) is StepTrainer
    assert chosen(learner_of(kind, 1), lr_boundary_shape=COSINE) is Trainer


@needs_kernel
@pytest.mark.parametrize(
    ("method", "overrides", "engine", "largest"),
    [
        ("ngn", {}, "fused", LARGEST_FUSED),
        ("ste", {}, "fused-step", LARGEST_STEP),
        ("decay", {"method.normalise": False}, "fused-step", LARGEST_STEP),
        ("decay", {"method.normalise": True}, "fused-step", LARGEST_STEP),
        ("l0", {"engine": "torch"}, "torch", LARGEST),
    ],
)
def test_records_name_the_engine(
    method: str,
    overrides: dict[str, Any],
    engine: str,
    largest: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "SCRATCH", tmp_path / "scratch")
    small = {"results": str(tmp_path), "progress": "never", "train.steps": 3, "gate.K": 20, "phases": ["grown"]}
    config = compose({"task": "regression1d", "method": method, "profile": "smoke"}, small | overrides)
    assert largest_stack(config) == largest
    (outcome,) = launch.launch([config])
    assert json.loads(outcome.path.read_text())["execution"]["engine"] == engine


@needs_kernel
@pytest.mark.parametrize("seeds", [1, [1, 2]])
def test_closed_components_are_left_out_where_nothing_feels_them(seeds: Seeds) -> None:
    """The same bits as with them, for what is computed; hard-concrete gates do not feel the rest."""
    learner = stir(learner_of(l0, seeds))
    bank = learner.axes[0].bank
    assert isinstance(bank, MLPBank)
    learner.before_step(0)
    c = learner.axes[0].capacity.coefficients("soft")
    closed = (c == 0).detach()
    assert closed.any()
    assert not closed.all()
    found = []
    for flat in (False, True):
        task, along = Gradients(bank, batches(), flat=flat)(c)
        found.append((task, along, [bank.get_parameter(name).grad.clone() for name in NAMES]))  # type: ignore[union-attr]
    (task, along, gradients), (task_, along_, gradients_) = found
    assert torch.equal(task, task_)
    assert torch.equal(along[~closed], along_[~closed])
    assert (along[closed] != 0).all()
    assert (along_[closed] == 0).all()
    for a, b in zip(gradients, gradients_, strict=True):
        assert torch.equal(a, b)
    (slope,) = torch.autograd.grad(c, learner.axes[0].capacity.log_alpha, along, retain_graph=True)
    (slope_,) = torch.autograd.grad(c, learner.axes[0].capacity.log_alpha, along_)
    assert torch.equal(slope, slope_)
