"""The phases of a seed: grown from low, retrained at the learned size, started from high, continued at other prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.blocks import ConfigError
from experiments.config.numerics import numerics
from experiments.contract.config import Config
from experiments.contract.task import Task
from experiments.methods.fixed import Fixed
from experiments.models.kernels import KernelTrainer, unsupported
from experiments.runs.groups import gated_model
from experiments.runs.loggers import logged
from experiments.runs.measure import cost_of, curves_of, measure, norms_of, prefixes_of
from experiments.runs.result import Phase
from experiments.runs.stack import Stack
from experiments.store.provenance import training_identity
from ngn.contract import Learner
from ngn.learner import CapacityLearner
from ngn.train import checkpoint, interrupt
from ngn.train.batches import Batches
from ngn.train.plan import History, TrainPlan
from ngn.train.trainer import Trainer


def learner_of(stack: Stack, task: Task[Any], count: int | list[int] | None = None, high: bool = False) -> Learner:
    """The learner of a stack: that of its method, or a fixed model of ``count`` components (a list: one per group).

    Args:
        high: whether boundaries start at their high end.
    """
    method = stack.first.method if count is None else Fixed(name="fixed", count=count)
    return method.learner(stack, task, lambda: gated_model(method, stack, task, high))


def plan_of(stack: Stack, samples: int) -> TrainPlan:
    """The training plan of a stack."""
    train = stack.first.train
    return TrainPlan(
        steps=train.steps_on(samples),
        lr=stack.scalar("train.lr"),
        lr_boundary=stack.scalar("train.lr_boundary"),
        lr_shape=train.lr_shape,
        lr_boundary_shape=train.lr_boundary_shape,
        clip=train.clip,
        clip_scope=train.clip_scope,
        optimizer=train.optimizer,
        weight_decay=train.weight_decay,
        warmup=train.warmup,
        accumulate=train.accumulate,
        autocast=train.autocast,
    )


def trainer_of(engine: str, learner: Learner, batches: Batches, task: Task[Any], plan: TrainPlan) -> type[Trainer]:
    """The trainer that the ``engine`` setting asks for.

    Raises:
        ConfigError: if it asks for one that cannot do this training; the message says why.
    """
    if engine == "torch":
        return Trainer
    why_not: str | None = "it trains learners of capacities alone"
    if isinstance(learner, CapacityLearner):
        why_not = unsupported(learner, batches, task.loss, plan)
        if why_not is None:
            return KernelTrainer
    if engine != "auto":
        raise ConfigError(f"engine={engine}: {why_not}; use engine=auto or engine=torch")
    return Trainer


@dataclass(frozen=True)
class PhaseSetup:
    """What one training of a stack is beside the others.

    Attributes:
        name: "grown", "fixed", "from_high", or a continuation.
        folder: where its checkpoints are, and the phase itself once it has finished.
        count: size of the fixed model, a list for several groups; None for a learned one.
        end: folder in which the trained parameters are kept for continuations; None for none.
        start: such a folder, whose parameters (body and boundary) replace the initial ones. Schedules, optimiser and
            the order of the data begin anew.
        keep: files for the truncated models, one per run; none are kept where it is empty.
        of: the runs whose phase it is, where those that are trained have other prices; None: those that are trained.
    """

    name: str
    folder: Path
    count: int | list[int] | None = None
    end: Path | None = None
    start: Path | None = None
    keep: Sequence[Path] = ()
    of: Stack | None = None


def train_phase(stack: Stack, task: Task[Any], device: torch.device, setup: PhaseSetup) -> Phase:
    """Train one phase of a stack, or take what was kept of it when it had finished before an interruption.

    Raises:
        ngn.train.checkpoint.CheckpointError: if ``setup.start`` holds nothing that can be used.
    """
    finished, identity = setup.folder / "finished.json", training_identity(numerics(stack.first))
    phase = Phase.load(finished, identity)
    if phase is None or (setup.end is not None and checkpoint.latest(setup.end, identity) is None):
        with interrupt.deferred():
            phase = fit_phase(stack, task, device, setup)
            phase.save(finished, identity)
    return phase


def fit_phase(stack: Stack, task: Task[Any], device: torch.device, setup: PhaseSetup) -> Phase:
    """Train one phase of a stack and measure it; as :func:`train_phase`, and nothing is taken from there."""
    first, fixed, identity = stack.first, setup.count is not None, training_identity(numerics(stack.first))
    high = setup.name == "from_high"
    learner = learner_of(stack, task, setup.count, high).to(device)
    if setup.start is not None:
        kept = checkpoint.latest(setup.start, identity)
        if kept is None:
            raise checkpoint.CheckpointError(f"{setup.start}: the end of the training to be continued is not there")
        learner.restore(kept[1])
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    plan = plan_of(stack, task.samples(first.train))
    batches = task.batches(first.train, stack.seeds)
    with logged(stack, setup.name, plan.steps, learner.has_boundary, setup.of) as on_point:
        trainer = trainer_of(first.engine, learner, batches, task, plan)(
            learner,
            batches,
            task.loss,
            plan,
            weight=task.weight,
            folder=setup.folder,
            checkpoint_seconds=first.checkpoint_seconds,
            identity=identity,
            title=f"{first.task.name} {f's{first.seed.value}' if len(stack) == 1 else f'x{len(stack)}'} {setup.name}",
            progress=first.progress,
            on_point=on_point,
            on_evaluate=(lambda _, model: task.curve(model)) if task.evaluations else None,
            evaluate_every=-(-plan.steps // task.evaluations) if task.evaluations else None,
        )
        history = trainer.fit() if trains(learner) else untrained(trainer)
    if setup.end is not None:
        checkpoint.remove_newer(setup.end, None)  # an end that cannot be used may be of a later step
        checkpoint.save(setup.end, plan.steps, learner.state(), {}, identity)

    def alone(r: int) -> Learner:
        return learner_of(stack.take([r]), task, high=high).to(device)

    results = measure(trainer, learner, task, history, first, fixed, device, setup.keep)
    if task.timed_samples is not None:
        for r, result in enumerate(results):
            if result.complete:
                result.cost = cost_of(r, learner, task, None if fixed else alone, device)
    if task.component_norms and setup.name == "grown":
        for result, norms in zip(results, norms_of(learner, batches), strict=True):
            result.norms = norms
    if task.prefix_score is not None and setup.name == "grown" and learner.has_boundary:
        complete = [r for r, result in enumerate(results) if result.complete]
        scored = trainer.evaluate(lambda _: [prefixes_of(r, learner, task) for r in complete])
        for r, scores in zip(complete, scored, strict=True):
            results[r].prefixes = scores
    curves = [curves_of(history, r, fixed) for r in range(len(stack))]
    return Phase(results, curves, history.resumed, trainer.engine)


def trains(learner: Learner) -> bool:
    """Whether anything is left to train: a pretrained model to which nothing is attached has nothing."""
    return any(p.numel() for p in (*learner.body_parameters(), *learner.controller_parameters()))


def untrained(trainer: Trainer) -> History:
    """Return the history of no training, and make the learner ready to be measured."""
    trainer.plan = replace(trainer.plan, steps=0)
    trainer.learner.set_progress(1.0)
    trainer.learner.before_step(None)
    trainer.learner.eval()
    return History({}, np.full(trainer.learner.replicas or 1, -1), 0.0, 0)


def fixed_configuration(config: Config, count: int | list[int]) -> Config:
    """The run that the ``fixed`` phase of ``config`` would be on its own: ``method=fixed method.count=count``."""
    alone = config.model_copy(update={"method": Fixed(name="fixed", count=count)})
    if (min(count) if isinstance(count, list) else count) > 0:
        return alone
    # Independent gates may all close; a fixed model's identity does not depend on delta, but count = 0 needs -1/2.
    return alone.model_copy(update={"gate": config.gate.model_copy(update={"delta": -0.5})})
