"""The phases of a seed: grown from low, retrained at the learned size, started from high, continued at other prices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.blocks import ConfigError
from experiments.config.schema import Config, is_integer, steps_of
from experiments.methods.base import OrderedGroup
from experiments.methods.fixed import Fixed
from experiments.runs.cost import forward_cost, take_replica
from experiments.runs.stack import Stack
from experiments.tasks.base import Task
from ngn.learner import CapacityLearner
from ngn.methods.base import Capacity, Mode
from ngn.train import checkpoint
from ngn.train import host as process
from ngn.train.batches import Batches
from ngn.train.cuda_graph import CapturedTrainer, unsupported_captured
from ngn.train.trainer import Course, Trainer, TrainPlan

Fit = Callable[[Trainer], Course]


CURVE_TYPES: dict[str, type[np.generic]] = {"step": np.int32}
"""Types of stored curves that are not float32."""


@dataclasses.dataclass
class Trained:
    """One phase of a stack: what is recorded of each run, and its curves."""

    results: list[dict[str, Any]]
    curves: list[dict[str, np.ndarray]]
    resumed: int
    engine: str


def learner_of(stack: Stack, task: Task, count: int | list[int] | None = None, high: bool = False) -> CapacityLearner:
    """The learner of a stack: that of its method, or a fixed model of ``count`` components (a list: one per group).

    Args:
        high: whether boundaries start at their high end.
    """
    first, samples = stack.first, task.samples(stack.first.train)
    method = first.method if count is None else Fixed(name="fixed", count=count)

    def capacity(K: int | None, replicas: int | None, group: int = 0) -> Capacity:
        return method.make(OrderedGroup(stack, group, K, samples, high))

    return CapacityLearner(task.model(first, first.gate.K, stack.seeds, capacity))


def plan_of(stack: Stack, samples: int) -> TrainPlan:
    """The training plan of a stack."""
    train = stack.first.train
    return TrainPlan(
        steps=steps_of(train, samples),
        lr=stack.scalar("train.lr"),
        lr_boundary=stack.scalar("train.lr_boundary"),
        lr_shape=train.lr_shape,
        lr_boundary_shape=train.lr_boundary_shape,
        clip=train.clip,
        clip_scope=train.clip_scope,
        weight_decay=train.weight_decay,
        accumulate=train.accumulate,
        autocast=train.autocast,
    )


def trainer_of(engine: str, learner: CapacityLearner, batches: Batches, task: Task, plan: TrainPlan) -> type[Trainer]:
    """The trainer that the ``engine`` setting asks for.

    Raises:
        ConfigError: if ``engine=fused`` is asked for and the kernel cannot do this training; the message says why.
    """
    if engine == "torch":
        return Trainer
    from ngn.train.kernels import trainer_for, unsupported

    if engine == "fused" and (reason := unsupported(learner, batches, task.loss, plan)):
        raise ConfigError(f"engine=fused: {reason}; use engine=auto or engine=torch")
    if next(learner.model.parameters()).is_cuda and unsupported_captured(learner, plan) is None:
        return CapturedTrainer
    return trainer_for(learner, batches, task.loss, plan)


def train_phase(
    stack: Stack,
    task: Task,
    phase: str,
    device: torch.device,
    folder: Path | None,
    title: str,
    count: int | list[int] | None = None,
    norms: bool = False,
    end: Path | None = None,
    start: Path | None = None,
) -> Trained:
    """Train one phase of a stack and measure it.

    Args:
        phase: "grown", "fixed", "from_high", or a continuation.
        count: size of the fixed model, a list for several groups; None for a learned one.
        norms: also measure the norm of every f_k over the training inputs.
        end: folder in which the trained parameters are kept for continuations; None for none.
        start: such a folder, whose parameters (body and boundary) replace the initial ones. Schedules, optimiser and
            the order of the data begin anew.

    Raises:
        ngn.train.checkpoint.CheckpointError: if ``start`` holds nothing that can be used.
    """
    first = stack.first
    high = phase == "from_high"
    learner = learner_of(stack, task, count, high).to(device)
    if start is not None:
        kept = checkpoint.latest(start)
        if kept is None:
            raise checkpoint.CheckpointError(f"{start}: the end of the training to be continued is not there")
        learner.restore(kept[1])
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    plan = plan_of(stack, task.samples(first.train))
    batches = task.batches(first.train, stack.seeds)
    trainer = trainer_of(first.engine, learner, batches, task, plan)
    course = trainer(
        learner,
        batches,
        task.loss,
        plan,
        folder=folder,
        checkpoint_seconds=first.checkpoint_seconds,
        title=title,
        progress=first.progress,
    ).fit()
    if end is not None:
        checkpoint.save(end, plan.steps, learner.state(), {})
    results = _measure(learner, task, plan, course, count is not None, device)
    if task.timed_samples is not None:
        for r, result in enumerate(results):
            if result["status"] == "complete":
                result["cost"] = _cost(stack, r, learner, task, count, high, device)
    if norms:
        with torch.no_grad():
            x, _ = batches.at(0)
            f = learner.axes[0].bank.components(x).double()
        each = torch.linalg.vector_norm(f.flatten(-2), dim=-1).reshape(len(stack), -1).tolist()
        for result, row in zip(results, each, strict=True):
            if all(np.isfinite(row)):
                result["norms"] = [float(f"{value:.6g}") for value in row]
    curves = [
        {
            "step": course.curves["step"].astype(CURVE_TYPES["step"]),
            "loss": course.curves["loss"][:, r].astype(np.float32),
            "task": course.curves["task"][:, r].astype(np.float32),
            **({} if count is not None else {"t": course.curves["t"][:, r].astype(np.float32)}),
        }
        for r in range(len(stack))
    ]
    return Trained(results, curves, course.resumed, trainer.engine)


def _measure(
    learner: CapacityLearner, task: Task, plan: TrainPlan, course: Course, fixed: bool, device: torch.device
) -> list[dict[str, Any]]:
    modes: dict[str, Mode] = (
        {"truncated": "hard"} if fixed else {"truncated": "hard", "soft": "soft", "gates_kept": "kept"}
    )
    scores = {}
    for name, mode in modes.items():
        with torch.no_grad(), learner.mode(mode):
            scores[name] = task.evaluate(learner.model)
    runs = learner.replicas or 1
    learned, boundary = learner.learned_decay(), learner.has_boundary
    ratios = None if learned is None else learned.reshape(runs, -1).tolist()
    t, counts = learner.size().reshape(runs, -1).tolist(), learner.count().reshape(runs, -1).tolist()
    candidate = sum(p.numel() for p in learner.model.parameters()) // runs
    results = []
    for r in range(runs):
        at = int(course.diverged_at[r])
        measured = {
            mode: {name: float(value.reshape(runs)[r]) for name, value in by_name.items()}
            for mode, by_name in scores.items()
        }
        numbers = [v for s in measured.values() for v in s.values()] + t[r]
        result: dict[str, Any] = {"status": "complete", "count": counts[r]}
        if at >= 0 or not all(np.isfinite(numbers)):
            # What a diverged model would score is not a result; only that it diverged, and when.
            result |= {"status": "diverged", "diverged_at": at if at >= 0 else plan.steps, "count": []}
            deployed = 0
        else:
            if not fixed:
                result |= {"t": t[r]}
                if boundary:
                    result["integer"] = [is_integer(value) for value in t[r]]
                if ratios is not None:
                    result["r"] = ratios[r]
            result |= measured
            small = learner.deploy(None if learner.replicas is None else r)
            deployed = sum(p.numel() for p in small.parameters())
            result |= task.describe(small)
        result |= {
            "parameters": {"candidate": candidate, "deployed": deployed},
            "steps": plan.steps,
            "seconds": round(course.seconds, 3),
            "run_steps_per_second": round(plan.steps * runs / max(course.seconds, 1e-9), 1),
            "peak_memory_mib": round(peak_memory(device), 1),
        }
        results.append(result)
    return results


def _cost(
    stack: Stack,
    r: int,
    learner: CapacityLearner,
    task: Task,
    count: int | list[int] | None,
    high: bool,
    device: torch.device,
) -> Any:
    """What a forward pass of run ``r`` costs, truncated and, where its size is learned, before that."""
    x, samples = task.timed_batch()
    stacked = learner.replicas is not None
    models: dict[str, Callable[[Any], Tensor]] = {"deployed": learner.deploy(r if stacked else None)}
    if count is None:
        single = learner_of(stack.take([r]), task, None, high).to(device) if stacked else learner
        models["candidate"] = take_replica(single, learner, r) if stacked else learner.model
    return forward_cost(models, x, samples, device)


def peak_memory(device: torch.device) -> float:
    """MiB: of the device since the phase began on CUDA, of the process since it began on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return process.peak_mib()


def prunes_back(grown: dict[str, Any], high: dict[str, Any], starts: Sequence[float]) -> dict[str, Any]:
    """The paper's verdict on a run started at high capacity.

    yes: every rounded count is within one block of the grown one. partial: not so, but every boundary t ended more than
    one block below its start. no: the rest.
    """
    returned = all(abs(a - b) <= 1 for a, b in zip(grown["count"], high["count"], strict=True))
    moved = all(t < start - 1 for t, start in zip(high["t"], starts, strict=True))
    return {"outcome": "yes" if returned else "partial" if moved else "no", "returned": returned, "moved": moved}


def fixed_configuration(config: Config, count: int | list[int]) -> Config:
    """The run that the ``fixed`` phase of ``config`` would be on its own: ``method=fixed method.count=count``."""
    alone = config.model_copy(update={"method": Fixed(name="fixed", count=count)})
    if (min(count) if isinstance(count, list) else count) > 0:
        return alone
    # Independent gates may all close; a fixed model's identity does not depend on delta, but count = 0 needs -1/2.
    return alone.model_copy(update={"gate": config.gate.model_copy(update={"delta": -0.5})})
