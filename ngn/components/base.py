"""Ordered components: a bank of functions f_0, f_1, ... of one structure, and their gated sum.

Shapes: ``*R`` is nothing (one model) or one leading replica axis; k is the number of leading components in use, at most
K; N is the number of samples.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ngn.methods.base import Capacity, Mode
from ngn.streams import generator

Seeds = int | Sequence[int]
"""One seed for one model, or one for each replica of a stack."""


class Bank(nn.Module, ABC):
    """K ordered components whose parameters are stacked as [*R, K, ...].

    Component k of a replica is drawn from its seed, the bank's name and k alone: neither K nor the other replicas
    change it. The last map of each component starts at zero, so that every f_k is zero at the start and yet receives
    gradients; a bank that starts otherwise says so. Leading components without parameters, such as an identity f_0, are
    left out of the stored axis.
    """

    def __init__(self, K: int, seeds: Seeds, name: str | int = 0) -> None:
        super().__init__()
        self.K, self.seeds, self.name = K, seeds, name
        self.replicas = None if isinstance(seeds, int) else len(seeds)
        for key, value in self._drawn(0, K).items():
            self.register_parameter(key, nn.Parameter(value))

    def _drawn(self, first: int, last: int) -> dict[str, Tensor]:
        """Components ``first`` to ``last`` - 1 as they start: [*R, last - first, ...]."""
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
        """Append components until there are K. The parameters stay the same objects, so an optimiser keeps them."""
        for key, value in self._drawn(self.K, K).items():
            p = self.get_parameter(key)
            p.data = torch.cat([p.data, value.to(p)], dim=0 if self.replicas is None else 1)
        self.K = K

    @abstractmethod
    def draw(self, source: torch.Generator) -> dict[str, Tensor]:
        """The initial parameters of one component, the last map zero."""

    @abstractmethod
    def forward(self, x: Any, coefficients: Tensor) -> Tensor:
        """sum_k c_k f_k(x) over the k leading components. coefficients: [*R, k]; returns [*R, N, out]."""

    @abstractmethod
    def components(self, x: Any, count: int | None = None) -> Tensor:
        """Every f_k(x), unweighted, of the ``count`` leading components (None: all K): [*R, count, N, out]."""

    @abstractmethod
    def truncated(self, kept: Tensor, weights: Tensor, replica: int | None) -> nn.Module:
        """An ordinary module of the components ``kept`` (ascending indices), ``weights`` folded into their last maps.

        Args:
            kept: int64 [count]; for a prefix 0 ... count - 1.
            weights: [count], what each kept component is multiplied by for good.
            replica: which model of a stack; None for a single model.
        """

    def parameter(self, name: str, replica: int | None, kept: Tensor) -> Tensor:
        """A copy of the parameter ``name`` of the components ``kept``: [len(kept), ...]."""
        value: Tensor = getattr(self, name).detach()
        return (value if replica is None else value[replica]).index_select(0, kept.to(value.device))


def uniform(shape: Sequence[int], fan_in: int, source: torch.Generator) -> Tensor:
    """Uniform on +-1/sqrt(fan_in), torch's default for linear and convolution layers."""
    return torch.empty(tuple(shape)).uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=source)


class OrderedSum(nn.Module):
    """y(x) = sum_k c_k f_k(x), with c_k from a capacity: one learned size over one bank.

    Raises:
        ValueError: if the bank and the capacity disagree about K or the replica axis.
    """

    def __init__(self, bank: Bank, capacity: Capacity) -> None:
        super().__init__()
        if (bank.K, bank.replicas) != (capacity.K, capacity.replicas):
            raise ValueError(
                f"the bank has K={bank.K}, replicas={bank.replicas}; its capacity K={capacity.K}, "
                f"replicas={capacity.replicas}"
            )
        self.bank, self.capacity = bank, capacity
        self.mode: Mode = "soft"
        self.calibrating = False
        self.rms: Tensor | None = None

    def forward(self, x: Any) -> Tensor:
        """[*R, N, out]"""
        c = self.capacity.coefficients(self.mode)
        if self.capacity.rms_eps is None:
            y: Tensor = self.bank(x, c)
            return y
        return self._normalised(x, c, self.capacity.rms_eps)

    def _normalised(self, x: Any, c: Tensor, eps: float) -> Tensor:
        """sum_k c_k f_k / rms_k, rms_k = sqrt(mean f_k^2 + eps) over the batch and the entries of the output.

        In training the batch's own rms is used, and gradients pass through it. After :meth:`CapacityLearner.calibrate`
        it is that of the calibration batch, a constant, which truncation folds into the components' last maps.
        """
        k = c.shape[-1]
        if self.calibrating:
            f = self.bank.components(x)
            self.rms = _rms(f, eps).detach()
            f = f.narrow(-3, 0, k)
        else:
            f = self.bank.components(x, k)
        rms = _rms(f, eps) if self.rms is None else self.rms[..., :k].to(f)
        return (f * (c.to(f) / rms)[..., None, None]).sum(-3)

    def penalty(self) -> Tensor:
        """What the capacity adds to the task loss, [*R]."""
        own, prior = self.capacity.penalty(), self.capacity.body_penalty(self.bank.parameters())
        return own if prior is None else own + prior

    def activity_penalty(self) -> Tensor | None:
        """What the last forward pass adds to the task loss by what it computed: [*R], None for nothing."""
        return None

    def before_step(self, step: int | None) -> None:
        """Called before the forward passes of a step; with None before the trained model is evaluated."""
        self.capacity.before_step(step)
        if step is not None:
            self.rms = None

    def make_room(self) -> bool:
        """Allocate the components that the capacity wants; whether there were any."""
        K = self.capacity.wanted()
        if K == self.bank.K:
            return False
        self.capacity.grow(K)
        self.bank.grow(K)
        return True

    def deploy(self, replica: int | None = None) -> nn.Module:
        """The retained components as an ordinary module."""
        if (replica is None) != (self.bank.replicas is None):
            raise ValueError("name the replica to deploy of a stack, and none of a single model")
        open_, weights = self.capacity.kept(), self.capacity.coefficients("hard").detach()
        if self.capacity.rms_eps is not None:
            if self.rms is None:
                raise RuntimeError("normalised components are deployed by the rms of a batch: call calibrate(x) first")
            weights = weights / self.rms[..., : weights.shape[-1]].to(weights)
        if replica is not None:
            open_, weights = open_[replica], weights[replica]
        kept = open_.nonzero().flatten()
        return self.bank.truncated(kept, weights[kept], replica)


def _rms(f: Tensor, eps: float) -> Tensor:
    """sqrt(mean f_k^2 + eps) of [*R, k, N, out]: [*R, k]. eps under the root keeps its gradient finite at f_k = 0."""
    return (f.square().mean((-2, -1)) + eps).sqrt()


def deploy(model: nn.Module, replica: int | None = None) -> nn.Module:
    """A copy of ``model`` in which every part that knows how to deploy is replaced by its truncated, ordinary form.

    The groups' parameters are not copied first, so this needs no more memory than its result. Parts without learned
    size are copied as they are; those with a replica axis of their own have to offer ``deploy(replica)``.
    """
    own = getattr(model, "deploy", None)
    if callable(own):
        deployed = own(replica)
        assert isinstance(deployed, nn.Module)
        return deployed
    shell = copy.copy(model)
    shell._parameters = copy.deepcopy(model._parameters)
    shell._buffers = copy.deepcopy(model._buffers)
    shell._modules = {name: None if part is None else deploy(part, replica) for name, part in model._modules.items()}
    return shell
