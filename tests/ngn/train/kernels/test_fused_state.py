"""What the kernel's trainer keeps from call to call: companions, growth, checkpoints, divergence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fused_cases import (
    Stop,
    assert_close,
    assert_same,
    fixed,
    gated,
    needs_kernel,
    plan,
    replica,
    state,
    train,
)

from ngn.learner import CapacityLearner
from ngn.methods.base import CapacityExceeded
from ngn.train import checkpoint
from ngn.train.kernels import FusedTrainer
from ngn.train.trainer import Trainer

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
@pytest.mark.parametrize("seeds", [3, [3, 4]])
def test_growth_without_a_preset_number(seeds: int | list[int], tmp_path: Path) -> None:
    """Components appear as the boundary needs them; nothing else differs from a bank that had them from the start."""
    settings: dict[str, Any] = {"t0": 0.5, "lambda0": -1.0, "beta": (4.0, 5.0)}
    preset, growing, plain = (gated(seeds, K=K, **settings) for K in (40, None, None))
    before = growing.axes[0].bank.K
    train(FusedTrainer, preset, plan(200))
    train(FusedTrainer, growing, plan(200))
    train(Trainer, plain, plan(200))
    K = growing.axes[0].bank.K
    assert before < K < 40
    assert plain.axes[0].bank.K == K
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
