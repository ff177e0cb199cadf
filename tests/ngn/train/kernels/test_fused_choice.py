"""Which trainer is taken, and how the kernel is built."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import threading
from pathlib import Path
from typing import BinaryIO

import pytest
from fused_cases import (
    TASK,
    batches,
    fixed,
    gated,
    needs_kernel,
    plan,
    train,
)
from torch import nn

from ngn.components.base import OrderedSum
from ngn.components.mlp import MLPBank
from ngn.components.parallel import ParallelModel, StackedLinear
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE
from ngn.train.batches import FullBatches, MiniBatches, Split
from ngn.train.kernels import FusedTrainer, StepTrainer, trainer_for, unsupported
from ngn.train.kernels.build import BuildError, _run, build, compiler, load
from ngn.train.trainer import Trainer


@needs_kernel
def test_what_fits_is_taken() -> None:
    assert unsupported(gated(1), batches(), TASK.loss, plan(10)) is None
    assert trainer_for(gated([1, 2]), batches(), TASK.loss, plan(10)) is FusedTrainer
    assert trainer_for(fixed(1, 3), batches(), TASK.loss, plan(10)) is FusedTrainer
    assert trainer_for(own_gate(), batches(), TASK.loss, plan(10)) is StepTrainer
    with pytest.raises(ValueError, match="OwnGate"):
        train(FusedTrainer, own_gate(), plan(5))


class OwnGate(CountGate):
    """A method that the kernel cannot know: it gives the gradients, and torch does the rest."""


class OwnSum(OrderedSum):
    """A sum that the kernel cannot know."""


def own_gate() -> CapacityLearner:
    return CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, 8, 8, 1], 4, 0), OwnGate(4))))


def deep(hidden: list[int], K: int = 4) -> CapacityLearner:
    return CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, *hidden, 1], K, 0), CountGate(K))))


def with_head() -> CapacityLearner:
    return CapacityLearner(ParallelModel(OrderedSum(MLPBank([1, 8, 8, 1], 4, 0), CountGate(4)), StackedLinear(1, 1, 0)))


def test_what_does_not_fit_is_left_to_the_plain_trainer() -> None:
    frozen = gated(1)
    frozen.axes[0].bank.get_parameter("b1").requires_grad_(False)
    own = CapacityLearner(ParallelModel(OwnSum(MLPBank([1, 8, 8, 1], 4, 0), CountGate(4))))
    split = batches().split
    shuffled = MiniBatches(split, 64, 0, lambda x: x)
    double = FullBatches(Split(split.inputs.double(), split.targets.double()))
    cases: list[tuple[tuple[object, ...], str]] = [
        ((with_head(), batches(), TASK.loss, plan(5)), "more than one ordered sum"),
        ((deep([8]), batches(), TASK.loss, plan(5)), "not MLPs of the sizes"),
        ((deep([8, 16]), batches(), TASK.loss, plan(5)), "not MLPs of the sizes"),
        ((deep([65, 65]), batches(), TASK.loss, plan(5)), "width 65"),
        ((own, batches(), TASK.loss, plan(5)), "OwnSum"),
        ((frozen, batches(), TASK.loss, plan(5)), "frozen"),
        ((gated(1).double(), batches(), TASK.loss, plan(5)), "not float32"),
        ((fixed(1, 0), batches(), TASK.loss, plan(5)), "no blocks"),
        ((gated(1), shuffled, TASK.loss, plan(5)), "full-batch"),
        ((gated(1), batches(), nn.functional.l1_loss, plan(5)), "mean squared error"),
        ((gated(1), double, TASK.loss, plan(5)), "inputs and targets"),
        ((gated(1), batches(), TASK.loss, plan(5, accumulate=2)), "micro-batches"),
        ((gated(1), batches(), TASK.loss, plan(5, autocast="bf16")), "autocast"),
        ((gated(1), batches(), TASK.loss, plan(5, lr_boundary_shape=COSINE)), "boundary's rate"),
    ]
    for arguments, reason in cases:
        found = unsupported(*arguments)  # type: ignore[arg-type]
        assert found is not None, reason
        assert reason in found
        assert trainer_for(*arguments) is Trainer  # type: ignore[arg-type]
    for kind in (FusedTrainer, StepTrainer):
        with pytest.raises(ValueError, match="OwnSum"):
            train(kind, own, plan(5))
    normalised = gated(1)
    normalised.axes[0].capacity.rms_eps = 1e-6
    with pytest.raises(ValueError, match="normalised"):
        train(FusedTrainer, normalised, plan(5))


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


def test_a_compiler_that_is_given_up_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's compiler is its child, and would go on without it."""
    fifo = tmp_path / "held open by the child"
    os.mkfifo(fifo)
    held: list[BinaryIO] = []

    def out_of_time(process: subprocess.Popen[str], timeout: float) -> None:
        held.append(fifo.open("rb", buffering=0))  # waits until the child has opened it
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", out_of_time)
    with pytest.raises(BuildError, match="did not end within"):
        _run([str(fake_compiler(tmp_path, f'sleep 1000 > "{fifo}" &\nwait'))])
    with held[0] as end:
        ended, _, _ = select.select([end], [], [], 60)
        assert ended, "the child still runs"
        assert end.read() == b""


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
    changed = build(source)
    (tmp_path / "some.h").write_text("int z;")
    assert len({built[0], changed, build(source)}) == 3
    assert log.read_text().splitlines() == ["call"] * 3
