"""The plan of a training, its parameter groups, moments and clipping for a stack of models, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ngn.schedules import CONSTANT, Shape, require_shapes

Autocast = Literal["none", "bf16"]
ClipScope = Literal["joint", "separate", "body"]
OptimizerKind = Literal["adam", "adamw"]


@dataclass(frozen=True)
class TrainPlan:
    """Number of steps, learning rates and optimiser of a training.

    *Controllers* are the parameters that decide the sizes, such as boundaries. The *body* is all other trained
    parameters.

    Attributes:
        steps: optimiser steps.
        lr, lr_boundary: learning rates of the body and of the controllers.
        lr_shape, lr_boundary_shape: schedules of the two rates over training progress.
        clip: largest gradient norm of a model; None for no clipping.
        clip_scope: parameters of one norm: "joint" (all together), "separate" (body and controllers each) or "body".
        optimizer: "adam" (weight decay is an L2 term of the gradient), or "adamw" (weight decay is decoupled).
        weight_decay: weight decay of the body; controllers have none.
        warmup: fraction of training, in [0, 1), in which both rates rise from 0; their schedules follow it.
        accumulate: micro-batches per step.
        autocast: "none" or "bf16" (boundaries stay in float64).

    Raises:
        ValueError, TypeError: if a choice is unknown, a number is out of range, or a schedule is not a ``Shape``.

    >>> import ngn
    >>> ngn.TrainPlan(steps=1000, optimizer="adamw", weight_decay=0.1, warmup=0.05).lr_boundary
    0.05
    """

    steps: int
    lr: float | Tensor = 1e-3
    lr_boundary: float | Tensor = 5e-2
    lr_shape: Shape = CONSTANT
    lr_boundary_shape: Shape = CONSTANT
    clip: float | None = None
    clip_scope: ClipScope = "joint"
    optimizer: OptimizerKind = "adam"
    weight_decay: float = 0.0
    warmup: float = 0.0
    accumulate: int = 1
    autocast: Autocast = "none"

    def __post_init__(self) -> None:
        for name, words in (("optimizer", OptimizerKind), ("clip_scope", ClipScope), ("autocast", Autocast)):
            if getattr(self, name) not in get_args(words):
                raise ValueError(f"{name} must be one of {', '.join(get_args(words))}, not {getattr(self, name)!r}")
        require_shapes(lr_shape=self.lr_shape, lr_boundary_shape=self.lr_boundary_shape)
        for name, least in (("steps", 0), ("accumulate", 1), ("lr", 0), ("lr_boundary", 0), ("weight_decay", 0)):
            if not bool(torch.as_tensor(getattr(self, name) >= least).all()):
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not isinstance(self.steps, int) or not isinstance(self.accumulate, int):
            raise TypeError(f"steps and accumulate must be integers, not {self.steps!r} and {self.accumulate!r}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be positive, or None for no clipping, not {self.clip}")
        if not 0.0 <= self.warmup < 1.0:
            raise ValueError(f"warmup must be a fraction of training in [0, 1), not {self.warmup:g}")


@dataclass
class History:
    """Curves and facts of a training.

    Attributes:
        curves: "step" [points], "loss" (the objective) and "task" (the task loss) [points, R], "t" (the sizes)
            [points, R, G]. If ``on_evaluate`` returns values: "held_step" [evaluations] and "held" [evaluations, R].
        diverged_at: first step with a loss that is not finite, or -1: int64 [R].
        seconds: wall time, including the time before each resumption.
        resumed: how often the training resumed from a checkpoint.
        compared: after ``ngn.fit(retrain=True)``, the held-out losses of both trainings, "learned" and "retrained".
    """

    curves: dict[str, np.ndarray]
    diverged_at: np.ndarray
    seconds: float
    resumed: int
    compared: dict[str, float] = field(default_factory=dict)


def groups_of(
    body: Sequence[Tensor], controllers: Sequence[Tensor], plan: TrainPlan
) -> tuple[list[dict[str, Any]], bool]:
    """The parameter groups of a plan, and whether all replicas share their learning rates.

    In every step, the ``lr`` of a group is to be its ``rate`` times its schedule ``shape``. If replicas have rates of
    their own, these are ``rates``, float64 [R], and ``rate`` is 1. Controllers have no weight decay.
    """
    lr, lr_boundary = (torch.as_tensor(lr, dtype=torch.float64).flatten() for lr in (plan.lr, plan.lr_boundary))
    shared = all(bool((rates == rates[0]).all()) for rates in (lr, lr_boundary))
    each = (body, lr, plan.weight_decay, plan.lr_shape), (controllers, lr_boundary, 0.0, plan.lr_boundary_shape)
    groups: list[dict[str, Any]] = []
    for params, rates, decay, shape in each:
        if params:
            rate = float(rates[0]) if shared else 1.0
            settings = {"rate": rate, "lr": rate, "rates": rates, "shape": shape, "weight_decay": decay}
            groups.append({"params": list(params), **settings})
    if not groups:
        raise ValueError("the model has no trainable parameter: at least one needs requires_grad=True")
    return groups, shared


def moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an Adam optimiser for a checkpoint."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {
        f"adam.{i}.{part}": held
        for i, p in enumerate(parameters)
        for name, value in optimizer.state.get(p, {}).items()
        for part, held in _parts(name, value)
    }


def _parts(name: str, value: Tensor) -> list[tuple[str, Tensor]]:
    """Return the plain tensors in a moment: itself, or the codes and scales of a quantised one."""
    if not hasattr(value, "__tensor_flatten__") or hasattr(value, "device_mesh"):
        return [(name, value)]
    return [(f"{name}.{inner}", getattr(value, inner)) for inner in value.__tensor_flatten__()[0]]


def load_moments(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the result of :func:`moments` of an optimiser over the same parameters."""
    for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        if f"adam.{i}.step" in tensors:
            if (blank := getattr(optimizer, "blank_state", None)) is not None:  # moments that are no plain tensors
                optimizer.state[p] = blank(p)
                for part, held in (each for named in optimizer.state[p].items() for each in _parts(*named)):
                    held.copy_(tensors[f"adam.{i}.{part}"])
                continue
            state = {name: tensors[f"adam.{i}.{name}"].to(p.device) for name in ("step", "exp_avg", "exp_avg_sq")}
            if "fused" not in optimizer.defaults:
                state["step"] = state["step"].cpu()
            optimizer.state[p] = state


def pad_moments(optimizer: torch.optim.Optimizer) -> None:
    """Add zero moments for new components. Adam would hold the same if they had existed from the start."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            for name, value in optimizer.state.get(p, {}).items():
                if name != "step" and value.shape != p.shape:
                    padded = torch.zeros_like(p)
                    padded[tuple(slice(0, n) for n in value.shape)] = value
                    optimizer.state[p][name] = padded


def _gradients(parameters: Sequence[Tensor]) -> list[tuple[Tensor, Any]]:
    """The gradients, of a divided tensor (``DTensor``) this process' part, and the mesh that divides it."""
    gradients = ((p.grad, getattr(p.grad, "device_mesh", None)) for p in parameters if p.grad is not None)
    return [(grad if mesh is None else grad.to_local(), mesh) for grad, mesh in gradients]  # type: ignore[attr-defined]


def _square_norm(gradients: Sequence[tuple[Tensor, Any]], count: int) -> Tensor:
    """Return the squared gradient norm of each of ``count`` models, float64 [count]."""
    sums: dict[Any, list[Tensor]] = {}
    for grad, mesh in gradients:
        # no -1 in the shape: a fixed model with no components has parameters without entries
        norm = torch.linalg.vector_norm(grad.reshape(count, grad.numel() // count), dim=1)
        sums.setdefault(mesh, []).append(norm.double() ** 2)
    whole = {mesh: torch.stack(squares).sum(0) for mesh, squares in sums.items()}
    for mesh in whole.keys() - {None}:
        torch.distributed.all_reduce(whole[mesh], group=mesh.get_group())
    return torch.stack(list(whole.values())).sum(0)


@torch.no_grad()
def clip_gradients(
    body: Sequence[Tensor], controllers: Sequence[Tensor], limit: float, scope: ClipScope, replicas: int | None
) -> None:
    """Scale the gradients of each replica by min(1, limit / (norm + 1e-6)), as ``torch.nn.utils.clip_grad_norm_`` does.

    Copies nothing to the host. "joint" takes one norm over body and controllers, "separate" one for each, and "body"
    clips the body only, by its own norm. ``replicas``: length of the replica axis; None for a single model.
    """
    sets = {"joint": [[*body, *controllers]], "separate": [list(body), list(controllers)], "body": [list(body)]}[scope]
    for parameters in sets:
        if gradients := _gradients(parameters):
            factor = (limit / (_square_norm(gradients, replicas or 1).sqrt() + 1e-6)).clamp(max=1.0)
            for grad, _ in gradients:
                shape = [1] * grad.dim() if replicas is None else [-1, *[1] * (grad.dim() - 1)]
                grad.mul_(factor.to(grad.dtype).view(shape))
