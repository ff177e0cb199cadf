"""A selective state space with its state coordinates as ordered components, and the Mamba block around it."""

from __future__ import annotations

import importlib.metadata
import logging
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.models.transformer import SequenceBank
from ngn.components.base import OrderedSum, uniform
from ngn.methods.base import Capacity
from ngn.streams import generator

log = logging.getLogger(__name__)


@cache
def mamba_scan() -> Callable[..., Tensor] | None:
    """Return the scan of the package mamba-ssm, a CUDA kernel; None if the package is missing or cannot be imported."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ModuleNotFoundError as missing:
        if missing.name != "mamba_ssm":
            log.warning("mamba-ssm lacks %s; the scan of torch is used", missing.name)
        return None
    except (ImportError, OSError) as fault:  # built for another torch or CUDA
        log.warning("mamba-ssm cannot be imported (%s); the scan of torch is used", fault)
        return None
    return selective_scan_fn


def scan_package(device: torch.device) -> str | None:
    """Return the package, with its version, that computes :func:`selective_scan` on a device; None for torch."""
    if device.type != "cuda" or mamba_scan() is None:
        return None
    return f"mamba-ssm {importlib.metadata.version('mamba-ssm')}"


class _SelectiveScan(torch.autograd.Function):
    """The recurrence of :func:`selective_scan`, time first, with an explicit backward pass.

    For autograd this is one operation. Otherwise the gradient of each slice x[t] would be a tensor of the whole size,
    and a graph of L small steps would cost more than the steps. A step works on [B, N, D], which stays in the caches.
    The backward pass computes exp(delta A) again instead of storing it.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        """Return y [L, B, D] for u, delta [L, B, D]; A [N, D]; B, C [L, B, N]."""
        v, h, y = delta * u, u.new_empty(*B.shape, u.shape[-1]), torch.empty_like(u)
        before = torch.zeros_like(h[0])
        for d, v_t, B_t, C_t, h_t, y_t in zip(*(x.unbind(0) for x in (delta, v, B, C, h, y)), strict=True):
            torch.mul(B_t[..., None], v_t[:, None], out=h_t)
            before = h_t.addcmul_((d[:, None] * A).exp_(), before)
            torch.bmm(C_t[:, None], h_t, out=y_t[:, None])
        ctx.save_for_backward(u, delta, A, B, C, v, h)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        """Return all gradients, from c_t = dL/dh_t = C_t dy_t + a_{t+1} c_{t+1} and da_t = c_t h_{t-1}.

        Here a_t = exp(delta_t A).
        """
        u, delta, A, B, C, v, h = ctx.saved_tensors
        dA, dB, dC, dv, ddelta = (torch.zeros_like(x) for x in (A, B, C, v, delta))
        carried = torch.zeros_like(h[0])  # a_{t+1} c_{t+1}
        steps = [x.unbind(0) for x in (dy.contiguous(), delta, B, C, v, h, dB, dC, dv, ddelta)]
        for t in range(len(h) - 1, -1, -1):
            dy_t, d, B_t, C_t, v_t, h_t, dB_t, dC_t, dv_t, dd = (x[t] for x in steps)
            c = carried.addcmul_(C_t[..., None], dy_t[:, None])
            torch.bmm(h_t, dy_t[..., None], out=dC_t[..., None])
            torch.bmm(c, v_t[..., None], out=dB_t[..., None])
            torch.bmm(B_t[:, None], c, out=dv_t[:, None])
            carried = c.mul_((d[:, None] * A).exp_())
            if t:
                da = carried * steps[5][t - 1]  # the gradient of the exponent delta_t A
                torch.sum(da * A, 1, out=dd)
                dA += da.mul_(d[:, None]).sum(0)
        return dv * delta, ddelta.addcmul_(dv, u), dA, dB, dC


def _traced_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Compute the recurrence step by step, time first, for tracers: they cannot follow results written into views."""
    h, steps = u.new_zeros(B.shape[1], len(A), u.shape[-1]), []
    for u_t, d, B_t, C_t in zip(*(x.unbind(0) for x in (u, delta, B, C)), strict=True):
        h = (d[:, None] * A).exp() * h + B_t[..., None] * (d * u_t)[:, None]
        steps.append((C_t[..., None] * h).sum(1))
    return torch.stack(steps)


def selective_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Return y_t = sum_n C_tn h_tn with h_tn = exp(delta_t A_n) h_{t-1,n} + delta_t B_tn u_t.

    This is the recurrence of Gu and Dao (2023) without the term D u. It computes in float32 or wider, and its cost is
    proportional to N. On CUDA it uses the kernel of mamba-ssm, if that is installed.

    Args:
        u, delta: [B, L, D].
        A: [N, D], negative.
        B, C: [B, L, N].

    Returns:
        [B, L, D], in the dtype of ``u``.
    """
    kind = torch.promote_types(u.dtype, torch.float32)
    with torch.autocast(u.device.type, enabled=False):
        x, delta, A, B, C = (part.to(kind) for part in (u, delta, A, B, C))
        if u.is_cuda and kind == torch.float32 and len(A) and (kernel := mamba_scan()) is not None:
            lengthwise = (part.mT.contiguous() for part in (x, delta))
            return kernel(*lengthwise, A.T.contiguous(), B.mT.contiguous(), C.mT.contiguous()).mT.to(u)
        x, delta, B, C = (part.transpose(0, 1).contiguous() for part in (x, delta, B, C))
        traced = torch.compiler.is_compiling()
        y: Tensor = (_traced_scan if traced else _SelectiveScan.apply)(x, delta, A, B, C)
        return y.transpose(0, 1).to(u)


class StateBank(SequenceBank):
    """K state coordinates of a selective state space over D channels; component n is y = C_n(u) h_n.

    ``A_log`` [K, D] starts at ln(n + 1), S4D-real. ``B`` and ``C`` [K, D] map the inputs: B_tn = B_n u_t and
    C_tn = C_n u_t. ``C`` starts at zero. Coefficients multiply C, so closed coordinates need no scan.

    Input: (u, delta), both [B, L, D], delta positive.

    >>> import torch, ngn
    >>> u = torch.ones(2, 5, 8)
    >>> StateBank(8, K=3, seed=0)((u, 0.1 * u), None).shape
    torch.Size([2, 5, 8])
    """

    last = ("C",)
    A_log: Tensor
    B: Tensor
    C: Tensor

    def __init__(self, channels: int, K: int, seed: int, name: str | int = 0) -> None:
        super().__init__(channels, 1, K, seed, name)

    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        return {"A_log": torch.zeros(self.d), "B": uniform((self.d,), self.d, source), "C": torch.zeros(self.d)}

    def _drawn(self, first: int, last: int) -> dict[str, Tensor]:
        drawn = super()._drawn(first, last)
        return drawn | {"A_log": drawn["A_log"] + torch.arange(first + 1.0, last + 1.0).log()[:, None]}

    def forward(self, x: tuple[Tensor, Tensor], coefficients: Tensor | None) -> Tensor:
        u, delta = x
        k = self.K if coefficients is None else len(coefficients)
        C = self.C if coefficients is None else self.C[:k] * coefficients.to(self.C.dtype)[:, None]
        return selective_scan(u, delta, -self.A_log[:k].exp(), F.linear(u, self.B[:k]), F.linear(u, C))

    def components(self, x: tuple[Tensor, Tensor], count: int | None = None) -> Tensor:
        u, delta = x
        k = self.K if count is None else count
        A, B, C = -self.A_log[:k].exp(), F.linear(u, self.B[:k]), F.linear(u, self.C[:k])
        each = [selective_scan(u, delta, A[n : n + 1], B[..., n : n + 1], C[..., n : n + 1]) for n in range(k)]
        return torch.stack(each) if each else u.new_zeros(0, *u.shape)


class MambaBlock(nn.Module):
    """A Mamba block (Gu and Dao 2023) with an ordered sum over state coordinates: [B, L, d] → [B, L, d].

        u, z = in_proj(x);  u = silu(causal depthwise convolution of u);  delta = softplus(dt_proj(dt_down(u)))
        y = out_proj((sum_n c_n C_n(u) h_n + D u) silu(z))

    D u and z are not gated. There are 2 d channels, and the rank of delta is ceil(d / 16). Initial values are as in
    mamba-ssm.

    Args:
        d: entries of the residual stream.
        states: the capacity of the state coordinates.
        seed, name: they determine the initial parameters.
        kernel: steps in the window of the convolution.

    >>> import torch, ngn
    >>> MambaBlock(8, ngn.CountGate(4), seed=0)(torch.ones(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, d: int, states: Capacity, seed: int, name: str | int = 0, kernel: int = 4) -> None:
        super().__init__()
        D, rank = 2 * d, math.ceil(d / 16)

        def drawn(part: str, *shape: int, fan_in: int) -> nn.Parameter:
            return nn.Parameter(uniform(shape, fan_in, generator(seed, "init", name, part)))

        self.in_proj = drawn("in_proj", 2 * D, d, fan_in=d)
        self.conv, self.conv_bias = (drawn("conv", D, 1, kernel, fan_in=kernel), drawn("conv_bias", D, fan_in=kernel))
        self.dt_down, self.dt_up = drawn("dt_down", rank, D, fan_in=D), drawn("dt_up", D, rank, fan_in=rank)
        share = torch.rand(D, generator=generator(seed, "init", name, "dt"))
        start = (math.log(1e-3) + share * math.log(1e2)).exp().clamp(min=1e-4)
        self.dt_bias = nn.Parameter(start + torch.log(-torch.expm1(-start)))  # the inverse of softplus
        self.states = OrderedSum(StateBank(D, states.K, seed, name), states)
        self.D = nn.Parameter(torch.ones(D))
        self.out_proj = drawn("out_proj", d, D, fan_in=D)

    def forward(self, x: Tensor) -> Tensor:
        u, z = F.linear(x, self.in_proj).chunk(2, -1)
        padded = F.pad(u.mT, (self.conv.shape[-1] - 1, 0))
        u = F.silu(F.conv1d(padded, self.conv, self.conv_bias, groups=len(self.conv)).mT)
        delta = F.softplus(F.linear(F.linear(u, self.dt_down), self.dt_up, self.dt_bias))
        y = self.states((u, delta)) + self.D * u
        return F.linear(y * F.silu(z), self.out_proj)
