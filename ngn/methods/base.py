"""The contract of a capacity: how the size of one axis is learned.

A :class:`Capacity` turns a learned (or given) size into one coefficient per component. An
:class:`~ngn.axis.OrderedAxis` multiplies components by these coefficients. A :class:`~ngn.learner.Learner`
collects all axes of a model. A new method is one subclass.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Self, Union, get_args

import torch
from torch import Tensor, nn

from ngn.gate import prefix
from ngn.methods.orders import KINDS, Order
from ngn.schedules import GATE_CUTOFF

Mode = Literal["soft", "kept", "hard"]
"""soft: all candidates with their gates. kept: the retained components with their gates. hard: the retained components
with gates of 1."""
MODES: tuple[Mode, ...] = get_args(Mode)

Scalar = Union[float, Sequence[float], Tensor]
"""A setting: one number, or one for each replica."""


def setting(value: Scalar, replicas: int | None) -> Tensor:
    """Convert a setting, one number or one per replica, to float64 [*R]; a ValueError if it is neither."""
    tensor = torch.as_tensor(value, dtype=torch.float64)
    shape = () if replicas is None else (replicas,)
    if tensor.shape not in ((), shape):
        each = "" if replicas is None else f", or {replicas} (one for each replica)"
        raise ValueError(f"expected one number{each}, not shape {tuple(tensor.shape)}")
    return tensor.expand(shape).clone()


def exact(fn: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Move ``value`` as ``fn`` does, but leave it its type."""
    moved = fn(value)
    return moved if moved.dtype == value.dtype else value.to(moved.device)


def on_host(value: Tensor) -> bool:
    """Whether ``value`` can be read without a stall or a graph break; if not, all K gates are computed."""
    return value.device.type == "cpu" and not torch.compiler.is_compiling()


def active_components(t: Tensor, K: int, beta: Tensor, delta: float) -> int:
    """The number of leading components with a gate of at least :data:`GATE_CUTOFF` in some replica; at least 1.

    A replica with a boundary that is not finite has diverged and counts as 0. Copies the boundary to the host.
    """
    reach = -math.log(GATE_CUTOFF)
    furthest = t + delta + reach / beta
    furthest = torch.where(torch.isfinite(furthest), furthest, 0.0)
    return max(1, min(K, math.floor(float(furthest.max())) + 1))


class CapacityExceeded(RuntimeError):
    """A boundary needs more than K_max components."""


class Capacity(nn.Module, ABC):
    """Say how many of K ordered components are in use. In shapes, ``*R`` is nothing or one replica axis.

    >>> import torch, ngn
    >>> from ngn.components.low_rank import LowRankLinear
    >>> class EveryOther(ngn.Capacity):
    ...     K, replicas = 4, None
    ...     def gates(self, mode): return torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    ...     def weights(self): return torch.ones(4, dtype=torch.float64)
    ...     def kept(self): return self.gates("hard").bool()
    ...     def penalty(self): return torch.zeros((), dtype=torch.float64)
    ...     def count(self): return self.kept().sum()
    ...     def size(self): return self.count().double()
    >>> layer = LowRankLinear(torch.nn.Linear(6, 6), EveryOther(), seed=0, name="map")
    >>> ngn.Learner(layer).deploy().down.shape
    torch.Size([2, 6])
    """

    K: int
    replicas: int | None
    has_boundary = False
    """Whether ``size`` is a boundary t: its distance from an integer matters, and a budget can price and fix it."""
    smallest_count = 1
    """The smallest count that truncation can leave. A boundary at K - smallest_count retains all K."""
    all_or_nothing = False
    """Whether retained components have gates of 1, so that a whole layer can be kept or removed."""
    progress: Tensor | None
    """Training progress in [0, 1], float64 []; None if the state does not hold it."""
    commit: float | None = None
    """Progress from which the size stays rounded; None for never."""
    committed = False
    """Whether the size is rounded now."""
    all_open = False
    """Whether all K coefficients are 1, and stay so while the size is rounded."""
    growing = False
    """Whether components are allocated as the size grows."""
    takes_bounds = False
    """Whether ``least`` and ``most`` are kept to."""
    least = 0
    """The fewest components that stay, beside ``smallest_count``."""
    most: int | None = None
    """The largest number of components that stay; None for K."""
    shared = False
    """Whether several axes have this capacity, and so one count."""
    batch: Any = None
    """The :class:`~ngn.methods.batch.GateBatch` that computes all capacities of a model together; None: one by one."""
    rms_eps: float | None = None
    """If a number, every f_k is divided by sqrt(mean f_k^2 + rms_eps) over the batch before it is weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("progress", None)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Each axis of a shared size has copies of its own in a state, as safetensors takes no tensor twice."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.shared and not keep_vars:
            destination |= {name: value.clone() for name, value in destination.items() if name.startswith(prefix)}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the capacity with the model, but keep float64: lower precision loses a boundary near t = 1e-4."""
        return super()._apply(partial(exact, fn), recurse)

    def extra_repr(self) -> str:
        return f"K={self.K}" + ("" if self.replicas is None else f", replicas={self.replicas}")

    def wanted(self) -> int:
        """The number of components that must exist now, of a capacity that is ``growing``."""
        return self.K

    def grow(self, K: int) -> None:
        """Grow to K components; a ValueError if the method needs a preset K."""
        raise ValueError(f"{type(self).__name__} cannot grow: give it a preset K")

    def shrink(self, K: int) -> None:
        """Keep the K leading components, after the tensors of the others were removed.

        It is a ValueError if the method does not close components for good.
        """
        raise ValueError(f"{type(self).__name__} cannot shrink: its components may open again")

    def set_progress(self, progress: float) -> None:
        """Move every schedule to ``progress`` in [0, 1]."""

    def commit_at(self, progress: float | None) -> None:
        """Round the size from ``progress``, in (0, 1), on; None for never. Only boundaries do this."""

    def before_step(self, step: int | None) -> None:
        """Prepare the forward passes of step 0, 1, ...; None: of an evaluation of the trained model.

        Draw random numbers here, from the stream of ``step`` (:mod:`ngn.streams`).
        """

    @abstractmethod
    def gates(self, mode: Mode) -> Tensor:
        """The gates g_k of the k <= K leading components, float64 [*R, k]; the other gates are closed."""

    @abstractmethod
    def weights(self) -> Tensor:
        """The ordering weights w_k, which truncation keeps: float64 [*R, K]."""

    def coefficients(self, mode: Mode) -> Tensor:
        """The coefficients c_k = w_k g_k, float64 [*R, k], with k as in :meth:`gates`."""
        g = self.gates(mode)
        return self.weights()[..., : g.shape[-1]] * g

    def kept(self) -> Tensor:
        """Which components truncation keeps, bool [*R, K]: the leading ones, unless a method overrides this."""
        return prefix(self.count(), self.K)

    @abstractmethod
    def penalty(self) -> Tensor:
        """The term to add to the task loss: float64 [*R]."""

    def after_step(self) -> None:
        """Change parameters after an optimiser step: clamp, take a proximal step, re-allocate."""

    @abstractmethod
    def count(self) -> Tensor:
        """The number of retained components: int64 [*R]."""

    @abstractmethod
    def size(self) -> Tensor:
        """The continuous size, t for a boundary: float64 [*R]."""

    def controllers(self) -> list[nn.Parameter]:
        """The parameters with the learning rate of boundaries; all others have that of the body."""
        return list(self.parameters())


class Weighted(Capacity):
    """A capacity with the ordering weights of an :class:`~ngn.methods.orders.Order`."""

    all_or_nothing = True
    order: Order
    r: Tensor
    w: Tensor
    """The weights that truncation keeps, [*R, K]."""
    kind: Tensor
    """The place of the order's kind in ``KINDS``: it travels with the state."""
    law: Tensor | None
    """The weights that truncation drops, [*R, K]: ones from the commit on; None if the order keeps its weights."""
    u: Tensor | None = None
    """The random number that draws the prefix of this step, [*R]."""
    candidates = 0
    """The largest K so far, on which some orders depend."""

    def put_in_order(self, order: Order | None, r: Scalar) -> None:
        """Set the weights of the K components from an order (None for geometric) and its ratio ``r``."""
        if not isinstance(order, Order | None):
            raise TypeError(f"order must be an order, such as ngn.methods.orders.Order('power'), not {order!r}")
        self.order = Order() if order is None else order
        self.register_buffer("r", setting(r, self.replicas), persistent=False)
        by_ratio = self.order.kind == "annealed" or (self.order.drawn and not self.order.ranks)
        if by_ratio and bool((self.r == 1).any()):
            raise ValueError(
                f"with r = 1 the order {self.order.kind} gives all components the same weight: set r below 1, or ranks"
            )
        self.register_buffer("w", None)
        self.register_buffer("law", None, persistent=False)
        self.register_buffer("kind", torch.tensor(float(KINDS.index(self.order.kind)), dtype=torch.float64))
        self.weigh(0.0)

    def weigh(self, progress: float) -> None:
        """Set the weights at ``progress``; a committed size trains with the weights of the deployed model."""
        self.candidates, order = max(self.candidates, self.K), self.order
        w = order.weights(self.r, self.candidates, progress)[..., : self.K].contiguous()
        self.w = w if order.kept else torch.ones_like(w)
        done = self.committed and not order.drawn
        self.law = None if order.kept else torch.ones_like(w) if done else w

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.setdefault(f"{prefix}w", self.w)  # states of version 0.1 lack these
        state_dict.setdefault(f"{prefix}kind", self.kind)
        kind = KINDS[round(float(state_dict[f"{prefix}kind"]))]
        if kind != self.order.kind:
            errors: list[str] = args[-1]
            errors.append(
                f"{prefix}w: the state is of the order {kind}, but the capacity has the order {self.order.kind}; "
                "build it as for the training"
            )
            return
        if (K := state_dict[f"{prefix}w"].shape[-1]) < self.K:  # a state of after a cut
            self.shrink(K)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def set_progress(self, progress: float) -> None:
        if not self.order.constant:
            self.weigh(progress)

    def before_step(self, step: int | None) -> None:
        """Draw the prefix of this step if the order is random; None keeps all components."""
        if self.order.drawn:
            u = None if step is None else setting(self.order.uniform(step), self.replicas)
            self.u = None if u is None else u.to(self.r.device).unsqueeze(-1)

    def shrink(self, K: int) -> None:
        self.K, self.w = K, self.w[..., :K].clone()
        self.law = None if self.law is None else self.law[..., :K].clone()

    def weights(self) -> Tensor:
        return self.w

    def mask(self) -> Tensor | None:
        """The factors of the soft model that truncation drops: the drawn mask, or its mean; [*R, K], None for ones."""
        if self.law is None or (self.order.drawn and self.u is None):
            return None
        return self.law if self.u is None else self.u < self.law

    def coefficients(self, mode: Mode) -> Tensor:
        """c_k = w_k g_k; in the soft model times the mask."""
        c, mask = super().coefficients(mode), self.mask() if mode == "soft" else None
        return c if mask is None else c * mask[..., : c.shape[-1]]
