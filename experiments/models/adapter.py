"""Adapters with learned widths after frozen layers: h + sum_k c_k U_k phi(D_k h)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ngn.components.low_rank import Bottleneck, replace
from ngn.methods.base import Capacity


class Adapter(Bottleneck):
    """Compute h + sum_k c_k U_k phi(D_k h), where h is the output of a layer and phi is the GELU.

    If the layer returns a tuple, h is its first entry; the adapter passes the other entries on. The adapter also passes
    on attributes that it does not have itself, because models read attributes of their layers.

    Args:
        layer: the layer that returns h.
        features: entries of h.
        capacity: capacity of the K components.
        seed, name: they and k determine the initial D_k, uniform on +-1/sqrt(features). U starts at zero.
        width: units per component.

    >>> import torch, ngn
    >>> model = Adapter(torch.nn.Linear(6, 6), 6, ngn.CountGate(4, t0=1.8, delta=-0.5), seed=0, name="0", width=2)
    >>> ngn.Learner(model).deploy(example=torch.randn(5, 6)).down.shape
    torch.Size([4, 6])
    """

    def __init__(
        self, layer: nn.Module, features: int, capacity: Capacity, seed: int, name: str, width: int = 1
    ) -> None:
        super().__init__(layer, (features, features), capacity, seed, name, width)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "base" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(self.base, name)

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the layer's output with its (first) tensor, [..., features], adapted."""
        y = self.base(x, *args, **kwargs)
        if isinstance(y, tuple):
            return (self._adapted(y[0]), *y[1:])
        return self._adapted(y)

    def _adapted(self, h: Tensor) -> Tensor:
        return h + self.raised(F.gelu(self.lowered(h)))


def attach_adapters(
    model: nn.Module,
    layers: Sequence[str],
    features: int,
    capacity: Callable[[int], Capacity],
    seed: int,
    width: int = 1,
) -> list[str]:
    """Add an adapter after layers of ``model``, in place. The other parameters do not change.

    Args:
        layers: names of modules that return h [..., features], or a tuple with h first.
        features: entries of h.
        capacity: makes the capacity of layer number 0, 1, ...
        seed: seed of the adapters.
        width: units per component.

    Returns:
        the names of the layers. If they follow the order of the model, so do the learner's counts.

    Raises:
        ValueError: if a layer is missing.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)).requires_grad_(False)
    >>> attach_adapters(model, ["0", "1"], 6, lambda number: ngn.CountGate(4, t0=1.2, delta=-0.5), seed=0)
    ['0', '1']
    >>> ngn.Learner(model).count()
    tensor([1, 1])
    """
    for number, name in enumerate(layers):

        def made(layer: nn.Module, number: int = number, name: str = name) -> Adapter:
            return Adapter(layer, features, capacity(number), seed, name, width)

        replace(model, name, made)
    return list(layers)
