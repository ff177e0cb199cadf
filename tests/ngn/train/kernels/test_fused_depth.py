"""The compiled kernel for models of learned depth against the plain trainer and autograd in float64."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fused_cases import Stop, assert_close, assert_same, plan, replica, state

from experiments.config.compose import compose
from experiments.runs import places, training
from experiments.runs.stack import LARGEST, Stack, largest_stack, stacks_of
from experiments.tasks.twist.task import TwistTask
from ngn.components.base import OrderedSum
from ngn.components.depth import ChainBank, LayerStack, TanhBank
from ngn.components.parallel import ParallelModel
from ngn.learner import CapacityLearner
from ngn.methods.base import Capacity
from ngn.methods.fixed import FixedCount
from ngn.methods.ngn import CountGate
from ngn.methods.ste import StraightThrough
from ngn.schedules import CONSTANT
from ngn.train import checkpoint
from ngn.train.batches import FullBatches, Split
from ngn.train.kernels import FusedTrainer, trainer_for
from ngn.train.kernels.kernel import compiled
from ngn.train.losses import mean_squared_error
from ngn.train.trainer import Course, Trainer, TrainPlan

needs_kernel = pytest.mark.skipif(compiled("planar") is None, reason="no C++ compiler that can build the kernel")

Seeds = int | Sequence[int]
TASK = object.__new__(TwistTask)
"""Only its loss is used, which needs no data."""


def batches(samples: int = 150) -> FullBatches:
    x = torch.randn(samples, 2, generator=torch.Generator().manual_seed(1))
    return FullBatches(Split(x, torch.stack([x[:, 0] * x[:, 1], x[:, 0].sin() - x[:, 1]], 1)))


def gate(K: int | None, seeds: Seeds, **settings: Any) -> CountGate:
    return CountGate(K, replicas=None if isinstance(seeds, int) else len(seeds), **settings)


def stack_of(seeds: Seeds, capacities: Sequence[Capacity]) -> CapacityLearner:
    last = len(capacities) - 1
    banks = [TanhBank(2, size.K, seeds, i, identity=i < last) for i, size in enumerate(capacities)]
    return CapacityLearner(LayerStack([OrderedSum(bank, size) for bank, size in zip(banks, capacities, strict=True)]))


def layers(seeds: Seeds, K: int | None = 6, **settings: Any) -> CapacityLearner:
    """Four layers whose boundaries, prices and ratios differ."""
    places = zip((0.3, 2.2, 1.4, 3.1), (1e-1, 1e-2, 1e-3, 1e-4), (0.5, 0.6, 0.7, 0.8), strict=True)
    return stack_of(
        seeds, [gate(K, seeds, **({"t0": t, "lambda0": price, "r": r} | settings)) for t, price, r in places]
    )


def chain(seeds: Seeds, K: int | None = 7, width: int = 32, **settings: Any) -> CapacityLearner:
    size = gate(K, seeds, **({"t0": 2.3, "r": 1.0} | settings))
    learner = CapacityLearner(ParallelModel(OrderedSum(ChainBank(2, width, size.K, seeds), size)))
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():  # no map at zero, so that every gradient counts
        for name in ("V", "b"):
            p = learner.axes[0].bank.get_parameter(name)
            p.copy_((torch.randn(p.shape[-3:] if name == "V" else p.shape[-2:], generator=source) * 0.2).expand_as(p))
    return learner


def fixed_layers(seeds: Seeds, counts: Sequence[int] = (1, 3, 1, 2)) -> CapacityLearner:
    replicas = None if isinstance(seeds, int) else len(seeds)
    return stack_of(seeds, [FixedCount(count, r=0.7, replicas=replicas) for count in counts])


def fixed_chain(seeds: Seeds) -> CapacityLearner:
    learner = chain(seeds, K=3)
    group = learner.axes[0]
    size = FixedCount(3, r=1.0, replicas=group.bank.replicas)
    return CapacityLearner(ParallelModel(OrderedSum(group.bank, size)))


def train(kind: type[Trainer], learner: CapacityLearner, how: TrainPlan, samples: int = 150, **settings: Any) -> Course:
    return kind(learner, batches(samples), TASK.loss, how, progress="never", **settings).fit()


Make = Callable[..., CapacityLearner]
both = pytest.mark.parametrize("make", [layers, chain])
every = pytest.mark.parametrize("make", [layers, chain, fixed_layers, fixed_chain])


@needs_kernel
@both
@pytest.mark.parametrize("delta", [0.5, -0.5])
def test_gradients(make: Make, delta: float, tmp_path: Path) -> None:
    """One step's gradients, penalties included, read from Adam's first moment, against autograd in float64."""
    shapes = dict.fromkeys(("lambda_shape", "alpha_shape", "beta_shape"), CONSTANT)
    learner = make([0, 1], delta=delta, alpha_max=0.05, **shapes)
    exact = copy.deepcopy(learner).double()
    exact.set_progress(0.0)
    x, wanted = batches().at(0)
    (mean_squared_error(exact(x.double()), wanted.double()) + exact.penalty()).sum().backward()
    gradients = {name: p.grad for name, p in exact.model.named_parameters()}
    name_of = {id(p): name for name, p in learner.model.named_parameters()}
    names = [name_of[id(p)] for p in (*learner.body_parameters(), *learner.controller_parameters())]
    train(FusedTrainer, learner, plan(2, clip=None), folder=tmp_path, checkpoint_seconds=0.0, chunk=1)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found[0] == 1
    for i, name in enumerate(names):
        gradient = gradients[name]
        assert gradient is not None
        moment = found[1][f"adam.{i}.exp_avg"].double() / 0.1
        largest = float(gradient.abs().max())
        assert largest > 0
        torch.testing.assert_close(moment, gradient, rtol=2e-5, atol=4e-6 * largest, msg=lambda m, n=name: f"{n}: {m}")


@needs_kernel
@every
def test_follows_the_plain_trainer(make: Make) -> None:
    plain, fast = make([3, 4, 5]), make([3, 4, 5])
    how = plan(60, lr=torch.tensor([1e-3, 2e-3, 5e-4]))
    a, b = train(Trainer, plain, how), train(FusedTrainer, fast, how)
    assert_close(plain, fast, 1e-5)
    for name in ("loss", "task", "t"):
        assert a.curves[name].shape == b.curves[name].shape
        np.testing.assert_allclose(a.curves[name], b.curves[name], rtol=0, atol=1e-5)
    assert b.diverged_at.tolist() == [-1, -1, -1]


@needs_kernel
@pytest.mark.parametrize(("width", "samples"), [(5, 13), (8, 64), (20, 65), (64, 129)])
def test_widths_and_sample_counts(width: int, samples: int) -> None:
    """What is padded, units and samples, changes nothing."""
    for make in (lambda: chain([1, 2], width=width), lambda: layers([1, 2])):
        plain, fast = make(), make()
        train(Trainer, plain, plan(20), samples)
        train(FusedTrainer, fast, plan(20), samples)
        assert_close(plain, fast, 5e-6)


@needs_kernel
@pytest.mark.parametrize("scope", ["joint", "separate", "body"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_clipping_and_decay(scope: Any, weight_decay: float) -> None:
    """Norms are taken over all groups; decay reaches closed components."""
    settings = {"lambda_shape": CONSTANT, "lambda0": 0.5}
    how = plan(30, clip=0.01, clip_scope=scope, weight_decay=weight_decay)
    for make in (layers, chain):
        plain, fast = make([1, 2], K=8, **settings), make([1, 2], K=8, **settings)
        train(Trainer, plain, how)
        train(FusedTrainer, fast, how)
        assert_close(plain, fast, 4e-6)


@needs_kernel
@every
@pytest.mark.parametrize("clip", [0.003, None])
def test_a_replica_does_not_depend_on_its_companions(make: Make, clip: float | None) -> None:
    together = make([7, 8, 9])
    course = train(FusedTrainer, together, plan(60, clip=clip))
    for r in range(3):
        alone = make(7 + r)
        own = train(FusedTrainer, alone, plan(60, clip=clip))
        assert_same(state(alone), replica(state(together), r))
        for name in ("loss", "task", "t"):
            assert np.array_equal(own.curves[name][:, 0], course.curves[name][:, r])


@needs_kernel
@every
def test_resuming_changes_nothing(make: Make, tmp_path: Path) -> None:
    straight = make([1, 2])
    course = train(FusedTrainer, straight, plan(60))

    def stop(step: int) -> None:
        if step >= 33:
            raise Stop

    broken = make([1, 2])
    with pytest.raises(Stop):
        train(FusedTrainer, broken, plan(60), folder=tmp_path, checkpoint_seconds=0.0, chunk=7, on_step=stop)
    resumed = make([1, 2])
    again = train(FusedTrainer, resumed, plan(60), folder=tmp_path)
    assert again.resumed == 1
    assert_same(state(resumed), state(straight))
    for name in ("loss", "task", "t"):
        assert np.array_equal(again.curves[name], course.curves[name])


@needs_kernel
@both
def test_growth_without_a_preset_number(make: Make) -> None:
    """Every group gets its components when its own boundary needs them, as if they had always been there."""
    settings = {"t0": 0.5, "beta": (15.0, 15.0), "lambda0": -1.0, "r": 0.9}
    how = plan(60, clip=None, lr_boundary=0.2)
    grown, preset = make([1, 2], K=None, **settings), make([1, 2], K=40, **settings)
    before = [group.bank.K for group in grown.axes]
    if make is chain:  # what is appended is drawn, so both start from what is drawn
        for learner in (grown, preset):
            bank = learner.axes[0].bank
            for name, value in bank._drawn(0, bank.K).items():
                bank.get_parameter(name).data.copy_(value)
    a, b = train(FusedTrainer, grown, how), train(FusedTrainer, preset, how)
    assert any(group.bank.K > K for group, K in zip(grown.axes, before, strict=True))
    assert np.array_equal(a.curves["t"], b.curves["t"])
    for name, p in state(grown).items():
        q = state(preset)[name]
        assert torch.equal(p, q[:, : p.shape[1]] if p.dim() > 1 else q), name


@needs_kernel
def test_a_diverging_replica_leaves_the_others_alone() -> None:
    both, alone = layers([1, 2]), layers(2)
    how = plan(40, lr=torch.tensor([1e38, 1e-3], dtype=torch.float64), clip=None)
    with torch.no_grad():
        both.axes[1].bank.get_parameter("W")[0] = float("nan")
    course = train(FusedTrainer, both, how)
    train(FusedTrainer, alone, plan(40, clip=None))
    assert course.diverged_at.tolist() == [0, -1]
    assert_same(state(alone), replica(state(both), 1))


@needs_kernel
def test_what_fits_is_taken() -> None:
    def engine(learner: CapacityLearner, loss: Any = TASK.loss) -> str:
        return trainer_for(learner, batches(), loss, plan(5)).engine

    for make in (layers, chain, fixed_layers, fixed_chain):
        assert engine(make([1, 2])) == "fused"
    assert engine(chain(1, width=65)) == "torch"
    assert engine(layers(1), lambda output, target: (output - target).abs().mean((-2, -1))) == "torch"
    mixed = [CountGate(3), CountGate(3, delta=-0.5)]
    assert engine(stack_of(1, mixed)) == "torch"
    with pytest.raises(ValueError, match="differ in their schedules"):
        train(FusedTrainer, stack_of(1, mixed), plan(5))
    assert engine(stack_of(1, [StraightThrough(3), StraightThrough(3)])) == "torch"


@needs_kernel
@pytest.mark.parametrize("gate_name", ["layers", "chain"])
def test_runs_by_either_engine(gate_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From configuration to record: seeds are one stack of the kernel, and agree with the torch engine."""
    monkeypatch.setattr(places, "SCRATCH", tmp_path / "scratch")
    choice = {"task": "twist", "gate": gate_name, "schedule": "dec_lambda_inc_r" if gate_name == "layers" else "paper"}

    def pack(engine: str) -> list[Any]:
        settings = {
            "train.steps": 40,
            "engine": engine,
            "results": str(tmp_path / engine),
            "progress": "never",
            "phases": ["grown", "fixed"],
        }
        return [compose(choice | {"profile": "smoke"}, settings | {"seed.value": seed}) for seed in (0, 1)]

    fused, plain = pack("fused"), pack("torch")
    assert largest_stack(fused[0]) == LARGEST
    (stack,) = stacks_of(fused)
    found = [json.loads(outcome.path.read_text())["phases"] for outcome in training.train_stack(stack)]
    others = [json.loads(training.train_stack(Stack((config,)))[0].path.read_text())["phases"] for config in plain]
    for run, other in zip(found, others, strict=True):
        assert run["grown"]["count"] == other["grown"]["count"]
        np.testing.assert_allclose(run["grown"]["t"], other["grown"]["t"], rtol=0, atol=1e-5)
        for phase, mode in (("grown", "soft"), ("fixed", "truncated")):
            np.testing.assert_allclose(run[phase][mode]["mse"], other[phase][mode]["mse"], rtol=1e-4)
