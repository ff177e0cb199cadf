"""The suite's trainer: the library's, with rates per replica, weights of micro-batches, signals, sealed checkpoints.

While it trains, a file beside its checkpoints has the curves so far, as :class:`~ngn.train.plan.History` names them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.core import checkpoint, interrupt
from experiments.models.optim import EightBitAdamW, ReplicaAdam
from ngn.files import write_atomically
from ngn.tensor_files import Newest
from ngn.train.trainer import Trainer

EVERY = 3.0
"""Seconds between two writings of the curves."""


@dataclass
class StudyTrainer(Trainer):
    """Train a learner as :class:`~ngn.train.trainer.Trainer` does; the plan's rates may be one per replica.

    Args:
        weight: returns the weight of a micro-batch: the number of items that its loss averages, such as tokens. The
            gradient of a step then equals that of one large batch. None weighs all micro-batches equally.
        identity: facts that must not change before a checkpoint is resumed; None resumes any checkpoint.
        eight_bit: AdamW with quantised moments of the body.
        on_point: called with each new point of the curves: step, objective and task loss [R], sizes [R, G]. A resumed
            training first calls it with the points from before its checkpoint.

    Raises:
        Interrupted: from ``fit``, after a signal, once a checkpoint is written.
    """

    engine: ClassVar[str] = "torch"
    """The name of the program that does the arithmetic, for records."""

    weight: Callable[[Any], float] | None = None
    identity: checkpoint.Identity = None
    eight_bit: bool = False
    on_point: Callable[[int, Tensor, Tensor, Tensor], object] | None = None
    _told: float = field(default_factory=time.monotonic)

    def _optimizer(self, groups: list[dict[str, Any]], shared: bool) -> torch.optim.Optimizer:
        adamw = self.plan.optimizer == "adamw"
        if not self.eight_bit:
            return super()._optimizer(groups, shared) if shared else ReplicaAdam(groups, decoupled=adamw)
        if self.shrink or not shared or not self._trained[0]:
            raise ValueError(
                "adamw8bit needs a body to train, and one learning rate for all replicas, and its moments cannot be "
                "cut: use adamw, or set shrink=False"
            )
        return EightBitAdamW(groups)

    def _micro_batches(self, step: int) -> tuple[Iterable[Any], list[float]]:
        batches, weights = super()._micro_batches(step)
        if self.weight is None or len(weights) == 1:
            return batches, weights
        batches = list(batches)  # the first backward pass needs the sum of all weights
        absolute = [float(self.weight(batch)) for batch in batches]
        return batches, [weight / max(absolute) for weight in absolute]  # equal weights become exactly 1

    def _keep(self, step: int, objective: Tensor, task: Tensor, t: Tensor) -> None:
        super()._keep(step, objective, task, t)
        if self.on_point is not None:
            self.on_point(step, objective, task, t)
        if self.folder is not None and time.monotonic() > self._told + EVERY:
            self._told = time.monotonic()
            curves = {name: curve.tolist() for name, curve in self._curves().items()}
            content = json.dumps({"title": self.title, "steps": self.plan.steps, **curves}).encode()
            with contextlib.suppress(OSError):  # a full disk stops the next checkpoint, with a message
                write_atomically(self.folder / checkpoint.CURVES, content, replace=True)

    def _due(self, seconds: float, last: bool) -> bool:
        self._stopping = interrupt.requested()
        return self._stopping or super()._due(seconds, last)

    def _save(self, *of_step: Any) -> None:
        super()._save(*of_step)
        if self._stopping:
            interrupt.raise_if_requested()

    def _write(self, folder: Path, step: int, tensors: Any, facts: Any) -> None:
        checkpoint.save(folder, step, tensors, facts, self.identity)

    def _newest(self, folder: Path) -> Newest:
        newest = checkpoint.latest(folder, self.identity)
        checkpoint.remove_newer(folder, None if newest is None else newest[0])
        return newest
