"""Adam, AdamW and gradient clipping for a stack of independent models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ngn.schedules import CONSTANT, Shape
from ngn.train.eight_bit import EightBitAdamW

ClipScope = Literal["joint", "separate", "body"]
OptimizerKind = Literal["adam", "adamw", "adamw8bit"]
"""Weight decay as an L2 term of the gradient (adam), or decoupled from it (adamw); adamw8bit has quantised moments."""


class ReplicaAdam(torch.optim.Optimizer):
    """Adam with one learning rate per replica, in the arithmetic of :class:`torch.optim.Adam`.

    The leading axis of every parameter is the replica axis.

    Args:
        groups: parameter groups. Each has ``rates``, float64 [R], which every step multiplies by the group's ``lr``.
        betas, eps: as in :class:`torch.optim.Adam`; a group may have its own, and its own ``weight_decay``.
        decoupled: weight decay as in :class:`torch.optim.AdamW`.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        decoupled: bool = False,
    ) -> None:
        super().__init__(groups, {"lr": 1.0, "betas": betas, "eps": eps, "weight_decay": 0.0})
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


def adam(
    body: Sequence[Tensor],
    controllers: Sequence[Tensor],
    lr: float | Tensor,
    lr_boundary: float | Tensor,
    weight_decay: float,
    eps: float = 1e-8,
    kind: OptimizerKind = "adam",
    shapes: tuple[Shape, Shape] = (CONSTANT, CONSTANT),
) -> torch.optim.Optimizer:
    """Return Adam or AdamW with one group for the body and one for the controllers, which have no weight decay.

    If all replicas share their rates, this is torch's fused optimiser or
    :class:`~ngn.train.eight_bit.EightBitAdamW`, else :class:`ReplicaAdam`. In every step, the
    caller sets the ``lr`` of each group to its ``rate`` times its schedule ``shape``.

    Args:
        body, controllers: the parameters of the two groups.
        lr, lr_boundary: their learning rates: one number, or [R].
        weight_decay: weight decay of the body.
        eps: added to Adam's denominator.
        kind: Adam, AdamW, or AdamW with quantised moments of the body.
        shapes: the schedules of the two rates.

    Raises:
        ValueError: if there is no parameter; for "adamw8bit", if there is no body, or replicas have rates of their own.
        ModuleNotFoundError: for "adamw8bit" without torchao.
    """
    groups: list[dict[str, Any]] = []
    both = [torch.as_tensor(rates, dtype=torch.float64).flatten() for rates in (lr, lr_boundary)]
    shared = all(bool((rates == rates[0]).all()) for rates in both)
    for params, rates, decay, shape in zip((body, controllers), both, (weight_decay, 0.0), shapes, strict=True):
        if params:
            rate = float(rates[0]) if shared else 1.0
            settings = {"rate": rate, "lr": rate, "rates": rates, "shape": shape, "weight_decay": decay}
            groups.append({"params": list(params), **settings})
    if not groups:
        raise ValueError("the model has no trainable parameter: at least one needs requires_grad=True")
    if kind == "adamw8bit":
        if not shared or not body:
            raise ValueError("adamw8bit needs a body to train, and one learning rate for all replicas: use adamw")
        return EightBitAdamW(groups, eps)
    if shared:
        return (torch.optim.AdamW if kind == "adamw" else torch.optim.Adam)(groups, eps=eps, fused=True)
    return ReplicaAdam(groups, eps=eps, decoupled=kind == "adamw")


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
            if isinstance(optimizer, EightBitAdamW):
                optimizer.state[p] = optimizer.blank_state(p)
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
    found = ((p.grad, getattr(p.grad, "device_mesh", None)) for p in parameters if p.grad is not None)
    return [(grad if mesh is None else grad.to_local(), mesh) for grad, mesh in found]  # type: ignore[attr-defined]


def _square_norm(parameters: Sequence[Tensor], replicas: int | None) -> Tensor:
    """Return the squared gradient norm of each replica, float64 [R] ([1] for a single model)."""
    sums: dict[Any, list[Tensor]] = {}
    count = 1 if replicas is None else replicas
    for grad, mesh in _gradients(parameters):
        # no -1 in the shape: a fixed model with no components has parameters without entries
        norm = torch.linalg.vector_norm(grad.reshape(count, grad.numel() // count), dim=1)
        sums.setdefault(mesh, []).append(norm.double() ** 2)
    whole = {mesh: torch.stack(squares).sum(0) for mesh, squares in sums.items()}
    for mesh in whole.keys() - {None}:
        torch.distributed.all_reduce(whole[mesh], group=mesh.get_group())
    return torch.stack(list(whole.values())).sum(0)


def _scale(parameters: Sequence[Tensor], factor: Tensor, replicas: int | None) -> None:
    for grad, _ in _gradients(parameters):
        grad.mul_(factor.to(grad.dtype).view([1] * grad.dim() if replicas is None else [-1, *[1] * (grad.dim() - 1)]))


@torch.no_grad()
def clip_gradients(
    body: Sequence[Tensor],
    controllers: Sequence[Tensor],
    limit: float,
    scope: ClipScope,
    replicas: int | None,
) -> None:
    """Scale the gradients of each replica by min(1, limit / (norm + 1e-6)), as ``torch.nn.utils.clip_grad_norm_`` does.

    Copies nothing to the host.

    Args:
        body, controllers: parameters with gradients.
        limit: the largest norm.
        scope: "joint" takes one norm over body and controllers. "separate" takes one norm for each. "body" clips the
            body only, by its own norm.
        replicas: length of the replica axis; None for a single model.
    """
    sets = {"joint": [[*body, *controllers]], "separate": [list(body), list(controllers)], "body": [list(body)]}[scope]
    for parameters in sets:
        if any(p.grad is not None for p in parameters):
            norm = _square_norm(parameters, replicas).sqrt()
            _scale(parameters, (limit / (norm + 1e-6)).clamp(max=1.0), replicas)
