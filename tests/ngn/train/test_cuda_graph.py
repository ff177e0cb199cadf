"""A recorded step against the plain trainer: on a CPU by what does the same as a CUDA graph, on CUDA by one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fused_cases import TASK, Stop, assert_same, batches, gated, plan, state
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from experiments.config.compose import compose
from experiments.runs.phases import learner_of, trainer_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.learner import CapacityLearner
from ngn.train.batches import Batches, MiniBatches, Split
from ngn.train.cuda_graph import CapturedTrainer, Outputs, Run, cuda_graph, unsupported_captured
from ngn.train.trainer import Course, Trainer, TrainPlan

REGRESSION = make_task(compose({}, {}), torch.device("cpu"))
METHODS: dict[str, dict[str, Any]] = {
    "ngn": {},
    "ste": {},
    "fixed": {"method.count": 3},
    "l0": {},
    "awnn": {"method.width": 4.0},
    "decay": {},
    "normalised": {"method.normalise": True},
}


class Tape(TorchDispatchMode):
    """Records operations with the memory that they read and write. A number read back to the host is refused.

    Repeating runs them on that memory again, with every host value as it was: what a CUDA graph does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise RuntimeError(f"{func} reads from the device")
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        held = tree_map_only(Tensor, torch.Tensor.detach, (args, kwargs, result))
        self.operations.append((func, *held))
        return result

    @torch.no_grad()
    def repeat(self) -> None:
        for func, args, kwargs, result in self.operations:
            given = {
                leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)
            }
            new = func(*args, **kwargs)
            for old, value in zip(tree_leaves(result), tree_leaves(new), strict=True):
                if isinstance(old, Tensor) and old.untyped_storage().data_ptr() not in given:
                    old.copy_(value)


def tape(run: Run) -> tuple[Callable[[], None], Outputs]:
    run()  # as before a CUDA graph: what is made once, such as Adam's moments, must not be recorded
    recording = Tape()
    with recording:
        outputs = run()
    return recording.repeat, outputs


@pytest.fixture
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """All candidates are computed, as on CUDA, where asking which ones matter would stall the device."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))


def captured(learner: CapacityLearner, data: Batches, how: TrainPlan, **settings: Any) -> Course:
    """On a CPU, where Adam reads its rates in full."""
    given = {"recorder": tape, "rate_type": torch.float64, "progress": "never"} | settings
    return CapturedTrainer(learner, data, TASK.loss, how, **given).fit()


def plainly(learner: CapacityLearner, data: Batches, how: TrainPlan) -> Course:
    return Trainer(learner, data, TASK.loss, how, progress="never").fit()


def stack(method: str) -> Stack:
    name = "decay" if method == "normalised" else method
    scalars = METHODS[method] | {"gate.K": 6}
    choices = {"task": "regression1d", "gate": "mlp", "method": name}
    return Stack(tuple(compose(choices, scalars | {"seed.value": seed}) for seed in (0, 1)))


def minibatches() -> MiniBatches:
    x, y = batches(64).at(0)
    return MiniBatches(Split(x, y), 16, [0, 1], lambda inputs: inputs)


@pytest.mark.usefixtures("as_on_cuda")
@pytest.mark.parametrize("method", METHODS)
def test_a_recorded_step_is_the_plain_one(method: str) -> None:
    """Every method's schedules and noise reach the recording: 25 steps of two replicas to the bit."""
    how = plan(25)
    learners = [learner_of(stack(method), REGRESSION) for _ in range(2)]
    a, b = plainly(learners[0], batches(64), how), captured(learners[1], batches(64), how)
    assert_same(state(learners[0]), state(learners[1]))
    for name, curve in a.curves.items():
        assert np.array_equal(curve, b.curves[name]), name


@pytest.mark.usefixtures("as_on_cuda")
def test_new_batches_reach_the_recording() -> None:
    learners = [gated([0, 1], K=6) for _ in range(2)]
    how = plan(10, clip=None, weight_decay=0.1)
    plainly(learners[0], minibatches(), how)
    captured(learners[1], minibatches(), how)
    assert_same(state(learners[0]), state(learners[1]))


@pytest.mark.usefixtures("as_on_cuda")
def test_a_recorded_training_resumes(tmp_path: Path) -> None:
    """The recorder's own steps leave no trace, in the parameters or in moments that a checkpoint gave."""
    straight, resumed = gated([0, 1], K=6), gated([0, 1], K=6)
    how = plan(20)
    plainly(straight, batches(64), how)

    def stop(step: int) -> None:
        if step == 11:
            raise Stop

    with pytest.raises(Stop):
        captured(resumed, batches(64), how, folder=tmp_path, checkpoint_seconds=0.0, on_step=stop)
    resumed = gated([0, 1], K=6)
    assert captured(resumed, batches(64), how, folder=tmp_path).resumed == 1
    assert_same(state(straight), state(resumed))


@pytest.mark.usefixtures("as_on_cuda")
def test_a_trainer_may_be_used_again() -> None:
    learners = [gated([0, 1], K=6) for _ in range(2)]
    again = CapturedTrainer(learners[1], batches(64), TASK.loss, plan(6), recorder=tape, rate_type=torch.float64)
    for _ in range(2):
        plainly(learners[0], batches(64), plan(6))
        again.fit()
    assert_same(state(learners[0]), state(learners[1]))


def test_what_cannot_be_recorded_is_trained_plainly() -> None:
    """The window of active components is read from the boundary on a CPU: the tape refuses, a warning says so."""
    learners = [gated([0, 1], K=6) for _ in range(2)]
    plainly(learners[0], batches(64), plan(8))
    with pytest.warns(UserWarning, match="could not be recorded.*reads from the device"):
        captured(learners[1], batches(64), plan(8))
    assert_same(state(learners[0]), state(learners[1]))


def test_want_of_memory_is_not_swallowed() -> None:
    def recorder(run: Run) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        captured(gated(0, K=4), batches(64), plan(3), recorder=recorder)


def test_which_trainings_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unsupported_captured(gated([0, 1]), plan(5)) is None
    assert "allocated" in str(unsupported_captured(gated(0, K=None), plan(5)))
    assert "rates" in str(unsupported_captured(gated([0, 1]), plan(5, lr=torch.tensor([1e-3, 2e-3]))))
    assert "micro-batches" in str(unsupported_captured(gated(0), plan(5, accumulate=2)))
    manifold = compose({"task": "manifold", "gate": "latent"}, {})
    latent = learner_of(Stack((manifold,)), make_task(manifold, torch.device("cpu")))
    assert "drawn" in str(unsupported_captured(latent, plan(5)))
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    assert trainer_of("auto", gated(0), batches(), TASK, plan(5)) is CapturedTrainer
    assert trainer_of("torch", gated(0), batches(), TASK, plan(5)) is Trainer


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_cuda_graph_is_the_plain_step(method: str) -> None:
    """To the rounding of learning rates, which Adam's kernel reads in float32."""
    device, how = torch.device("cuda"), plan(40)
    x, y = (v.to(device) for v in batches(64).at(0))
    learners = [learner_of(stack(method), REGRESSION).to(device) for _ in range(2)]
    data = [MiniBatches(Split(x, y), 16, [0, 1], lambda inputs: inputs) for _ in range(2)]
    a = plainly(learners[0], data[0], how)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        b = captured(learners[1], data[1], how, recorder=cuda_graph, rate_type=torch.float32)
    np.testing.assert_allclose(a.curves["loss"], b.curves["loss"], rtol=1e-4)
    for name, value in state(learners[0]).items():
        torch.testing.assert_close(value, state(learners[1])[name], rtol=1e-4, atol=1e-5)
