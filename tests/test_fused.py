"""The compiled kernel for banks of 1D blocks against the plain trainer, and against itself alone, cut, in company."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ngn.components.base import OrderedSum
from ngn.components.mlp import MLPBank
from ngn.components.parallel import ParallelModel, StackedLinear
from ngn.compose import compose
from ngn.engine import checkpoint
from ngn.engine.batches import FullBatches, MiniBatches, Split
from ngn.engine.fused import FusedTrainer, trainer_for, unsupported
from ngn.engine.fused import bank1d as module
from ngn.engine.fused.build import BuildError, build, compiler, load
from ngn.engine.optim import ClipScope, adam
from ngn.engine.phases import learner_of, plan_of
from ngn.engine.trainer import Course, Trainer, TrainPlan
from ngn.methods.base import CapacityExceeded, Scalar
from ngn.methods.fixed import FixedCount
from ngn.methods.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.schedules import CONSTANT, COSINE
from ngn.tasks import make_task
from ngn.tasks.regression1d import RegressionTask, target

needs_kernel = pytest.mark.skipif(module.compiled() is None, reason="no C++ compiler that can build the kernel")

TASK = object.__new__(RegressionTask)
"""Only its loss is used, which needs no data."""


def batches(samples: int = 512) -> FullBatches:
    # Not symmetric: on even points the sum of an odd target's residuals is rounding, which Adam makes into full steps.
    x = torch.empty(samples, 1).uniform_(-np.pi, np.pi, generator=torch.Generator().manual_seed(1)).sort(0).values
    return FullBatches(Split(x, target(x)))


def gated(
    seeds: int | Sequence[int], K: int | None = 32, h: int = 16, t0: Scalar = 2.3, **settings: Any
) -> CapacityLearner:
    gate = CountGate(K, t0=t0, replicas=None if isinstance(seeds, int) else len(seeds), **settings)
    return CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, h, h, 1], gate.K, seeds), gate)))


def fixed(seeds: int | Sequence[int], count: int) -> CapacityLearner:
    bank = MLPBank([1, 16, 16, 1], count, seeds)
    return CapacityLearner(ParallelModel(OrderedSum(bank, FixedCount(count, r=0.7, replicas=bank.replicas))))


def stir(learner: CapacityLearner) -> CapacityLearner:
    """Last maps that are not zero, so that every gradient counts."""
    bank = learner.groups[0].bank
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name in ("W3", "b3"):
            p = getattr(bank, name)
            p.copy_(torch.randn(p.shape, generator=source) * 0.3)
    return learner


def plan(steps: int, lr: float | Tensor = 1e-3, clip: float | None = 0.003, **settings: Any) -> TrainPlan:
    return TrainPlan(steps=steps, lr=lr, lr_shape=COSINE, clip=clip, **settings)


def train(kind: type[Trainer], learner: CapacityLearner, how: TrainPlan, samples: int = 512, **settings: Any) -> Course:
    return kind(learner, batches(samples), TASK.loss, how, progress="never", **settings).fit()


def state(learner: CapacityLearner) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in learner.model.named_parameters()}


def assert_close(a: CapacityLearner, b: CapacityLearner, atol: float) -> None:
    for name, value in state(a).items():
        torch.testing.assert_close(value, state(b)[name], rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    """The same bits, NaN included."""
    for name, value in a.items():
        assert value.numpy().tobytes() == b[name].numpy().tobytes(), name


def replica(values: dict[str, Tensor], r: int) -> dict[str, Tensor]:
    return {name: value[r].clone() for name, value in values.items()}


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@needs_kernel
def test_tanh() -> None:
    x = torch.cat([torch.linspace(-12, 12, 400_001), torch.logspace(-30, 30, 2001)])
    x = torch.cat([x, -x])
    exact = x.double().tanh()
    error = (module.fast_tanh(x).double() - exact).abs()
    assert error.max() <= 2.5e-7
    assert error.square().mean().sqrt() <= 6e-8
    special = module.fast_tanh(torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0]))
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
    (TASK.loss(exact.soft_forward(x.double()), wanted.double()) + exact.penalty()).sum().backward()
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
    capacity = learner.groups[0].capacity
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


SCALARS = {"t0": [0.4, 6.0, 2.5], "lambda0": [1e-4, 0.2, 1e-3], "beta": ([4.0, 6.0, 8.0], [15.0, 12.0, 9.0])}
RATES = torch.tensor([1e-3, 2e-3, 5e-4])


def stack() -> CapacityLearner:
    return gated([7, 8, 9], **SCALARS)


@needs_kernel
def test_a_replica_does_not_depend_on_its_companions(threads: Callable[[int], None]) -> None:
    how = plan(150, lr=RATES, lr_boundary=torch.tensor([5e-2, 0.2, 0.1]))
    together = stack()
    course = train(FusedTrainer, together, how)
    for count in (2, 3, 8):
        threads(count)
        again = stack()
        assert np.array_equal(train(FusedTrainer, again, how).curves["loss"], course.curves["loss"])
        assert_same(state(again), state(together))
    for r in range(3):
        scalars = {name: v[r] if isinstance(v, list) else (v[0][r], v[1][r]) for name, v in SCALARS.items()}
        alone = gated(7 + r, **scalars)
        own = train(FusedTrainer, alone, plan(150, lr=float(RATES[r]), lr_boundary=float(how.lr_boundary[r])))  # type: ignore[index]
        # Rates go through float32 in RATES, so both sides see the same number.
        assert_same(state(alone), replica(state(together), r))
        for name in ("loss", "task", "t"):
            assert np.array_equal(own.curves[name][:, 0], course.curves[name][:, r])


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


class Stop(Exception):
    """The interruption."""


@needs_kernel
@pytest.mark.parametrize("seeds", [3, [3, 4]])
def test_growth_without_a_preset_number(seeds: int | list[int], tmp_path: Path) -> None:
    """Components appear as the boundary needs them; nothing else differs from a bank that had them from the start."""
    settings: dict[str, Any] = {"t0": 0.5, "lambda0": -1.0, "beta": (4.0, 5.0)}
    preset, growing, plain = (gated(seeds, K=K, **settings) for K in (40, None, None))
    before = growing.groups[0].bank.K
    train(FusedTrainer, preset, plan(200))
    train(FusedTrainer, growing, plan(200))
    train(Trainer, plain, plan(200))
    K = growing.groups[0].bank.K
    assert before < K < 40
    assert plain.groups[0].bank.K == K
    axis = 0 if isinstance(seeds, int) else 1
    same = {n: v if "tau" in n else v.narrow(axis, 0, K) for n, v in state(preset).items()}
    assert_same(state(growing), same)

    def stop(step: int) -> None:
        if step > 60:
            raise Stop

    resumed = gated(seeds, K=None, **settings)
    with pytest.raises(Stop):
        train(FusedTrainer, gated(seeds, K=None, **settings), plan(200), folder=tmp_path, checkpoint_seconds=0.0,
              on_step=stop, chunk=7)  # fmt: skip
    assert train(FusedTrainer, resumed, plan(200), folder=tmp_path, checkpoint_seconds=1e9).resumed == 1
    assert_same(state(resumed), state(growing))


@needs_kernel
def test_growth_ends_at_its_limit() -> None:
    learner = gated([1, 2], K=None, t0=0.5, lambda0=-1.0, beta=(4.0, 5.0), K_max=11)
    with pytest.raises(CapacityExceeded, match="K_max = 11"):
        train(FusedTrainer, learner, plan(200))


@needs_kernel
@pytest.mark.parametrize("cuts", [[7], [63], [14, 21, 98]])
@pytest.mark.parametrize("build_learner", [stack, lambda: gated(4, t0=0.3), lambda: fixed([1, 2], 3)])
def test_resuming_changes_nothing(
    cuts: list[int], build_learner: Callable[[], CapacityLearner], tmp_path: Path
) -> None:
    whole = build_learner()
    how = plan(120, lr=RATES if whole.replicas == 3 else 1e-3, lr_boundary=0.3)
    expected = train(FusedTrainer, whole, how)
    for cut in cuts:

        def stop(step: int, cut: int = cut) -> None:
            # The checkpoint of a step is written after on_step: this is the first call past it.
            if step > cut:
                raise Stop

        with pytest.raises(Stop):
            train(FusedTrainer, build_learner(), how, folder=tmp_path, checkpoint_seconds=0.0, on_step=stop, chunk=7)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found[0] == cuts[-1]
    resumed = build_learner()
    course = train(FusedTrainer, resumed, how, folder=tmp_path, checkpoint_seconds=1e9)
    assert course.resumed == len(cuts)
    assert_same(state(resumed), state(whole))
    for name, values in expected.curves.items():
        assert np.array_equal(course.curves[name], values), name


@needs_kernel
def test_either_trainer_reads_the_other_ones_checkpoints(tmp_path: Path) -> None:
    for first, second in ((Trainer, FusedTrainer), (FusedTrainer, Trainer)):
        folder = tmp_path / first.__name__

        def stop(step: int) -> None:
            if step > 30:
                raise Stop

        more = {"chunk": 10} if first is FusedTrainer else {}
        with pytest.raises(Stop):
            train(first, gated([1, 2]), plan(60), folder=folder, checkpoint_seconds=0.0, on_step=stop, **more)
        whole, mixed = gated([1, 2]), gated([1, 2])
        train(Trainer, whole, plan(60))
        assert train(second, mixed, plan(60), folder=folder).resumed == 1
        assert_close(whole, mixed, 5e-6)


@needs_kernel
def test_a_diverging_replica_leaves_the_others_alone() -> None:
    with_it, without = gated([1, 2, 3]), gated([1, 2, 3])
    course = train(FusedTrainer, with_it, plan(80, lr=torch.tensor([1e-3, 1e30, 1e-3])), chunk=5)
    reference = train(FusedTrainer, without, plan(80, lr=1e-3 * torch.ones(3)))
    plain = train(Trainer, gated([1, 2, 3]), plan(80, lr=torch.tensor([1e-3, 1e30, 1e-3])))
    assert 0 < course.diverged_at[1] < 75
    assert course.diverged_at.tolist() == plain.diverged_at.tolist()
    assert not np.isfinite(course.curves["loss"][-1, 1])
    for r in (0, 2):
        assert_same(replica(state(with_it), r), replica(state(without), r))
        assert np.array_equal(course.curves["loss"][:, r], reference.curves["loss"][:, r])
    assert reference.diverged_at.tolist() == [-1, -1, -1]


@needs_kernel
def test_calls_at_chunk_ends_and_chunks_do_not_matter() -> None:
    seen: list[int] = []
    a, b = gated([1, 2]), gated([1, 2])
    train(FusedTrainer, a, plan(50), chunk=20, on_step=seen.append)
    assert seen == [20, 40, 50]
    course = train(FusedTrainer, b, plan(50), chunk=1)
    assert_same(state(a), state(b))
    assert course.curves["step"].tolist() == list(range(50))


@needs_kernel
def test_what_fits_is_taken() -> None:
    assert unsupported(gated(1), batches(), TASK.loss, plan(10)) is None
    assert trainer_for(gated([1, 2]), batches(), TASK.loss, plan(10)) is FusedTrainer
    assert trainer_for(fixed(1, 3), batches(), TASK.loss, plan(10)) is FusedTrainer


class OwnGate(CountGate):
    """A method that the kernel cannot know."""


def deep(hidden: list[int], K: int = 4) -> CapacityLearner:
    return CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, *hidden, 1], K, 0), CountGate(K))))


def with_head() -> CapacityLearner:
    return CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, 8, 8, 1], 4, 0), CountGate(4)), StackedLinear(1, 1, 0)))


def test_what_does_not_fit_is_left_to_the_plain_trainer() -> None:
    frozen = gated(1)
    frozen.groups[0].bank.get_parameter("b1").requires_grad_(False)
    own = CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, 8, 8, 1], 4, 0), OwnGate(4))))
    normalised = gated(1)
    normalised.groups[0].capacity.rms_eps = 1e-6
    split = batches().split
    shuffled = MiniBatches(split, 64, 0, lambda x: x)
    double = FullBatches(Split(split.inputs.double(), split.targets.double()))
    cases: list[tuple[tuple[object, ...], str]] = [
        ((with_head(), batches(), TASK.loss, plan(5)), "more than one ordered sum"),
        ((deep([8]), batches(), TASK.loss, plan(5)), "not MLPs of the sizes"),
        ((deep([8, 16]), batches(), TASK.loss, plan(5)), "not MLPs of the sizes"),
        ((deep([65, 65]), batches(), TASK.loss, plan(5)), "width 65"),
        ((own, batches(), TASK.loss, plan(5)), "OwnGate"),
        ((normalised, batches(), TASK.loss, plan(5)), "normalised"),
        ((frozen, batches(), TASK.loss, plan(5)), "frozen"),
        ((gated(1).double(), batches(), TASK.loss, plan(5)), "not float32"),
        ((fixed(1, 0), batches(), TASK.loss, plan(5)), "no blocks"),
        ((gated(1), shuffled, TASK.loss, plan(5)), "full-batch"),
        ((gated(1), batches(), nn.functional.l1_loss, plan(5)), "mean squared error"),
        ((gated(1), double, TASK.loss, plan(5)), "inputs and targets"),
        ((gated(1), batches(), TASK.loss, plan(5, accumulate=2)), "micro-batches"),
        ((gated(1), batches(), TASK.loss, plan(5, autocast="bf16")), "autocast"),
    ]
    for arguments, reason in cases:
        found = unsupported(*arguments)  # type: ignore[arg-type]
        assert found is not None, reason
        assert reason in found
        assert trainer_for(*arguments) is Trainer  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="OwnGate"):
        train(FusedTrainer, own, plan(5))


def fake_compiler(folder: Path, body: str) -> Path:
    script = folder / "fake-c++"
    script.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo fake 1.0; exit 0; fi\n{body}\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("why", ["missing", "failing", "useless"])
def test_without_a_working_compiler_the_plain_trainer_is_used(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if why == "missing":
        monkeypatch.setenv("CXX", "no-such-compiler")
    else:
        last = 'for last; do :; done\necho nonsense > "$last"'
        body = "echo 'it is broken' >&2; exit 3" if why == "failing" else last
        monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, body)))
    load.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert trainer_for(gated(1), batches(), TASK.loss, plan(5)) is Trainer
        (record,) = caplog.records
        wanted = {"missing": "no C++ compiler found", "failing": "it is broken", "useless": "bank1d"}[why]
        assert wanted in record.getMessage()
        assert not list((tmp_path / "ngn" / "lib").glob("*.so")) or why == "useless"
    finally:
        load.cache_clear()


def test_compilers_are_looked_for_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"looked for c\+\+, g\+\+, clang\+\+"):
        compiler()
    (tmp_path / "clang++").write_text("#!/bin/sh\n")
    (tmp_path / "clang++").chmod(0o755)
    assert compiler() == str(tmp_path / "clang++")


def test_many_builders_compile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "calls"
    body = f'echo call >> "{log}"\nfor last; do :; done\necho library > "$last"'
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, body)))
    source = tmp_path / "some.cpp"
    source.write_text("int x;")
    built: list[Path] = []
    together = [threading.Thread(target=lambda: built.append(build(source))) for _ in range(6)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert log.read_text().splitlines() == ["call"]
    assert len(built) == 6
    assert set(built) == {build(source)}
    assert built[0].read_text() == "library\n"
    source.write_text("int y;")
    assert build(source) != built[0]
    assert log.read_text().splitlines() == ["call", "call"]


@needs_kernel
@pytest.mark.slow
def test_late_gradients_are_as_accurate_as_torchs() -> None:
    """Late in a training the residuals are small and their errors count; both against float64, seed by seed."""
    configuration = compose({}, {"seed.value": 0})
    task = make_task(configuration, torch.device("cpu"))
    batches, plan = task.batches(configuration.train, 0), plan_of([configuration], 512)
    learner = learner_of([configuration], task)

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
        (model(x) - y).square().mean().backward()
        return {
            name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None and "tau" not in name
        }

    exact = gradients(copy.deepcopy(learner.model).double(), torch.float64)
    by_torch = gradients(copy.deepcopy(learner.model), torch.float32)
    rates = (torch.tensor([rate], dtype=torch.float64) for rate in (1e-3, 5e-2))
    optimizer = adam(learner.body_parameters(), learner.controller_parameters(), *rates, weight_decay=0.0)
    state = module._State(learner, optimizer)
    module._Kernel(learner, batches, dataclasses.replace(plan, clip=None), state).advance(20_000, 1)
    state.unpack(20_001)
    ours = {name: optimizer.state[p]["exp_avg"].double() / 0.1 for name, p in learner.model.named_parameters()}

    def error(found: dict[str, torch.Tensor]) -> float:
        return math.sqrt(sum(float((found[n] - exact[n]).square().sum() / exact[n].square().sum()) for n in exact))

    assert error(ours) <= 2 * error(by_torch)
