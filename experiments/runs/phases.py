"""Train one phase of a stack.

A phase is grown from low, retrained at the learned size, from high, or continued at another price.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.config.identity import numerics
from experiments.core import checkpoint, interrupt
from experiments.core.blocks import ConfigError
from experiments.core.config import Config, Method
from experiments.core.groups import OrderedGroup
from experiments.core.task import ModuleTask, Task
from experiments.methods.fixed import Fixed
from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.trainer import StudyTrainer
from experiments.runs.loggers import point_logger
from experiments.runs.measure import cost_of, curves_of, measure_phase, norms_of, of_module, prefixes_of
from experiments.runs.outcome import Phase
from experiments.runs.stack import Stack, why_no_kernel
from experiments.store.provenance import made_by, packages
from ngn.files import FileError
from ngn.learner import Learner
from ngn.train.batches import Batches
from ngn.train.plan import History, TrainPlan


def gated_model(method: Method, stack: Stack, task: Task[Any], high: bool = False) -> nn.Module:
    """Build the task's model with a capacity for each group; ``high`` starts boundaries at their high end."""
    first, samples = stack.first, task.samples(stack.first.train)
    return task.model(first.gate, stack.seeds, lambda n: method.make(OrderedGroup(stack, n, samples, high)))


def learner_of(stack: Stack, task: Task[Any], count: int | list[int] | None = None, high: bool = False) -> Learner:
    """Build the learner of a stack.

    Args:
        count: components of a fixed model, a list for several groups; None learns the size by the stack's method.
        high: whether boundaries start at their high end.
    """
    method = stack.first.method if count is None else Fixed(name="fixed", count=count)
    return method.learner(stack, task, lambda: gated_model(method, stack, task, high))


def plan_of(stack: Stack, samples: int) -> TrainPlan:
    """Build the training plan of a stack for ``samples`` training samples."""
    rates = {name: stack.scalar(f"train.{name}") for name in ("lr", "lr_boundary")}
    return stack.first.train.plan(samples, **rates)


def trainer_of(
    config: Config, learner: Learner, batches: Batches, task: Task[Any], plan: TrainPlan
) -> type[StudyTrainer]:
    """Choose the trainer of a phase.

    Args:
        config: the configuration of the phase: a retraining has ``method=fixed``.

    Raises:
        ConfigError: if the engine cannot do this training; the message says why.
    """
    if config.engine == "torch":
        return StudyTrainer
    why_not = why_no_kernel(config)
    if why_not is None and learner.axes:
        why_not = unsupported(learner, batches, task.loss, plan)  # its device, its compiler, and what no setting tells
        if why_not is None:
            return KernelTrainer
    if config.engine != "auto":
        raise ConfigError(f"engine={config.engine}: {why_not}; use engine=auto or engine=torch")
    return StudyTrainer


@dataclass(frozen=True)
class PhaseSetup:
    """The settings of one phase of a stack.

    Attributes:
        name: "grown", "fixed", "from_high", or a continuation.
        folder: folder of its checkpoints, and of the phase's result once it has finished.
        count: size of the fixed model, a list for several groups; None for a learned one.
        end: folder that receives the trained parameters, for continuations; None for none.
        start: folder of trained parameters (body and boundary) that replace the initial ones. Schedules, optimiser and
            data order start anew.
        of: the runs that own the phase, if the stack trains them at other prices; None if it trains them as they are.
    """

    name: str
    folder: Path
    count: int | list[int] | None = None
    end: Path | None = None
    start: Path | None = None
    of: Stack | None = None


def identity_of(stack: Stack, task: Task[Any]) -> dict[str, Any]:
    """Return what must stay the same for an interrupted training of a stack to resume.

    Digests name the sources, the plug-ins, the data and the pretrained model. After a commit of docs, trainings
    therefore resume; after an edit of the sources they do not, even if nobody committed it.
    """
    data = [info.sha256 for info in (task.info, task.base_info) if info is not None]
    return {**made_by(), "data": data, "numerics": numerics(stack.first), "packages": packages()}


def train_phase(stack: Stack, task: Task[Any], device: torch.device, setup: PhaseSetup) -> Phase:
    """Train one phase of a stack, or return its saved result; a FileError if ``setup.start`` has no parameters."""
    finished, identity = setup.folder / "finished.json", identity_of(stack, task)
    phase = Phase.load(finished, identity)
    if phase is not None and (setup.end is None or checkpoint.latest(setup.end, identity) is not None):
        return phase
    with interrupt.deferred():
        phase = fit_phase(stack, task, device, setup)
        phase.save(finished, identity)
    return phase


def fit_phase(stack: Stack, task: Task[Any], device: torch.device, setup: PhaseSetup) -> Phase:
    """Train one phase of a stack and measure it, without looking for a saved result; see :func:`train_phase`."""
    first, identity = stack.first, identity_of(stack, task)
    learner = learner_of(stack, task, setup.count, setup.name == "from_high").to(device)
    if setup.start is not None:
        kept = checkpoint.latest(setup.start, identity)
        if kept is None:
            raise FileError(
                f"{setup.start}: the trained parameters to continue from are missing; give the command again"
            )
        learner.restore(kept[1])
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    plan = plan_of(stack, task.samples(first.train))
    batches = task.batches(first.train, stack.seeds)
    config = first if setup.count is None else fixed_configuration(first, setup.count)
    made = trainer_of(config, learner, batches, task, plan)
    logged = nullcontext() if first.logger == "none" else point_logger(setup.of or stack, setup.name)
    with logged as on_point:
        trainer = made(
            learner,
            batches,
            first.method.loss(first, task),
            plan,
            weight=task.weight,
            folder=setup.folder,
            checkpoint_seconds=first.checkpoint_seconds,
            identity={**identity, "engine": made.engine},
            eight_bit=first.train.optimizer == "adamw8bit",
            title=f"{first.task.name} {f's{first.seed.value}' if len(stack) == 1 else f'x{len(stack)}'} {setup.name}",
            progress=first.progress,
            on_point=on_point,
            on_evaluate=(lambda _, model: task.curve(model)) if task.evaluations else None,
            held_out=task.held_out,
            shrink=first.gate.given,
            evaluate_every=-(-plan.steps // task.evaluations) if task.evaluations else None,
        )
        # A pretrained model without attached parts has nothing to train.
        trained = any(p.numel() for p in (*learner.body_parameters(), *learner.controller_parameters()))
        history = trainer.fit() if trained else skip_training(trainer)
    if setup.end is not None:
        checkpoint.remove_newer(setup.end, None)  # an older, unusable file may have a later step
        checkpoint.save(setup.end, plan.steps, learner.state(), {}, identity)
    return _measured(trainer, stack, task, device, setup, history)


def _measured(
    trainer: StudyTrainer, stack: Stack, task: Task[Any], device: torch.device, setup: PhaseSetup, history: History
) -> Phase:
    """Measure a trained phase of a stack."""
    first, fixed, learner = stack.first, setup.count is not None, trainer.learner

    def alone(r: int) -> Learner:
        return learner_of(stack.take([r]), task, high=setup.name == "from_high").to(device)

    keep = [run.model_file(setup.name) for run in (setup.of or stack).runs if run.config.save == "deployed"]
    results = measure_phase(trainer, task, history, first, fixed, device, keep)
    complete = {r: result for r, result in enumerate(results) if result["status"] == "complete"}
    for r, result in complete.items():
        if isinstance(task, ModuleTask):
            of_module(result, learner, task, first, device)
        elif task.timed_samples is not None:
            result["cost"] = cost_of(r, learner, task, None if fixed else alone, device)
    if task.component_norms and setup.name == "grown":
        for result, norms in zip(results, norms_of(learner, trainer.batches), strict=True):
            if norms is not None:
                result["norms"] = norms
    if task.prefix_score is not None and setup.name == "grown" and learner.has_boundary:
        scored = trainer.evaluate(lambda _: [prefixes_of(r, learner, task) for r in complete])
        for result, scores in zip(complete.values(), scored, strict=True):
            result["prefixes"] = scores
    curves = [curves_of(history, r, fixed) for r in range(len(stack))]
    return Phase(results, curves, history.resumed, trainer.engine)


def skip_training(trainer: StudyTrainer) -> History:
    """Prepare the learner for measuring without training it, and return an empty history."""
    trainer.plan = replace(trainer.plan, steps=0)
    trainer.learner.set_progress(1.0)
    trainer.learner.before_step(None)
    trainer.learner.eval()
    return History({}, np.full(trainer.learner.replicas or 1, -1), 0.0, 0)


def fixed_configuration(config: Config, count: int | list[int]) -> Config:
    """Return ``config`` with ``method=fixed method.count=count``: its ``fixed`` phase as a run of its own."""
    fixed = config.model_copy(update={"method": Fixed(name="fixed", count=count)})
    if (min(count) if isinstance(count, list) else count) > 0:
        return fixed
    # Independent gates may all close. count = 0 needs delta = -1/2, which is no part of a fixed model's identity.
    return fixed.model_copy(update={"gate": config.gate.model_copy(update={"delta": -0.5})})
