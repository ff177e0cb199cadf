"""What can be sized in a module that exists: widths, heads, channels, ranks, layers.

A size finds the tensors that have its axis (their cuts, ``ngn/axis.py``) and the module that consumes the activation
with it. That module gets the axis as the child ``size`` and a hook that calls it, so that the activation is multiplied
and no weight is: frozen weights need no gradient. Truncation removes both.
"""

from __future__ import annotations

import difflib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ngn.axis import Counts, Cut, OrderedAxis, is_conv1d
from ngn.methods.base import Capacity
from ngn.methods.ngn import COMMIT, CountGate

SATURATED = 16.0
"""Logit of a gate that float32 cannot tell from an open one: sigmoid(16) = 1 - 1e-7."""
REACH = 32
"""Components that a boundary crosses in a usual training; over more of them it has a stride, which makes it so many."""
MIXING = (nn.LocalResponseNorm, nn.CrossMapLRN2d, nn.Softmax2d, nn.ChannelShuffle)
ALONG = (nn.Softmax, nn.Softmin, nn.LogSoftmax, nn.GLU)
"""What mixes the entries of its dimension."""
Places = Sequence[int] | Callable[[str, int], Sequence[int]] | None
Maker = Callable[[str, int], Capacity]


class Size(ABC):
    """One kind of learned size.

    Args:
        K: components, which has to divide the size; None for as many as there can be.
        round_to: each component has a multiple of so many entries, so that the size that is learned is one, too.
        places: component k, in the order of importance, is number ``places[k]`` of the module: a permutation of 0 ...
            K - 1, or what gives it for (the module's name, K). None: in the order of the module.
        gate: settings of its :class:`~ngn.methods.ngn.CountGate`, before those of all sizes.
    """

    unit = "components"

    def __init__(self, K: int | None = None, places: Places = None, round_to: int = 1, **gate: Any) -> None:
        if K is not None and (isinstance(K, bool) or not isinstance(K, int) or K < 1):
            raise ValueError(f"{type(self).__name__} takes how many components there are, 1 or more, not {K!r}")
        if isinstance(round_to, bool) or not isinstance(round_to, int) or round_to < 1:
            raise ValueError(f"{type(self).__name__}: round_to is a number of entries, 1 or more, not {round_to!r}")
        if isinstance(places, (Tensor, np.ndarray)):
            places = places.tolist()
        if not (places is None or callable(places) or isinstance(places, Sequence)):
            raise TypeError(f"{type(self).__name__}: places are a permutation such as [2, 0, 1], not {places!r}")
        self.K, self.places, self.round_to, self.settings = K, places, round_to, gate

    def gate(self, K: int, common: dict[str, Any]) -> CountGate:
        """The gate of weights that exist: unit ordering weights and, without a ``t0``, all gates open."""
        usual = {"r": 1.0, "delta": 0.5, "beta": (4.0, 15.0), "commit": COMMIT, "stride": max(1.0, K / REACH)}
        settings: dict[str, Any] = usual | common | self.settings
        known = [name for name in inspect.signature(CountGate).parameters if name != "K"]
        for name in settings:
            if name not in known:
                near = ", ".join(difflib.get_close_matches(name, known)) or ", ".join(known)
                raise TypeError(f"a gate has no setting {name!r}; there is {near}")
        full = K - 1 - settings["delta"] + SATURATED / settings["beta"][0]
        return CountGate(K, **({"t0": full} | settings))

    @abstractmethod
    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        """Put a learned size on the module ``name`` of ``model``.

        Raises:
            ValueError: if the module has no such size, or K does not divide it.
        """

    def axis(self, name: str, K: int, make: Maker, cuts: list[Cut], counts: Counts = (), dim: int = -1) -> OrderedAxis:
        places = self.places(name, K) if callable(self.places) else self.places
        axis = OrderedAxis(make(name, K), cuts, counts, dim, places, name or "model", self.unit)
        axis.hooked = True
        return axis

    def _divided(self, name: str, size: int) -> int:
        """K of ``size`` entries."""
        K = max(1, size // self.round_to) if self.K is None else self.K
        if size % K or size // K % self.round_to:
            least = [k for k in range(1, size + 1) if size % k == 0 and size // k % self.round_to == 0]
            near = ", ".join(map(str, sorted(sorted(least, key=lambda k: abs(k - K))[:4])))
            multiples = f" into multiples of {self.round_to}" if self.round_to > 1 else ""
            raise ValueError(
                f"{name or 'the model'}: {K} {self.unit} do not divide {size}{multiples}; {near or 'none'} do"
            )
        return K


def hook(axis: OrderedAxis, *consumers: nn.Module) -> None:
    """Have ``axis`` called on what each of the ``consumers`` is given; it is a child of the first."""
    for consumer in consumers:
        if hasattr(consumer, "size") or taken_by(consumer) is not None:
            raise ValueError(
                f"{axis.name or 'the model'}: another size ends at the same module. Either two of these patterns name "
                "it, or the model has learned sizes already: go on with that learner, or build the model anew"
            )
        consumer.register_forward_pre_hook(axis.before, with_kwargs=True)
    consumers[0].add_module("size", axis)


def taken_by(consumer: nn.Module) -> OrderedAxis | None:
    """The axis whose activation ``consumer`` takes; None if no hook calls one."""
    for called in consumer._forward_pre_hooks.values():
        if getattr(called, "__func__", None) is OrderedAxis.before:
            return getattr(called, "__self__", None)
    return None


def by_unit(parts: Sequence[nn.Module], units: int, name: str, dims: Sequence[int] = ()) -> list[nn.Module]:
    """Those of ``parts`` that hold a value for each of the ``units`` that are sized, and compute each by itself.

    Args:
        dims: the dimension of the units, where ``parts`` are known to be what the activation goes through.

    Raises:
        ValueError: if a part takes means or sums over the units.
    """
    for part in parts:
        if dims and (isinstance(part, MIXING) or (isinstance(part, ALONG) and part.dim in (*dims, None))):
            raise ValueError(f"{name}: a {type(part).__name__} mixes the {units} that are sized, so no cut fits")
        shape = getattr(part, "normalized_shape", (getattr(part, "num_channels", None),))
        if isinstance(part, (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)) and shape[-1] == units:
            raise ValueError(
                f"{name}: a {type(part).__name__} takes means over the {units} that are sized, so no cut fits"
            )
    sizes = [(part, getattr(part, "num_features", getattr(part, "num_parameters", None))) for part in parts]
    return [part for part, size in sizes if isinstance(part, (_NormBase, nn.PReLU)) and size == units]


def is_linear(module: nn.Module | None) -> bool:
    """Whether it is a linear map."""
    return module is not None and (isinstance(module, nn.Linear) or is_conv1d(module))


def entries(map_: Any) -> tuple[int, int]:
    """How many entries a linear map takes and gives."""
    return (map_.nx, map_.nf) if is_conv1d(map_) else (map_.in_features, map_.out_features)


def linear(module: nn.Module, name: str, path: str) -> nn.Module:
    """The linear map ``path`` of ``module``, which is called ``name``."""
    try:
        found = module.get_submodule(path)
    except AttributeError:
        raise ValueError(f"{name} has no module {path}") from None
    if not is_linear(found):
        raise ValueError(f"{name}.{path} is a {type(found).__name__}, not a linear map")
    return found


def has(module: nn.Module, paths: Sequence[str]) -> bool:
    names = dict(module.named_modules())
    return all(is_linear(names.get(path)) for path in paths)
