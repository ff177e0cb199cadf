"""NGN: learn a count as a boundary."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ngn.gate import COMMITTED, boundary, gates, prefix, retained_count, softplus_inverse
from ngn.methods.base import CapacityExceeded, Mode, Scalar, Weighted, active_components, on_host, setting
from ngn.methods.batch import prices
from ngn.methods.orders import Order
from ngn.schedules import DELAYED_LINEAR, LINEAR, POWER_DECAY, Shape, require_shapes, shape_at

NOMINAL_ZERO = 1e-4
"""The boundary that stands for 0, which softplus does not reach."""
ROOM = 4
"""Components beyond the last one up to which a boundary may lie at the start of a size with an upper bound."""
COMMIT = 0.9
"""Default commit of ``ngn.fit`` and ``ngn.learn_sizes`` without a budget. The last tenth of training repairs the effect
of rounding. The paper's studies have no commit."""


class CountGate(Weighted):
    """Learn the count of K ordered components by a differentiable boundary t; equations in :mod:`ngn.gate`.

    Args:
        K: number of candidates; None allocates components as the boundary advances.
        K_max: largest K to allocate; beyond it, :class:`CapacityExceeded` is raised.
        lambda0, alpha_max: largest capacity price and snapping strength.
        beta: sharpness at the start and at the end of training.
        r: ratio of the ordering weights w_k = r^k.
        weights: ordering weights in place of ``r``, any positive [*R, K].
        order: an order other than r^k.
        delta: 1/2 (count >= 1) or -1/2 (count >= 0).
        t0: initial boundary.
        stride: t = stride softplus(tau), 1 in the paper. Adam moves tau by at most its learning rate per step, so a
            boundary over hundreds of components needs a larger stride.
        kappa: alpha(p) = s(p) max(alpha_max, kappa lambda(p)), with its shape s. The penalty has minima near integers
            if lambda < pi alpha, at n - asin(lambda / (pi alpha)) / 2 pi. kappa = 1 ensures this at every price.
        lambda_shape, alpha_shape, beta_shape: schedules of price, snapping strength and sharpness.
        commit: progress, in (0, 1), from which t is rounded to its nearest integer; None for never. Gates are then 0 or
            1 and the penalty is 0, so that the truncated model trains on. SinReQ (arXiv 1905.01416) and WaveQ
            (2003.00146) end their price + sin^2 penalties in the same way.
        replicas: None for one model, else the length of the replica axis. The numbers above may then be one per
            replica.

    Raises:
        ValueError, TypeError: if a number is out of range or has the wrong type.

    >>> import ngn
    >>> gate = ngn.CountGate(4, t0=2.3)
    >>> gate.count().item(), gate.coefficients("hard").tolist()
    (3, [1.0, 0.5, 0.25, 0.0])
    """

    has_boundary = takes_bounds = True
    lambda0: Tensor
    alpha_max: Tensor
    kappa: Tensor
    beta: Tensor
    beta_start: Tensor
    beta_end: Tensor
    progress: Tensor
    now = 0.0
    """Training progress of the schedules."""
    rounded: Tensor
    """1 once t is rounded, else 0, [*R]. In an average of models with their buffers: the fraction with rounded t."""
    settled: Tensor
    """The integer that t is rounded to, times ``rounded``: in any such average, their ratio is that integer."""
    commits: Tensor
    """``commit`` as a number, infinite for None: it travels with the state."""

    def __init__(
        self,
        K: int | None,
        *,
        lambda0: Scalar = 1e-4,
        alpha_max: Scalar = 1e-4,
        kappa: Scalar = 0.0,
        beta: tuple[Scalar, Scalar] = (4.0, 15.0),
        r: Scalar = 0.5,
        weights: Tensor | None = None,
        order: Order | None = None,
        delta: float = 0.5,
        t0: Scalar = 1e-4,
        stride: float = 1.0,
        lambda_shape: Shape = POWER_DECAY,
        alpha_shape: Shape = DELAYED_LINEAR,
        beta_shape: Shape = LINEAR,
        commit: float | None = None,
        replicas: int | None = None,
        K_max: int = 1024,
    ) -> None:
        super().__init__()
        if K is not None and K < 1:
            raise ValueError(f"K must be at least 1, not {K}")
        if abs(delta) != 0.5:
            raise ValueError(f"delta must be 0.5 or -0.5, not {delta}")
        if not isinstance(beta, (tuple, list)) or len(beta) != 2:
            raise TypeError(
                f"beta must be two sharpnesses, at the start and the end, such as (4.0, 15.0), not {beta!r}"
            )
        require_shapes(lambda_shape=lambda_shape, alpha_shape=alpha_shape, beta_shape=beta_shape)
        self.delta, self.replicas, self.K_max, self.growing = delta, replicas, K_max, K is None
        self.smallest_count = int(delta > 0)
        self.shapes, self.stride = (lambda_shape, alpha_shape, beta_shape), stride
        if not stride > 0:
            raise ValueError(f"stride must be positive, not {stride}")
        self.tau = nn.Parameter(softplus_inverse(setting(t0, replicas) / stride))
        for name, value in (
            ("lambda0", lambda0),
            ("alpha_max", alpha_max),
            ("kappa", kappa),
            ("beta_start", beta[0]),
            ("beta_end", beta[1]),
        ):
            self.register_buffer(name, setting(value, replicas), persistent=False)
            if not bool((getattr(self, name) >= 0).all()):
                raise ValueError(f"{name} must not be negative, but is {value}")
        if not isinstance(weights, Tensor | None):
            raise TypeError(f"weights must be a tensor of K numbers, not a {type(weights).__name__}")
        if weights is not None and not bool((weights > 0).all()):
            raise ValueError(f"weights must be positive, not {weights.tolist()}")
        if not bool((torch.as_tensor(r) > 0).all()):
            raise ValueError(f"r must be positive, not {r}")
        if weights is not None and (K is None or order is not None):
            raise ValueError("weights need a preset K and no order: give r or order= in their place, which fit any K")
        if K is None and order is not None and order.kind == "matryoshka" and order.ranks is None:
            raise ValueError("without a preset K, matryoshka needs its ranks: Order('matryoshka', ranks=(1, 2, 4))")
        self.K = 1 if K is None else K
        self.put_in_order(order, r)
        if weights is not None:
            self.w = weights.to(torch.float64)
        if self.w.shape != (*self.tau.shape, self.K):
            raise ValueError(f"weights must have shape {(*self.tau.shape, self.K)}, not {tuple(self.w.shape)}")
        self.register_buffer("progress", torch.zeros((), dtype=torch.float64))
        self.register_buffer("beta", self.beta_start, persistent=False)
        self.register_buffer("settled", torch.zeros_like(self.tau.detach()))
        self.register_buffer("rounded", torch.zeros_like(self.tau.detach()))
        self.register_buffer("commits", torch.full((), torch.inf, dtype=torch.float64))
        self.commit_at(commit)
        self.set_progress(0.0)
        if K is None:
            self.grow(self.wanted())

    def t(self) -> Tensor:
        """The boundary t, [*R]; from the commit on an integer without gradient."""
        return boundary(self.tau, self.stride, self.settled, self.rounded)

    def size(self) -> Tensor:
        return self.t().detach()

    def scheduled(self, number: int) -> float:
        """The value of the schedule of price (0) or snapping (1); 0 once committed."""
        return 0.0 if self.committed else shape_at(self.shapes[number], self.now)

    def penalty(self) -> Tensor:
        return prices([self]).squeeze(-1)

    def coefficients(self, mode: Mode) -> Tensor:
        if self.batch is None or mode != "soft" or self.law is not None or torch.compiler.is_compiling():
            return super().coefficients(mode)
        values, slopes = self.batch.of(self)
        return torch.addcmul(values, slopes, self.tau - self.tau.detach())  # with its first derivative

    def wanted(self) -> int:
        """The number of gates of at least 1e-15, read on the host; a :class:`CapacityExceeded` if it is above K_max."""
        k = active_components(self.size(), self.K_max + 1, self.beta, self.delta)
        if k > self.K_max:
            raise CapacityExceeded(
                f"the boundary has reached t = {float(self.size().max()):.1f}, which needs more than K_max = "
                f"{self.K_max} components; raise K_max, or the price lambda0"
            )
        return max(k, self.K)

    def grow(self, K: int) -> None:
        self.K = K
        self.weigh(float(self.progress))

    def shrink(self, K: int) -> None:
        super().shrink(K)
        self.all_open = self._opened()

    def _opened(self) -> bool:
        """Whether all K gates are rounded to open ones, with weights that are 1 and stay so; reads the device."""
        steady = not self.order.drawn and (self.order.constant or not self.order.kept)
        return self.committed and steady and bool((self.w == 1).all()) and bool((self.count() == self.K).all())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if f"{prefix}tau" in state_dict:  # states of version 0.1 may lack these
            state_dict.setdefault(f"{prefix}commits", self.commits)
            if f"{prefix}rounded" not in state_dict:
                settled = state_dict.get(f"{prefix}settled", torch.full_like(self.settled, torch.nan))
                state_dict[f"{prefix}rounded"] = settled.isfinite().to(settled)
                state_dict[f"{prefix}settled"] = settled.nan_to_num(nan=0.0, posinf=0.0)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.commit = None if bool(self.commits.isinf()) else float(self.commits)
        # go to the progress in the buffers, at least the commit if they are an average with rounded boundaries
        progress, self.committed = float(self.progress), False  # set_progress decides by the buffers
        rounded = self.commit is not None and bool(self.rounded.any())
        self.set_progress(max(progress, self.commit or 0.0) if rounded else progress)

    def set_progress(self, progress: float) -> None:
        self.progress.fill_(progress)
        if self.committed and self.commit is not None and progress >= self.commit:  # nothing moves but the weights
            super().set_progress(progress)
            return
        self.now = progress
        self.beta = self.beta_start + (self.beta_end - self.beta_start) * shape_at(self.shapes[2], progress)
        self._commit(progress)
        super().set_progress(progress)
        self.all_open = self._opened()

    def commit_at(self, progress: float | None) -> None:
        if progress is not None and not 0.0 < progress < 1.0:
            raise ValueError(f"commit must be a fraction of training in (0, 1), not {progress}")
        self.commit = progress
        self.commits.fill_(torch.inf if progress is None else progress)
        self.committed = False
        self.settled.zero_()
        self.rounded.zero_()

    @torch.no_grad()
    def _commit(self, progress: float) -> None:
        """Round the boundary at the commit. If the schedules restart, it continues from the rounded value."""
        before, self.committed = self.committed, self.commit is not None and progress >= self.commit
        if self.committed:
            fresh = self.rounded == 0
            least, most = self.least - self.smallest_count, (self.most or torch.inf) - self.smallest_count
            nearest = torch.floor(self.t() + 0.5).clamp(least, most)
            self.settled.copy_(torch.where(fresh, nearest, self.settled))
            self.rounded.masked_fill_(fresh, 1.0)
            self.beta = torch.full_like(self.beta, COMMITTED)
        elif before:
            self.tau.copy_(self.settled_tau())
            self.commit_at(self.commit)

    def settle(self, count: Tensor) -> None:
        """Fix the count from the commit on, int64 [*R], in place of the learned one; a ValueError without a commit."""
        if self.commit is None:
            raise ValueError("only a gate with a commit can be settled: set one, as in CountGate(..., commit=0.9)")
        self.settled.copy_(count - self.smallest_count)
        self.rounded.fill_(1.0)

    def settled_tau(self) -> Tensor:
        """tau of the rounded boundary, [*R]; NaN if it has diverged."""
        settled = self.settled / self.rounded
        finite = settled.isfinite()
        t = torch.where(finite, settled, 1.0).clamp(min=NOMINAL_ZERO)
        return torch.where(finite, softplus_inverse(t / self.stride), torch.nan)

    def gates(self, mode: Mode) -> Tensor:
        """Soft: g_k(t). Hard: 1 on the retained prefix. Kept: g_k(t) on the retained prefix."""
        t = self.t()
        if mode == "hard" and not self.committed:  # once committed, all modes use the same computation
            return prefix(self.count(), self.K).to(torch.float64)
        k = active_components(t.detach(), self.K, self.beta, self.delta) if on_host(t) else self.K
        soft = gates(t, k, self.beta, self.delta)
        return soft if mode == "soft" else soft * prefix(self.count(), k)

    def ceiling(self, progress: float) -> float:
        """The largest continuous count; it falls to ``most`` in the first half of the time before the commit."""
        if self.most is None:
            return math.inf
        left = max(0.0, 1.0 - 2.0 * progress / (self.commit or 1.0))
        return self.most + left * (self.candidates + ROOM - self.most)

    @torch.no_grad()
    def after_step(self) -> None:
        """Keep t within the bounds."""
        if not self.committed and (self.least > self.smallest_count or self.most is not None):
            for n, clamp in ((float(self.least), self.tau.clamp_min_), (self.ceiling(self.now), self.tau.clamp_max_)):
                if n < math.inf:
                    clamp(float(softplus_inverse(max(NOMINAL_ZERO, n - self.smallest_count) / self.stride)))

    def count(self) -> Tensor:
        count = retained_count(self.t().detach(), self.K, self.delta)
        return count if not self.least and self.most is None else count.clamp(min(self.least, self.K), self.most)
