"""The suite's trainer: the library's, with rates per replica, weights of micro-batches, signals, sealed checkpoints.

While it trains, a file beside its checkpoints has the curves so far, as :class:`~ngn.train.plan.History` names them.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.core import checkpoint, interrupt
from ngn.files import write_atomically
from ngn.tensor_files import Newest
from ngn.train.trainer import Trainer

SMALLEST, BLOCK = 4096, 256
"""Fewest numbers of a tensor with quantised moments, and the length of a block."""


class ReplicaAdam(torch.optim.Optimizer):
    """Adam with one learning rate per replica, in the arithmetic of :class:`torch.optim.Adam`.

    The leading axis of every parameter is the replica axis.

    Args:
        groups: parameter groups. Each has ``rates``, float64 [R], which every step multiplies by the group's ``lr``,
            and may have its own ``weight_decay``.
        decoupled: weight decay as in :class:`torch.optim.AdamW`.
    """

    def __init__(self, groups: list[dict[str, Any]], decoupled: bool = False) -> None:
        super().__init__(groups, {"lr": 1.0, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0})
        self.decoupled = decoupled

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with every replica."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad, decay = p.grad, group["weight_decay"]
                rates = group["lr"] * group["rates"].view(-1, *[1] * (p.dim() - 1))
                if decay and self.decoupled:
                    p.mul_((1.0 - rates * decay).to(p))
                elif decay:
                    grad = grad.add(p, alpha=decay)
                state = self.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                step = float(state["step"])
                m, v = state["exp_avg"], state["exp_avg_sq"]
                m.lerp_(grad, 1 - beta1)
                v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                denominator = v.sqrt().div_(math.sqrt(1 - beta2**step)).add_(group["eps"])
                p.sub_(m / denominator * (rates / (1 - beta1**step)).to(p))


class EightBitAdamW(torch.optim.Optimizer):
    """AdamW over one group with moments of one byte per number (the first) and any with moments in full.

    It is for models whose weights fill a card; it needs torchao. The moments of the body are quantised in blocks of 256
    (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022). Weights in bfloat16 are rounded
    stochastically: an update below half of their spacing then counts in the mean, and no copy in float32 is kept. Small
    tensors and the parameters that decide sizes have moments in full.

    Args:
        groups: parameter groups with ``lr`` and ``weight_decay``.
        eps: added to the denominator.

    Raises:
        ModuleNotFoundError: if torchao is missing.
    """

    def __init__(self, groups: list[dict[str, Any]], eps: float = 1e-8) -> None:
        try:
            from torchao.optim import AdamW8bit
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                "optimizer='adamw8bit' needs torchao: pip install torchao", name=missing.name
            ) from None
        super().__init__(groups, {"lr": 1e-3, "eps": eps, "weight_decay": 0.0})

        class Body(AdamW8bit):
            def _new_buffer(self, p: Tensor, signed: bool) -> Tensor:
                """Moments of small tensors would have the type of the weights, in which they stand still."""
                if p.numel() < SMALLEST or p.numel() % BLOCK:
                    return torch.zeros_like(p, dtype=torch.float32)
                made: Tensor = super()._new_buffer(p, signed)
                return made

        self.parts: list[Any] = []
        for number, group in enumerate(self.param_groups):
            named = {"lr": group["lr"], "eps": eps, "weight_decay": group["weight_decay"]}
            body = Body(group["params"], block_size=BLOCK, bf16_stochastic_round=True, **named) if number == 0 else None
            self.parts.append(torch.optim.AdamW(group["params"], **named) if body is None else body)
        for part in self.parts:
            part.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with every group."""
        for group, part in zip(self.param_groups, self.parts, strict=True):
            (inner,) = part.param_groups
            if isinstance(inner["lr"], Tensor):
                inner["lr"].fill_(group["lr"])
            else:
                inner["lr"] = group["lr"]
            part.step()

    def blank_state(self, p: Tensor) -> dict[str, Tensor]:
        """Return the moments of a parameter before its first step."""
        body = any(p is q for q in self.param_groups[0]["params"])
        made = self.parts[0]._new_buffer if body else lambda q, signed: torch.zeros_like(q)
        return {"step": torch.tensor(0.0), "exp_avg": made(p, True), "exp_avg_sq": made(p, False)}


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
