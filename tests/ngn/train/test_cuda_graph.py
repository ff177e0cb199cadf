"""Recorded steps against the plain trainer, on CUDA; elsewhere what is refused, and how a recording fails."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kernel_cases import BANK, LOSS, Stop, plan, state, stop_after

from experiments.blocks import ConfigError
from experiments.config.compose import compose
from experiments.runs.phases import learner_of, trainer_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.learner import CapacityLearner
from ngn.train.batches import MiniBatches, Split
from ngn.train.cuda_graph import CudaGraphTrainer, Run, unsupported_by_cuda_graphs
from ngn.train.plan import TrainPlan
from ngn.train.trainer import Trainer

METHODS: dict[str, dict[str, Any]] = {
    "ngn": {},
    "ste": {},
    "fixed": {"method.count": 3},
    "l0": {},
    "awnn": {"method.width": 4.0},
    "decay": {},
    "normalised": {"method.normalise": True},
}


def test_which_trainings_are_recorded() -> None:
    assert unsupported_by_cuda_graphs(BANK.learner([0, 1]), plan(5)) == "the model is not on a CUDA device"
    assert "allocated" in str(unsupported_by_cuda_graphs(BANK.learner(0, K=None), plan(5)))
    assert "rates" in str(unsupported_by_cuda_graphs(BANK.learner([0, 1]), plan(5, lr=torch.tensor([1e-3, 2e-3]))))
    assert "micro-batches" in str(unsupported_by_cuda_graphs(BANK.learner(0), plan(5, accumulate=2)))
    manifold = compose({"task": "manifold", "gate": "latent"}, {})
    latent = learner_of(Stack((manifold,)), make_task(manifold, torch.device("cpu")))
    assert "drawn" in str(unsupported_by_cuda_graphs(latent, plan(5)))


def test_steps_are_recorded_only_when_asked_for() -> None:
    task = make_task(compose({}, {}), torch.device("cpu"))
    with pytest.raises(ConfigError, match="engine=cuda_graph: the model is not on a CUDA device"):
        trainer_of("cuda_graph", BANK.learner(0), BANK.batches(), task, plan(5))
    assert trainer_of("auto", BANK.learner(0), BANK.batches(), task, plan(5)) is not CudaGraphTrainer


def test_what_cannot_be_recorded_is_trained_plainly() -> None:
    def recorder(run: Run) -> Any:
        run()  # as a recording that fails half-way: what it has moved is put back
        raise RuntimeError("this cannot be recorded")

    plain, failed = BANK.learner([0, 1]), BANK.learner([0, 1])
    BANK.train(Trainer, plain, plan(8))
    with pytest.warns(UserWarning, match="could not be recorded.*this cannot be recorded"):
        BANK.train(CudaGraphTrainer, failed, plan(8), recorder=recorder)
    for name, value in state(plain).items():
        torch.testing.assert_close(state(failed)[name], value, rtol=1e-5, atol=1e-8)


def test_want_of_memory_is_not_swallowed() -> None:
    def recorder(run: Run) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        BANK.train(CudaGraphTrainer, BANK.learner(0), plan(3), recorder=recorder)


def on_cuda(method: str) -> tuple[CapacityLearner, MiniBatches]:
    """Two replicas of a method, and a stream of batches of 16."""
    name = "decay" if method == "normalised" else method
    scalars = METHODS[method] | {"gate.K": 6}
    choices = {"task": "regression1d", "gate": "mlp", "method": name}
    stack = Stack(tuple(compose(choices, scalars | {"seed.value": seed}) for seed in (0, 1)))
    learner = learner_of(stack, make_task(stack.first, torch.device("cpu"))).to("cuda")
    x, y = (v.to("cuda") for v in BANK.batches(64).at(0))
    return learner, MiniBatches(Split(x, y), 16, [0, 1], lambda inputs: inputs)


def train(kind: type[Trainer], method: str, how: TrainPlan, **settings: Any) -> tuple[dict[str, Any], CapacityLearner]:
    learner, data = on_cuda(method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kind(learner, data, LOSS, how, progress="never", **settings).fit().curves, learner


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_recorded_step_is_the_plain_one(method: str) -> None:
    """To the rounding of learning rates, which Adam's kernel reads in float32."""
    how = plan(40)
    (a, plain), (b, recorded) = train(Trainer, method, how), train(CudaGraphTrainer, method, how)
    np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-4)
    for name, value in state(plain).items():
        torch.testing.assert_close(value, state(recorded)[name], rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_a_recorded_training_resumes(tmp_path: Path) -> None:
    """The recorder's own steps leave no trace, in the parameters or in moments that a checkpoint gave."""
    how = plan(20)
    _, straight = train(CudaGraphTrainer, "ngn", how)
    with pytest.raises(Stop):
        train(CudaGraphTrainer, "ngn", how, folder=tmp_path, checkpoint_seconds=0.0, on_step=stop_after(11))
    _, resumed = train(CudaGraphTrainer, "ngn", how, folder=tmp_path)
    for name, value in state(straight).items():
        torch.testing.assert_close(value, state(resumed)[name], rtol=1e-6, atol=1e-8)
