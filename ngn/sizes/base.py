"""What can be sized in a module that exists: widths, heads, channels, ranks, layers.

A size finds the tensors that have its axis (their cuts, ``ngn/axis.py``) and the module that consumes the activation
with it. That module gets the axis as the child ``size`` and a hook that calls it (``hooked.py``), so that the
activation is multiplied and no weight is: frozen weights need no gradient. Truncation removes both.
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

from ngn.axis import Counts, Cut, is_conv1d
from ngn.methods.base import Capacity
from ngn.methods.ngn import COMMIT, CountGate
from ngn.sizes.hooked import HookedAxis, call_before

SATURATED = 16.0
"""Logit of a gate that float32 cannot tell from an open one: sigmoid(16) = 1 - 1e-7."""
REACH = 32
"""Components that a boundary crosses in a usual training; over more of them it has a stride, which makes it so many."""
MIXING = (nn.LocalResponseNorm, nn.CrossMapLRN2d, nn.Softmax2d, nn.ChannelShuffle)
ALONG = (nn.Softmax, nn.Softmin, nn.LogSoftmax, nn.GLU)
"""What mixes the entries of its dimension."""
ByImportance = Sequence[int] | Callable[[str, int], Sequence[int]] | None
Maker = Callable[[str, int], Capacity]


class Size(ABC):
    """One kind of learned size.

    Args:
        K: components, which has to divide the size; None for as many as there can be.
        round_to: each component has a multiple of so many entries, so that the size that is learned is one, too.
        by_importance: numbers of the module's components, the most important first: a permutation of 0 ... K - 1, or
            what gives it for (the module's name, K). None: in the order of the module.
        gate: settings of its :class:`~ngn.methods.ngn.CountGate`, before those of all sizes.

    A kind of size of one's own is a subclass with a method :meth:`attach`, which calls :meth:`axis` with the tensors
    that have the components.

    >>> import torch, ngn
    >>> class Hidden(ngn.Size):  # the features between two linear maps
    ...     unit = "features"
    ...     def attach(self, model, name, make):
    ...         up, down = (model.get_submodule(f"{name}.{part}".lstrip(".")) for part in "02")
    ...         K = self.divided(name, up.out_features)
    ...         width = up.out_features // K
    ...         self.axis(name, K, make, [*ngn.outputs(up, width), *ngn.inputs(down, width)], [down])
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> learner = ngn.learn_sizes(model, {"": Hidden(4, t0=1.0)}, example=torch.randn(5, 3))
    >>> print(learner.report().groups[0])
    model: 4 -> 2 features, 8 -> 4, -24 parameters (t = 1.00)
    """

    unit = "components"

    def __init__(
        self, K: int | None = None, by_importance: ByImportance = None, round_to: int = 1, **gate: Any
    ) -> None:
        if K is not None and (isinstance(K, bool) or not isinstance(K, int) or K < 1):
            raise ValueError(f"{type(self).__name__} takes how many components there are, 1 or more, not {K!r}")
        if isinstance(round_to, bool) or not isinstance(round_to, int) or round_to < 1:
            raise ValueError(f"{type(self).__name__}: round_to is a number of entries, 1 or more, not {round_to!r}")
        if isinstance(by_importance, (Tensor, np.ndarray)):
            by_importance = by_importance.tolist()
        if not (by_importance is None or callable(by_importance) or isinstance(by_importance, Sequence)):
            raise TypeError(
                f"{type(self).__name__}: by_importance takes a permutation such as [2, 0, 1], not {by_importance!r}"
            )
        self.K, self.by_importance, self.round_to, self.settings = K, by_importance, round_to, gate

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
        """Put a learned size on the module ``name`` of ``model``: call :meth:`axis` with the tensors that have it.

        Args:
            make: makes the capacity of (name, K); :meth:`axis` takes it.

        Raises:
            ValueError: if the module has no such size, or K does not divide it.
        """

    def axis(
        self,
        name: str,
        K: int,
        make: Maker,
        cuts: Sequence[Cut],
        consumers: Sequence[nn.Module] = (),
        counts: Counts = (),
        dim: int = -1,
    ) -> HookedAxis:
        """A learned size of K components.

        Args:
            name, make: what :meth:`attach` was given.
            cuts: all tensors that have the components, as of :class:`~ngn.axis.OrderedAxis`; ``ngn.outputs`` and
                ``ngn.inputs`` name those of maps, convolutions and normalisations.
            consumers: modules whose first input is the activation with the axis: it is multiplied there. Without any,
                :meth:`attach` says itself where the axis is called.
            counts: (module, attribute) pairs that shrink with the count.
            dim: the dimension of the activation; linear maps and convolutions say theirs themselves.

        Raises:
            ValueError: if a consumer has an axis already.
        """
        order = self.by_importance(name, K) if callable(self.by_importance) else self.by_importance
        axis = HookedAxis(make(name, K), cuts, counts, dim, order, name or "model", self.unit)
        if consumers:
            call_before(axis, *consumers)
        return axis

    def divided(self, name: str, size: int) -> int:
        """The number of components K that ``size`` entries have.

        Raises:
            ValueError: if K does not divide them, or its components are no multiples of ``round_to``.
        """
        K = max(1, size // self.round_to) if self.K is None else self.K
        if size % K or size // K % self.round_to:
            least = [k for k in range(1, size + 1) if size % k == 0 and size // k % self.round_to == 0]
            near = ", ".join(map(str, sorted(sorted(least, key=lambda k: abs(k - K))[:4])))
            multiples = f" into multiples of {self.round_to}" if self.round_to > 1 else ""
            raise ValueError(
                f"{name or 'the model'}: {K} {self.unit} do not divide {size}{multiples}; {near or 'none'} do"
            )
        return K


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
