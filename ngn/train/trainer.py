"""The trainer of all tasks and methods; :class:`~ngn.learner.Learner` has the order of a step.

Losses have the shape [*R]. The models of a stack are independent, so the sum of their losses gives each model its own
gradient. The trainer copies from the device to the host in three cases only: it shows progress, it writes a checkpoint,
or a gate on the CPU decides which components are computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from ngn.checks import evaluating
from ngn.learner import Learner
from ngn.losses import Loss
from ngn.methods.base import Mode
from ngn.schedules import warmed_up
from ngn.tensor_files import Newest, latest_checkpoint, save_checkpoint
from ngn.train.batches import Batches
from ngn.train.plan import History, TrainPlan, clip_gradients, groups_of, load_moments, moments, pad_moments
from ngn.train.progress import ProgressLine, ProgressMode

T = TypeVar("T")
CURVE_POINTS = 300
"""Largest number of points of a curve, evenly spaced over the training."""


@dataclass
class Trainer:
    """Train a learner on a stream of batches in ``train()`` mode, then set it to ``eval()`` mode.

    Args:
        learner: the model with learned sizes.
        batches: the training data.
        loss: (model, batch) → mean loss of each model, [*R].
        plan: steps, optimiser, learning rates, clipping.
        model: a wrapper of the learner that the loss and evaluations call, such as ``DistributedDataParallel`` or
            ``torch.compile(learner)``. It needs a preset K. None calls the learner itself.
        folder: the folder of checkpoints; None for no checkpoints.
        checkpoint_seconds: wall time between checkpoints.
        title: the text of the progress bar.
        progress: "auto" (a bar on a terminal, else a line every 30 s), "always" (a bar) or "never".
        on_step: called after each step with the number of finished steps; tests interrupt here.
        on_evaluate: called every ``evaluate_every`` steps and at the end, with the number of finished steps and the
            model, as in :meth:`evaluate`. If it returns a tensor [*R], that is a point of the curve "held".
        held_out: batches for :meth:`Learner.judge <ngn.learner.Learner.judge>`; None for none.
        evaluate_every: steps between evaluations; None evaluates only at the end.
        shrink: cut fixed sizes in place (:meth:`~ngn.learner.Learner.shrink`), so that later steps are cheaper; not
            for a wrapped ``model``.
    """

    learner: Learner
    batches: Batches
    loss: Loss
    plan: TrainPlan
    model: nn.Module | None = None
    folder: Path | None = None
    checkpoint_seconds: float = 60.0
    title: str = "training"
    progress: ProgressMode = "auto"
    on_step: Callable[[int], None] | None = None
    on_evaluate: Callable[[int, nn.Module], object] | None = None
    held_out: Batches | None = None
    evaluate_every: int | None = None
    shrink: bool = False
    _trained: tuple[list[Parameter], list[Parameter]] = field(init=False)
    _points: dict[str, list[Tensor]] = field(default_factory=dict)

    def fit(self) -> History:
        """Train to the end, from the newest checkpoint if any; a ValueError if a loss is not one number per model."""
        learner, plan, newest = self.learner, self.plan, self._restored()
        body, controllers = self._trained = learner.body_parameters(), learner.controller_parameters()
        count = learner.replicas or 1
        device = (body or controllers)[0].device
        optimizer = self._optimizer(*groups_of(*self._trained, plan))
        bad = torch.full((count,), -1, dtype=torch.int64, device=device)
        start, before, resumed = self._resume(newest, optimizer, bad)
        kept = set(np.unique(np.linspace(0, plan.steps - 1, CURVE_POINTS).astype(int)).tolist())
        began = saved = time.monotonic()
        learner.train()
        with ProgressLine(self.title, plan.steps, start, count, self.progress) as bar:
            for step in range(start, plan.steps):
                fraction = step / plan.steps
                learner.set_progress(fraction)
                learner.before_step(step)
                if learner.make_room():
                    pad_moments(optimizer)
                if self.shrink and learner.shrink(optimizer):
                    self._trained = learner.body_parameters(), learner.controller_parameters()
                for group in optimizer.param_groups:
                    group["lr"] = group["rate"] * warmed_up(group["shape"], fraction, plan.warmup)
                objective, task, t = self._step(step, optimizer, step in kept)
                bad = torch.where((bad < 0) & ~torch.isfinite(objective), step, bad)
                if t is not None:
                    self._keep(step, objective.double(), task.double(), t.double())
                learner.after_step(step)
                optimizer.zero_grad(set_to_none=True)
                if bar.due():
                    bar.show(step + 1, self._standing())
                if self.on_step is not None:
                    self.on_step(step + 1)
                if self.evaluate_every and (step + 1) % self.evaluate_every == 0 and step + 1 < plan.steps:
                    self._report(step + 1)
                now = time.monotonic()
                if self._due(now - saved, step + 1 == plan.steps):
                    self._save(step + 1, optimizer, bad, before + now - began, resumed)
                    saved = now
            if bar.drawn:
                bar.show(plan.steps, self._standing())
        return self._finish(bad, before - began, resumed)

    def _optimizer(self, groups: list[dict[str, Any]], shared: bool) -> torch.optim.Optimizer:
        """Make the optimiser of parameter ``groups``, whose learning rates all replicas share, or not."""
        if not shared:
            raise ValueError("the models of a stack need one learning rate: give lr and lr_boundary one number each")
        return (torch.optim.AdamW if self.plan.optimizer == "adamw" else torch.optim.Adam)(groups, fused=True)

    def _due(self, seconds: float, last: bool) -> bool:
        """Whether to save, ``seconds`` after the last time; what follows the last step can be long and be killed."""
        return seconds >= self.checkpoint_seconds / (10 if last else 1)

    def _finish(self, bad: Tensor, since: float, resumed: int) -> History:
        """Finish the learner and return the history; ``since`` plus the clock is the wall time of the training."""
        self.learner.set_progress(1.0)
        self.learner.before_step(None)
        if self.shrink:
            self.learner.shrink()
        self.learner.eval()
        with self._autocast():
            self.learner.finish(self.batches)
        seconds = since + time.monotonic()
        self._report(self.plan.steps)
        return History(self._curves(), bad.cpu().numpy(), seconds, resumed)

    def evaluate(self, measure: Callable[[nn.Module], T], mode: Mode = "soft") -> T:
        """Return ``measure(model)`` in ``eval()`` mode, without gradients, under the autocast of the training.

        ``mode``: "soft" (as trained), "hard" (truncated) or "kept" (retained components with their gates).
        """
        learner = self.learner
        with torch.no_grad(), evaluating(learner), learner.mode(mode), self._autocast():
            return measure(learner if self.model is None else self.model)

    def _report(self, step: int) -> None:
        if (report := self.on_evaluate) is not None:
            self.learner.before_step(None)
            value = self.evaluate(lambda model: report(step, model))
            if isinstance(value, Tensor):
                self._add(held_step=step, held=value.detach().double().reshape(self.learner.replicas or 1))

    def _autocast(self) -> torch.autocast:
        device = next(self.learner.parameters()).device.type
        return torch.autocast(device, torch.bfloat16, enabled=self.plan.autocast == "bf16")

    def _step(self, step: int, optimizer: torch.optim.Optimizer, kept: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Take one step. Return objective and task loss [R]; if ``kept``, also the sizes [R, G] before the step."""
        learner, plan, count = self.learner, self.plan, self.learner.replicas or 1
        task = self._backward(step)
        if task.numel() != count:
            raise ValueError(f"a loss must be one number per model, but has shape {tuple(task.shape)}: return its mean")
        penalty = learner.penalty()
        if penalty.requires_grad:
            penalty.sum().backward()
        if self.held_out is not None and (number := learner.held_out_batch(step)) is not None:
            held = self.held_out.at
            with evaluating(learner), self._autocast():  # not a wrapper, which would await gradients
                learner.judge(lambda part: self.loss(learner, held(part)), number)
        learner.after_backward(step)
        objective = (task + penalty.detach()).reshape(count)
        if plan.clip is not None:
            clip_gradients(*self._trained, plan.clip, plan.clip_scope, learner.replicas)
        t = learner.size().reshape(count, -1) if kept else None
        optimizer.step()
        return objective, task.reshape(count), t

    def _micro_batches(self, step: int) -> tuple[Iterable[Any], list[float]]:
        """The micro-batches of a step, and their weights."""
        parts = self.plan.accumulate
        return (self.batches.at(step * parts + part) for part in range(parts)), [1.0] * parts

    def _backward(self, step: int) -> Tensor:
        """Compute the gradients of the mean task loss sum_i a_i L_i / sum_i a_i over the micro-batches; return it."""
        batches, weights = self._micro_batches(step)
        whole = sum(weights)
        losses: list[Tensor] = []
        for batch, weight in zip(batches, weights, strict=True):
            if weight == 0:
                continue  # the mean over no items is NaN
            with self._autocast():
                loss = self.loss(self.learner if self.model is None else self.model, batch)
                if not isinstance(loss, Tensor) or not loss.requires_grad:
                    raise TypeError(f"a loss must be a tensor with a gradient, not {loss}: leave .item() out of it")
            (loss.sum() / (whole / weight)).backward()
            losses.append(loss.detach() if weight == 1 else loss.detach() * weight)
        return sum(losses[1:], losses[0]) / whole

    def _keep(self, step: int, objective: Tensor, task: Tensor, t: Tensor) -> None:
        """Note a point of the curves: objective and task loss [R], sizes [R, G]."""
        self._add(step=step, loss=objective, task=task, t=t)

    def _add(self, **point: Any) -> None:
        for name, value in point.items():
            self._points.setdefault(name, []).append(torch.as_tensor(value))

    def _standing(self) -> str:
        """Return the newest loss of the curves, its mean over models, and the sizes."""
        loss = f"loss {float(self._points['loss'][-1].mean()):.3g}, " if self._points else ""
        return loss + self.learner.standing()

    def _curves(self) -> dict[str, np.ndarray]:
        known = self._points if "step" in self._points else {}
        return {name: torch.stack(values).cpu().numpy() for name, values in known.items()}

    def _save(self, step: int, optimizer: torch.optim.Optimizer, bad: Tensor, seconds: float, resumed: int) -> None:
        if self.folder is None:
            return
        tensors = self.learner.state() | moments(optimizer) | {"random.cpu": torch.get_rng_state()}
        if bad.is_cuda:
            tensors["random.cuda"] = torch.cuda.get_rng_state(bad.device)
        for name, value in self._curves().items():
            tensors[f"curve.{name}"] = torch.from_numpy(value)
        tensors["diverged_at"] = bad
        self._write(self.folder, step, tensors, {"seconds": seconds, "resumed": resumed, "steps": self.plan.steps})

    _write, _newest = staticmethod(save_checkpoint), staticmethod(latest_checkpoint)

    def _restored(self) -> Newest:
        """Let the learner load the newest checkpoint, which may remove parameters, and return the checkpoint."""
        newest = None if self.folder is None else self._newest(self.folder)
        if newest is not None:
            self.learner.restore(newest[1])
        return newest

    def _resume(self, newest: Newest, optimizer: torch.optim.Optimizer, bad: Tensor) -> tuple[int, float, int]:
        """Load a checkpoint: its step, the seconds spent before it, and how often training has resumed."""
        self._points = {}
        if newest is None:
            self.learner.eval()
            self.learner.prepare(self.batches)
            if self.folder is not None:
                self.learner.state()  # reads all frozen weights once: now, not between a signal and its deadline
            return 0, 0.0, 0
        (step, tensors, meta), device = newest, bad.device
        load_moments(optimizer, tensors)
        torch.set_rng_state(tensors["random.cpu"])
        if bad.is_cuda and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], device)
        bad.copy_(tensors["diverged_at"])
        for s, *values in zip(
            *(tensors.get(f"curve.{name}", ()) for name in ("step", "loss", "task", "t")), strict=True
        ):
            self._keep(int(s), *(value.to(device) for value in values))
        for s, held in zip(*(tensors.get(f"curve.{name}", ()) for name in ("held_step", "held")), strict=True):
            self._add(held_step=int(s), held=held.to(device))
        return step, float(meta["seconds"]), int(meta["resumed"]) + 1
