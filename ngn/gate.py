"""The count gate: the equations of the paper.

    t = softplus(tau)                              boundary
    g_k(t) = sigmoid(beta (t - k + delta))         gate of component k = 0, 1, ...
    y = sum_k w_k g_k(t) f_k(x)                    soft model
    lambda t + alpha sin^2(pi t)                   capacity price and snapping
    floor(t + 1/2) + 1   (delta = +1/2)            retained count; floor(t + 1/2) for delta = -1/2

Shapes: ``*R`` is nothing (one model) or one leading replica axis; K is the number of candidates. The boundary is in
float64, since near t_0 = 1e-4 its slope dt/dtau is 1e-4, too.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

COMMITTED = 1e6
"""Sharpness after the commit: at an integer boundary every gate is exactly 0 or 1 in float64."""


def softplus_inverse(t: Tensor | float) -> Tensor:
    """tau with softplus(tau) = t: t + log(-expm1(-t)), exact at t = 1e-4; a ValueError unless 0 < t < infinity."""
    t = torch.as_tensor(t, dtype=torch.float64)
    if not bool(((t > 0) & torch.isfinite(t)).all()):
        raise ValueError(f"a boundary, such as t0, must be positive and finite, not {t.tolist()}")
    return t + torch.log(-torch.expm1(-t))


def boundary(tau: Tensor, stride: Tensor | float, settled: Tensor, rounded: Tensor) -> Tensor:
    """t = stride softplus(tau); where ``rounded`` is not 0, ``settled / rounded`` without gradient. Shapes are equal.

    It depends on tensors alone, so that averages of models are rounded together with the model.
    """
    return torch.where(rounded > 0, settled / rounded, stride * F.softplus(tau, threshold=700.0))


def gates(t: Tensor, K: int, beta: Tensor | float, delta: float) -> Tensor:
    """g_k(t) for k < K. t and beta: [*R]; returns [*R, K]."""
    k = torch.arange(K, dtype=t.dtype, device=t.device)
    beta = torch.as_tensor(beta, dtype=t.dtype, device=t.device)
    return torch.sigmoid(beta.unsqueeze(-1) * (t.unsqueeze(-1) - k + delta))


def ordering_weights(r: Tensor | float, K: int) -> Tensor:
    """w_k = r^k. r: [*R]; returns [*R, K] in float64."""
    r = torch.as_tensor(r, dtype=torch.float64)
    return r.unsqueeze(-1) ** torch.arange(K, dtype=torch.float64, device=r.device)


def retained_count(t: Tensor, K: int, delta: float) -> Tensor:
    """The number of components that truncation keeps, int64 [*R]: at most K, also if t is beyond the last one."""
    nearest = torch.floor(t.clamp(max=K) + 0.5).to(torch.int64)  # halves up; ``round`` takes them to the even neighbour
    return (nearest + (1 if delta > 0 else 0)).clamp(max=K)


def prefix(count: Tensor, K: int) -> Tensor:
    """1 for k < count, else 0. count: [*R]; returns bool [*R, K]."""
    return torch.arange(K, device=count.device) < count.unsqueeze(-1)


def snapping(t: Tensor) -> Tensor:
    """sin^2(pi t), with slope pi sin(2 pi t); t is reduced to [-1/2, 1/2] first, to keep the digits of a large t."""
    return torch.sin(math.pi * (t - torch.floor(t + 0.5).detach())) ** 2
