"""The contract of a capacity learner for one group of ordered components.

A :class:`Capacity` turns a learned (or given) size into one coefficient for each component. An
:class:`~ngn.components.base.OrderedSum` multiplies its components by them; a
:class:`~ngn.learner.CapacityLearner` collects all groups of a model. A new method is one subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, Union, get_args

import torch
from torch import Tensor, nn

from ngn.gate import prefix
from ngn.orders import Order

Mode = Literal["soft", "kept", "hard"]
"""soft: the whole candidate model with its learned gates. kept: the retained prefix with its learned gates kept. hard:
the retained prefix with gates of one."""
MODES: tuple[Mode, ...] = get_args(Mode)

Scalar = Union[float, Sequence[float], Tensor]
"""A setting: one number, or one for each replica."""


def setting(value: Scalar, replicas: int | None) -> Tensor:
    """A scalar setting as a float64 tensor of shape [*R].

    Raises:
        ValueError: if there is neither one number nor one per replica.
    """
    tensor = torch.as_tensor(value, dtype=torch.float64)
    shape = () if replicas is None else (replicas,)
    if tensor.shape not in ((), shape):
        raise ValueError(f"expected one number, or {replicas} (one for each replica), not shape {tuple(tensor.shape)}")
    return tensor.expand(shape).clone()


def on_host(value: Tensor) -> bool:
    """Whether ``value`` can be read back for nothing: on CUDA that stalls the device, and in a compiled graph there is
    no value yet. Where it cannot, all K gates are computed, not only those that matter."""
    return not value.is_cuda and not torch.compiler.is_compiling()


class CapacityExceeded(RuntimeError):
    """A boundary advanced beyond the largest number of components that may be allocated."""


class Capacity(nn.Module, ABC):
    """How many of K ordered components are in use. ``*R`` is nothing, or one replica axis.

    >>> import torch, ngn
    >>> class EveryOther(ngn.Capacity):
    ...     K, replicas = 4, None
    ...     def gates(self, mode): return torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    ...     def weights(self): return torch.ones(4, dtype=torch.float64)
    ...     def kept(self): return self.gates("hard").bool()
    ...     def penalty(self): return torch.zeros((), dtype=torch.float64)
    ...     def count(self): return self.kept().sum()
    ...     def size(self): return self.count().double()
    >>> layer = ngn.LowRankLinear(torch.nn.Linear(6, 6), EveryOther(), seed=0, name="map")
    >>> ngn.CapacityLearner(layer).deploy().down.shape
    torch.Size([2, 6])
    """

    K: int
    replicas: int | None
    has_boundary = False
    """Whether ``size`` is a boundary t: its distance from an integer counts, and a budget can price and fix it."""
    smallest_count = 1
    """The fewest components that truncation can leave. A boundary at K - smallest_count retains all K."""
    all_or_nothing = False
    """Whether retained components have gates of one, so that a whole layer can be kept or removed."""
    progress: Tensor | None
    """Training progress in [0, 1], float64 [], of a capacity whose state holds it."""
    commit: float | None = None
    """Fraction of training from which the size is rounded for good; None for never."""
    committed = False
    """Whether the size is rounded for good."""
    growing = False
    """Whether components are allocated as the size grows."""
    rms_eps: float | None = None
    """If a number, every f_k is divided by sqrt(mean f_k^2 + rms_eps) over the batch before it is weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("progress", None)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What moves or casts the model moves a capacity, too, but leaves its type: near t = 1e-4 a boundary is lost in
        anything less than float64."""

        def exact(value: Tensor) -> Tensor:
            moved = fn(value)
            return moved if moved.dtype == value.dtype else value.to(moved.device)

        return super()._apply(exact, recurse)

    def extra_repr(self) -> str:
        return f"K={self.K}" + ("" if self.replicas is None else f", replicas={self.replicas}")

    def wanted(self) -> int:
        """Components that have to exist now; more than K only where they are allocated as the size grows."""
        return self.K

    def grow(self, K: int) -> None:
        """Go on with K components, K no less than before.

        Raises:
            ValueError: if the method needs a preset K.
        """
        raise ValueError(f"{type(self).__name__} needs a preset K")

    def set_progress(self, progress: float) -> None:
        """Move every schedule to ``progress`` in [0, 1]."""

    def commit_at(self, progress: float | None) -> None:
        """Round the size for good when training is at ``progress``, in (0, 1); None for never.

        Only a boundary has anything to round.
        """

    def before_step(self, step: int | None) -> None:
        """Called before the forward passes of step 0, 1, ...; with None before the trained model is evaluated.

        What is random is drawn here, from a stream that is addressed by ``step``.
        """

    @abstractmethod
    def gates(self, mode: Mode) -> Tensor:
        """The gates g_k: [*R, k] in float64, for the k <= K leading components that matter; the others are closed."""

    @abstractmethod
    def weights(self) -> Tensor:
        """The ordering weights w_k, which truncation keeps: [*R, K] in float64."""

    def coefficients(self, mode: Mode) -> Tensor:
        """w_k g_k, what each component of an ordered sum is multiplied by: [*R, k], k as in :meth:`gates`."""
        g = self.gates(mode)
        return self.weights()[..., : g.shape[-1]] * g

    def kept(self) -> Tensor:
        """Which components truncation keeps: bool [*R, K]. The leading ones, unless a method says otherwise."""
        return prefix(self.count(), self.K)

    @abstractmethod
    def penalty(self) -> Tensor:
        """What is added to the task loss: [*R] in float64."""


    def after_step(self) -> None:
        """Called after every optimiser step: clamping, proximal steps, re-allocation."""

    @abstractmethod
    def count(self) -> Tensor:
        """Retained components: int64 [*R]."""

    @abstractmethod
    def size(self) -> Tensor:
        """The continuous size that the method reports, t for a boundary: float64 [*R]."""

    def controllers(self) -> list[nn.Parameter]:
        """Its parameters that are trained at the boundary's rate; others are trained as the body is."""
        return list(self.parameters())


class Weighted(Capacity):
    """A capacity whose components have the weights of an :class:`~ngn.orders.Order`."""

    all_or_nothing = True
    order: Order
    r: Tensor
    w: Tensor
    """What truncation keeps, [*R, K]."""
    law: Tensor | None
    """The weights that truncation drops, [*R, K]: ones from the commit on; None for orders that keep theirs."""
    u: Tensor | None = None
    """By which a prefix is drawn in this step, [*R]."""

    def put_in_order(self, order: Order | None, r: Scalar) -> None:
        """Give the K components the weights of an order (None for geometric) of ratio ``r``."""
        if not isinstance(order, Order | None):
            raise TypeError(f"an order is written as in ngn.Order('power'), not {order!r}")
        self.order = Order() if order is None else order
        self.register_buffer("r", setting(r, self.replicas), persistent=False)
        if self.order.by_ratio and self.order.kind != "geometric" and bool((self.r == 1).any()):
            raise ValueError(
                f"with r = 1 the order {self.order.kind} puts no component first: give r below 1, or ranks"
            )
        self.register_buffer("w", None)
        self.register_buffer("law", None, persistent=False)
        self.weigh(0.0)

    def weigh(self, progress: float) -> None:
        """The weights at ``progress``; a size that is rounded for good trains with those that it is deployed with."""
        w, order = self.order.weights(self.r, self.K, progress).contiguous(), self.order
        self.w = w if order.kept else torch.ones_like(w)
        done = self.committed and not order.drawn
        self.law = None if order.kept else torch.ones_like(w) if done else w

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.setdefault(f"{prefix}w", self.w)  # a state of version 0.1 lacks it
        super()._load_from_state_dict(state_dict, prefix, *args)

    def set_progress(self, progress: float) -> None:
        if not self.order.constant:
            self.weigh(progress)

    def before_step(self, step: int | None) -> None:
        """Draw the prefix of this step, where the order has one; None leaves all components."""
        if self.order.drawn:
            u = None if step is None else setting(self.order.uniform(step), self.replicas)
            self.u = None if u is None else u.to(self.r.device).unsqueeze(-1)

    def weights(self) -> Tensor:
        return self.w

    def mask(self) -> Tensor | None:
        """What the soft model has of each component in this step and truncation drops: the mean of a mask, or the one
        that was drawn; [*R, K], None for all of each."""
        if self.law is None or (self.order.drawn and self.u is None):
            return None
        return self.law if self.u is None else self.u < self.law

    def coefficients(self, mode: Mode) -> Tensor:
        """w_k g_k; of the soft model times its mask."""
        c, mask = super().coefficients(mode), self.mask() if mode == "soft" else None
        return c if mask is None else c * mask[..., : c.shape[-1]]
