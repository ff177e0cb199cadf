"""Ordered components: a bank of functions f_0, f_1, ... of one structure, and their gated sum.

Shapes: ``*R`` is nothing (one model) or one leading replica axis; k is the number of leading components in use, at most
K; N is the number of samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.cuts import Cut, Stacked
from ngn.methods.base import Capacity
from ngn.streams import generator

Seeds = int | Sequence[int]
"""One seed for one model, or one for each replica of a stack."""


class Bank(Stacked, ABC):
    """K ordered components whose parameters are stacked as [*R, K, ...].

    The initial values of component k depend only on the replica's seed, the bank's name and k, not on K or other
    replicas. The last map of each component starts at zero: every f_k is zero at the start and still receives
    gradients. A bank that starts otherwise says so. Leading components without parameters, such as an identity f_0,
    are not stored.

    Truncation cuts the leading dimension of every parameter. The bank keeps its class, with fewer components.

    >>> import torch, ngn
    >>> class Scales(ngn.Bank):  # f_k(x) = a_k x
    ...     last = ("a",)
    ...     def draw(self, source): return {"a": torch.zeros(1)}
    ...     def components(self, x, count=None): return self.a[:count, :, None] * x
    >>> learner = ngn.Learner(ngn.OrderedSum(Scales(4, seeds=0), ngn.CountGate(4, t0=1.0)))
    >>> learner.deploy(example=torch.ones(5, 1)).bank.a.shape
    torch.Size([2, 1])
    """

    last: tuple[str, ...] = ()
    """Parameters of the last maps, which truncation multiplies by the coefficients. Empty: the sum keeps these."""
    shared_biases: tuple[str, ...] = ()
    """Parameters in ``last`` that only enter as a sum over components, such as an output bias."""

    def __init__(self, K: int, seeds: Seeds, name: str | int = 0) -> None:
        super().__init__()
        if K < 0:
            raise ValueError(f"K must be 0 or more, not {K}")
        self.K, self.seeds, self.name, self.drawn = K, seeds, name, True
        self.replicas = None if isinstance(seeds, int) else len(seeds)
        for key, value in self._drawn(0, K).items():
            self.register_parameter(key, nn.Parameter(value))

    def extra_repr(self) -> str:
        return f"K={self.K}" + ("" if self.replicas is None else f", replicas={self.replicas}")

    def take(self, **weights: Tensor) -> Bank:
        """Replace the initial parameters by given ones of equal names and shapes, [*R, K, ...]; return the bank."""
        shapes = {name: tuple(p.shape) for name, p in self.named_parameters()}
        if shapes != {name: tuple(value.shape) for name, value in weights.items()}:
            given = {name: tuple(value.shape) for name, value in weights.items()}
            raise ValueError(f"{type(self).__name__} needs parameters of the shapes {shapes}, not {given}")
        for name, value in weights.items():
            self.register_parameter(name, nn.Parameter(value))
        self.drawn = False
        return self

    def _drawn(self, first: int, last: int) -> dict[str, Tensor]:
        """Initial values of components ``first`` to ``last`` - 1: [*R, last - first, ...]."""
        each = [self.seeds] if isinstance(self.seeds, int) else list(self.seeds)
        span = range(first, max(last, first + 1))
        banks = [[self.draw(generator(seed, "init", self.name, k)) for k in span] for seed in each]
        stacked = {
            key: torch.stack([torch.stack([component[key] for component in bank]) for bank in banks])[:, : last - first]
            for key in banks[0][0]
        }
        return {key: value[0] if self.replicas is None else value for key, value in stacked.items()}

    @torch.no_grad()
    def grow(self, K: int) -> None:
        """Append components up to K. The parameters stay the same objects, so the optimiser keeps them."""
        for key, value in self._drawn(self.K, K).items():
            p = self.get_parameter(key)
            p.data = torch.cat([p.data, value.to(p)], dim=0 if self.replicas is None else 1)
        self.K = K

    @abstractmethod
    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        """Draw the initial parameters of one component, with a last map of zeros."""

    def forward(self, x: Any, coefficients: Tensor | None) -> Tensor:
        """Return sum_k c_k f_k(x), [*R, N, out]. coefficients: [*R, k], of the k leading components; None: ones.

        Override it if the sum can be computed without every f_k in memory.
        """
        f = self.components(x, None if coefficients is None else coefficients.shape[-1])
        if coefficients is not None:
            f = f * coefficients.to(f).reshape(*coefficients.shape, *(1,) * (f.dim() - coefficients.dim()))
        return f.sum(0 if self.replicas is None else 1)

    @abstractmethod
    def components(self, x: Any, count: int | None = None) -> Tensor:
        """Return f_k(x), without weights, of the ``count`` leading components (None: all K): [*R, count, N, out]."""

    def cuts(self) -> list[Cut]:
        """The leading dimension of each parameter."""
        return [Cut(self, n, 0, fold=n in self.last) for n, _ in self.named_parameters()]

    def needed(self, kept: Tensor) -> Tensor:
        """The components that must stay if those of ``kept``, bool [*R, K], do."""
        return kept

    def truncated(self, kept: Tensor) -> None:
        """Update the bank after its parameters were cut to the components ``kept``, bool [K]."""
        self.K = int(kept.sum())


def uniform(shape: Sequence[int], fan_in: int, source: torch.Generator) -> Tensor:
    """Draw uniformly on +-1/sqrt(fan_in), torch's default for linear and convolution layers."""
    return torch.empty(tuple(shape)).uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=source)


class OrderedSum(OrderedAxis):
    """Sum a bank with learned size: y(x) = sum_k c_k f_k(x), with c_k from a capacity.

    Args:
        bank: the components f_k.
        capacity: None for the plain sum over all components.

    Raises:
        ValueError: if the bank and the capacity differ in K or replicas.
        TypeError: if ``bank`` is not a Bank, or ``capacity`` neither a Capacity nor None.

    >>> import torch, ngn
    >>> class Sines(ngn.Bank):  # f_k(x) = a_k sin((k + 1) x)
    ...     last = ("a",)
    ...     def draw(self, source): return {"a": torch.zeros(1)}
    ...     def components(self, x, count=None):
    ...         a = self.a[:count, :, None]
    ...         return a * torch.sin(torch.arange(1.0, len(a) + 1)[:, None, None] * x)
    >>> ngn.OrderedSum(Sines(4, seeds=0), ngn.CountGate(4))(torch.ones(7, 1)).shape
    torch.Size([7, 1])
    """

    calibrating = False
    """Whether the next forward pass fixes the rms of normalised components."""

    def __init__(self, bank: Bank, capacity: Capacity | None) -> None:
        if not isinstance(bank, Bank) or not isinstance(capacity, Capacity | None):
            given = f"({type(bank).__name__}, {type(capacity).__name__})"
            raise TypeError(f"the arguments are OrderedSum(bank, capacity), not {given}")
        if capacity is not None and (bank.K, bank.replicas) != (capacity.K, capacity.replicas):
            raise ValueError(
                f"the bank has K={bank.K}, replicas={bank.replicas}, but its capacity has K={capacity.K}, "
                f"replicas={capacity.replicas}: make them equal"
            )
        super().__init__(None, bank.cuts())
        self.bank = bank
        self.capacity = capacity  # type: ignore[assignment]
        self.rms: Tensor | None = None
        """The fixed rms of normalised components, [*R, K]."""

    @property
    def K(self) -> int:
        return self.bank.K

    def component_parameters(self) -> Iterator[Tensor]:
        return self.bank.parameters()

    def forward(self, x: Any) -> Tensor:
        """Return y(x), [*R, N, out].

        Normalised components are divided by rms_k = sqrt(mean f_k^2 + eps) over the batch and the output's entries; eps
        keeps the gradient finite at f_k = 0.
        """
        if self.capacity is None:
            y: Tensor = self.bank(x, self.scale)
            return y
        if not self.called:
            self.called = True
        c, eps = self.capacity.coefficients(self.mode), self.capacity.rms_eps
        if eps is None:
            y = self.bank(x, c)
            return y
        k = c.shape[-1]
        f = self.bank.components(x, None if self.calibrating else k)
        # in training with gradients; a calibrated rms is a constant, which truncation folds into the last maps
        fixed = None if self.calibrating else self.rms
        rms = (f.square().mean((-2, -1)) + eps).sqrt() if fixed is None else fixed.to(f)
        if self.calibrating:
            self.rms, self.calibrating = rms.detach(), False
        return (f.narrow(-3, 0, k) * (c.to(f) / rms[..., :k])[..., None, None]).sum(-3)

    def before_step(self, step: int | None) -> None:
        self.capacity.before_step(step)
        if step is not None:
            self.rms, self.calibrating = None, False

    def grow(self, K: int) -> None:
        self.capacity.grow(K)
        self.bank.grow(K)

    def retained(self) -> tuple[Tensor, Tensor]:
        kept, c = super().retained()
        if self.capacity.rms_eps is not None:
            if self.rms is None:
                raise RuntimeError("normalised components need a fixed rms: first call learner.calibrate(x) on a batch")
            c = c / self.rms[..., : c.shape[-1]].to(c)
        return self.bank.needed(kept), c

    def shrunk(self, kept: Tensor) -> None:
        self.bank.truncated(kept)
        if self.capacity is not None:
            self.capacity.shrink(self.bank.K)
        self.rms = None if self.rms is None else self.rms[..., : self.bank.K]

    def closed(self, scale: Tensor | None) -> None:
        super().closed(scale)
        for name in self.bank.shared_biases:
            p = self.bank.get_parameter(name)
            self.bank.register_parameter(name, nn.Parameter(p.detach().sum(0, keepdim=True), p.requires_grad))
