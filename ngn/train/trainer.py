"""The one trainer. It knows no task and no method by name.

A step: move the schedules, take the task's gradients over the micro-batches, add the learner's penalty, clip for each
model, step Adam; between these the hooks of :class:`~ngn.learner.Learner`. Losses have the shape [*R]: the models of a
stack are independent, so the sum of their objectives has each one's own gradient. Nothing is read back from the device
except when progress is shown, a checkpoint is written, or a gate on the CPU decides which components are worth
computing; so on CUDA a step can be one recorded graph (``cuda_graph.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ngn.learner import Learner
from ngn.schedules import CONSTANT, Shape, shape_at
from ngn.train import checkpoint, interrupt
from ngn.train.batches import Batches
from ngn.train.losses import Loss
from ngn.train.optim import ClipScope, adam, clip_gradients
from ngn.train.progress import Mode, Progress

CURVE_POINTS = 300
"""Points of a curve that are kept, evenly spaced over the training."""


@dataclass(frozen=True)
class TrainPlan:
    """How long and how fast.

    Attributes:
        steps: optimiser steps.
        lr, lr_boundary: learning rates of the body and of what decides the size; one number, or one a replica.
        lr_shape, lr_boundary_shape: courses of the two rates over training progress.
        clip, clip_scope: largest gradient norm of a model, and over what it is taken.
        weight_decay: L2 on the body.
        accumulate: micro-batches a step.
        autocast: "none" or "bf16" (the boundary stays in float64).
    """

    steps: int
    lr: float | Tensor = 1e-3
    lr_boundary: float | Tensor = 5e-2
    lr_shape: Shape = CONSTANT
    lr_boundary_shape: Shape = CONSTANT
    clip: float | None = None
    clip_scope: ClipScope = "joint"
    weight_decay: float = 0.0
    accumulate: int = 1
    autocast: str = "none"


@dataclass
class Course:
    """What a training measured on its way.

    Attributes:
        curves: "step" [points], "loss" (objective) and "task" [points, R], "t" [points, R, G].
        diverged_at: first step at which a model's loss was seen not to be finite, or -1: int64 [R].
        seconds: wall time of all parts of the training.
        resumed: how often it was continued from a checkpoint.
    """

    curves: dict[str, np.ndarray]
    diverged_at: np.ndarray
    seconds: float
    resumed: int


@dataclass
class Trainer:
    """Trains a learner on a stream of batches.

    Args:
        learner, batches, loss, plan: what is trained, on what, towards what, and how.
        folder: where checkpoints go; None for none.
        checkpoint_seconds: wall time between them.
        title, progress: what the progress bar says, and whether it is shown.
        on_step: called with the number of finished steps; tests interrupt here.
    """

    engine: ClassVar[str] = "torch"
    """What records say did the arithmetic."""

    learner: Learner
    batches: Batches
    loss: Loss
    plan: TrainPlan
    folder: Path | None = None
    checkpoint_seconds: float = 60.0
    title: str = "training"
    progress: Mode = "auto"
    on_step: Callable[[int], None] | None = None
    _points: list[tuple[int, Tensor, Tensor, Tensor]] = field(default_factory=list)

    def fit(self) -> Course:
        """Train to the end, from the newest checkpoint if there is one."""
        learner, plan = self.learner, self.plan
        body, controllers = learner.body_parameters(), learner.controller_parameters()
        count = learner.replicas or 1
        device = (body or controllers)[0].device
        lr, lr_boundary = (torch.as_tensor(r, dtype=torch.float64).expand(count) for r in (plan.lr, plan.lr_boundary))
        optimizer = adam(body, controllers, lr, lr_boundary, plan.weight_decay)
        bad = torch.full((count,), -1, dtype=torch.int64, device=device)
        start, before, resumed = self._resume(optimizer, bad)
        kept = set(np.unique(np.linspace(0, plan.steps - 1, CURVE_POINTS).astype(int)).tolist())
        began = saved = time.monotonic()
        with Progress(self.title, plan.steps, start, count, self.progress) as bar:
            for step in range(start, plan.steps):
                fraction = step / plan.steps
                learner.set_progress(fraction)
                learner.before_step(step)
                if learner.make_room():
                    _pad_moments(optimizer)
                for group in optimizer.param_groups:
                    group["lr"] = group["rate"]
                if body:
                    optimizer.param_groups[0]["lr"] *= shape_at(plan.lr_shape, fraction)
                if controllers:
                    optimizer.param_groups[-1]["lr"] *= shape_at(plan.lr_boundary_shape, fraction)
                objective, task, t = self._step(step, optimizer, body, controllers, step in kept)
                bad = torch.where((bad < 0) & ~torch.isfinite(objective), step, bad)
                if t is not None:
                    self._points.append((step, objective.double(), task.double(), t.double()))
                learner.after_step(step)
                optimizer.zero_grad(set_to_none=True)
                if bar.due():
                    bar.show(step + 1, self._state())
                if self.on_step is not None:
                    self.on_step(step + 1)
                now, stopping = time.monotonic(), interrupt.asked()
                if (stopping or now - saved >= self.checkpoint_seconds) and step + 1 < plan.steps:
                    self._save(step + 1, optimizer, bad, before + now - began, resumed)
                    saved = now
                    interrupt.stop()
            if bar.shown:
                bar.show(plan.steps, self._state())
        learner.set_progress(1.0)
        learner.before_step(None)
        learner.finish(self.batches)
        return Course(self._curves(), bad.cpu().numpy(), before + time.monotonic() - began, resumed)

    def _step(
        self,
        step: int,
        optimizer: torch.optim.Optimizer,
        body: list[Parameter],
        controllers: list[Parameter],
        kept: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Move the parameters. Objective and task loss [R] and, if it is to be ``kept``, the sizes [R, G] before it."""
        learner, plan, count = self.learner, self.plan, self.learner.replicas or 1
        task = self._backward(step, (body or controllers)[0].device)
        penalty = learner.penalty()
        if penalty.requires_grad:
            penalty.sum().backward()
        learner.after_backward(step)
        objective = (task + penalty.detach()).reshape(count)
        if plan.clip is not None:
            clip_gradients(body, controllers, plan.clip, plan.clip_scope, learner.replicas)
        t = learner.size().reshape(count, -1) if kept else None
        optimizer.step()
        return objective, task.reshape(count), t

    def _backward(self, step: int, device: torch.device) -> Tensor:
        """Gradients of the mean task loss (and what the forward pass adds to it) over the micro-batches; that loss."""
        parts = self.plan.accumulate
        total: Tensor | None = None
        for part in range(parts):
            batch = self.batches.at(step * parts + part)
            with torch.autocast(device.type, torch.bfloat16, enabled=self.plan.autocast == "bf16"):
                loss = self.loss(self.learner.model, batch)
                activity = self.learner.activity_penalty()
                loss = loss if activity is None else loss + activity
            (loss.sum() / parts).backward()
            total = loss.detach() if total is None else total + loss.detach()
        if total is None:
            raise ValueError("a step needs at least one micro-batch")
        return total / parts

    def _state(self) -> str:
        return f"t {float(self.learner.size().double().mean()):.2f}"

    def _curves(self) -> dict[str, np.ndarray]:
        if not self._points:
            return {}
        steps, objective, task, t = zip(*self._points, strict=True)
        stacked = {name: torch.stack(value) for name, value in (("loss", objective), ("task", task), ("t", t))}
        return {"step": np.array(steps), **{name: value.double().cpu().numpy() for name, value in stacked.items()}}

    def _save(self, step: int, optimizer: torch.optim.Optimizer, bad: Tensor, seconds: float, resumed: int) -> None:
        if self.folder is None:
            return
        tensors = self.learner.state()
        for i, p in enumerate(q for group in optimizer.param_groups for q in group["params"]):
            tensors |= {f"adam.{i}.{name}": value for name, value in optimizer.state.get(p, {}).items()}
        for name, value in self._curves().items():
            tensors[f"curve.{name}"] = torch.from_numpy(value)
        tensors["diverged_at"] = bad
        checkpoint.save(self.folder, step, tensors, {"seconds": seconds, "resumed": resumed, "steps": self.plan.steps})

    def _resume(self, optimizer: torch.optim.Optimizer, bad: Tensor) -> tuple[int, float, int]:
        """Step to go on from, seconds already spent, and which continuation this is."""
        self._points = []
        found = None if self.folder is None else checkpoint.latest(self.folder)
        if found is None:
            self.learner.prepare(self.batches)
            return 0, 0.0, 0
        step, tensors, meta = found
        device = bad.device
        self.learner.restore(tensors)
        for i, p in enumerate(q for group in optimizer.param_groups for q in group["params"]):
            own = {name: tensors.get(f"adam.{i}.{name}") for name in ("step", "exp_avg", "exp_avg_sq")}
            if own["step"] is not None:
                optimizer.state[p] = {
                    n: v.to(p.device if n != "step" or "fused" in optimizer.defaults else "cpu")
                    for n, v in own.items()
                    if v is not None
                }
        bad.copy_(tensors["diverged_at"])
        if "curve.step" in tensors:
            rows = zip(*(tensors[f"curve.{name}"] for name in ("step", "loss", "task", "t")), strict=True)
            self._points = [(int(s), a.to(device), b.to(device), c.to(device)) for s, a, b, c in rows]
        return step, float(meta["seconds"]), int(meta["resumed"]) + 1


def _pad_moments(optimizer: torch.optim.Optimizer) -> None:
    """Zero moments for components that have just been allocated: what Adam would hold had they always been there."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            for name, value in optimizer.state.get(p, {}).items():
                if name != "step" and value.shape != p.shape:
                    padded = torch.zeros_like(p)
                    padded[tuple(slice(0, n) for n in value.shape)] = value
                    optimizer.state[p][name] = padded
