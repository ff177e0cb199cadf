"""The base of the kinds of size: widths, heads, channels, ranks, layers; and bounds of sizes.

A size finds the tensors with its axis (their cuts, ``ngn/axis.py``) and the module that consumes the activation with
it. That module gets the axis as its child ``size`` and hooks that call it (``hooked.py``). They multiply its weight or
the activation, whichever costs less. Truncation removes the axis and the hooks.
"""

from __future__ import annotations

import difflib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.budget import share
from ngn.cuts import Counts, Cut
from ngn.learner.hooked import HookedAxis
from ngn.methods.base import Capacity
from ngn.methods.ngn import COMMIT, CountGate
from ngn.tracing.found import listed, pattern_of

SATURATED = 16.0
"""Logit at which a gate counts as open: sigmoid(16) = 1 - 1e-7, one up to float32 rounding."""
REACH = 32
"""Components that a boundary crosses in a usual training. With more of them, it moves in strides of K / REACH."""
ARGUMENTS = ("sizes", "budget", "at_least", "at_most", "example", "frozen", "by_importance", "calibration", "loss")
"""Arguments of ``learn_sizes``, which takes settings of gates beside them."""
ByImportance = Sequence[int] | Callable[[str, int], Sequence[int]] | None
Maker = Callable[[str, int], Capacity]
Bound = int | str | Mapping[str, int | str] | None
"""A number of components, a share of them such as "25%", or one of both for each pattern over the names of sizes."""


class Indivisible(ValueError):
    """The number of components does not divide a size."""


class Size(ABC):
    """One kind of learned size.

    Args:
        K: number of components, which must divide the size; None for as many as possible.
        round_to: entries of each component, and so the learned size, are a multiple of this.
        by_importance: component numbers, the most important first: a permutation of 0 ... K - 1, or one of all units,
            which are then grouped into components; or a function (module name, K) → permutation. None:
            ``by_importance`` of ``learn_sizes``.
        shared: all modules of this size have one boundary, and so equal counts. Each keeps its own best units.
        gate: settings of this size's :class:`~ngn.methods.ngn.CountGate`; they override those of ``learn_sizes``.

    To add a kind of size, write a subclass whose :meth:`attach` calls :meth:`axis` with the tensors to cut.

    >>> import torch, ngn
    >>> from ngn.cuts import inputs, outputs
    >>> class Hidden(ngn.Size):  # the features between two linear maps
    ...     def attach(self, model, name, make):
    ...         self.axis(name, 8, make, [*outputs(model[0]), *inputs(model[2])], [model[2]])
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> print(ngn.learn_sizes(model, {"": Hidden(t0=1.0)}, example=torch.randn(5, 3)).report().groups[0])
    model: 8 -> 2 components, -36 parameters
    """

    unit = "components"
    tried = True
    """Whether the size has to have a trial on an example."""

    def __init__(
        self,
        K: int | None = None,
        by_importance: ByImportance = None,
        round_to: int = 1,
        shared: bool = False,
        **gate: Any,
    ) -> None:
        for name, value, what in (("K", K, "components"), ("round_to", round_to, "entries")):
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not whole and (name, value) != ("K", None):
                kind = f"{type(self).__name__}: {name}={value!r}"
                raise ValueError(f"{kind} is not a number of {what}: give a whole number, 1 or more")
        if isinstance(by_importance, (Tensor, np.ndarray)):
            by_importance = by_importance.tolist()
        if not (by_importance is None or callable(by_importance) or isinstance(by_importance, Sequence)):
            raise TypeError(
                f"{type(self).__name__}: by_importance={by_importance!r} is not a permutation such as [2, 0, 1]"
            )
        self.K, self.by_importance, self.round_to, self.settings = K, by_importance, round_to, gate
        self.shared = shared

    def gate(self, K: int, common: dict[str, Any]) -> CountGate:
        """Make the gate of this size: settings of its own, then those in ``common``, then the usual ones."""
        return usual_gate(K, common | self.settings)

    def takes(self, module: nn.Module) -> bool:
        """Whether a pattern with ``*`` means ``module``; modules that it only matches are left as they are."""
        return True

    @abstractmethod
    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        """Give the module ``name`` of ``model`` a learned size: call :meth:`axis` with the tensors to cut.

        ``make`` makes the capacity of (name, K); pass it on to :meth:`axis`. It is a ValueError if the module has no
        such size, or K does not divide it.
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
        units: int | None = None,
    ) -> HookedAxis:
        """Make a learned size of K components; ``name`` and ``make`` are the arguments of :meth:`attach`.

        Args:
            cuts: every tensor with these components; ``ngn.cuts.outputs`` and ``ngn.cuts.inputs`` list them.
            consumers: modules whose first input is the activation with the axis; it is multiplied there. Without any,
                :meth:`attach` has to call the axis itself. It is a ValueError if one already has an axis.
            counts: (module, attribute) pairs that shrink with the count.
            dim: dimension of the axis in the activation; known for linear layers and convolutions.
            units: number of units, a multiple of K, that can be removed one by one; None for K. Sorting by importance
                puts any of them together into a component.
        """
        order = self.order(name, K)
        axis = HookedAxis(make(name, K), cuts, counts, dim, order, name or "model", self.unit, units=units or K)
        if consumers:
            axis.attach(*consumers)
        return axis

    def order(self, name: str, K: int) -> Sequence[int] | None:
        """The numbers of K components, the most important first; None for the order of the module."""
        return self.by_importance(name, K) if callable(self.by_importance) else self.by_importance

    def divided(self, name: str, size: int, multiple: int | None = None) -> int:
        """Return K, the number of components of ``size`` entries; ``multiple``, or ``round_to``, divides each.

        It is an :class:`Indivisible` if K does not divide ``size``, or a component's entries are not such a multiple.
        """
        multiple = multiple or self.round_to
        K = max(1, size // multiple) if self.K is None else self.K
        if size % K or size // K % multiple:
            possible = [k for k in range(1, size + 1) if size % k == 0 and size // k % multiple == 0]
            near = ", ".join(map(str, sorted(sorted(possible, key=lambda k: abs(k - K))[:4])))
            multiples = f" into multiples of {multiple}" if multiple > 1 else ""
            advice = f"choose K from {near}" if near else "no K does: choose another round_to"
            raise Indivisible(f"{name or 'the model'}: {K} {self.unit} do not divide {size}{multiples}; {advice}")
        return K


def usual_gate(K: int, settings: Mapping[str, Any]) -> CountGate:
    """The gate of existing weights: ordering weights are one and, without a ``t0``, all gates are open."""
    usual = {"r": 1.0, "delta": 0.5, "beta": (4.0, 15.0), "commit": COMMIT, "stride": max(1.0, K / REACH)}
    own: dict[str, Any] = {**usual, **settings}
    refuse_unknown(own)
    full = K - 1 - own["delta"] + SATURATED / own["beta"][0]
    return CountGate(K, **({"t0": full} | own))


def refuse_unknown(settings: Iterable[str]) -> None:
    """Raise a TypeError if a gate has no such setting."""
    known = [name for name in inspect.signature(CountGate).parameters if name != "K"]
    for name in settings:
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name, [*known, *ARGUMENTS])) or ", ".join(known)
            raise TypeError(f"a gate has no setting {name!r}; did you mean {near}?")


def counts_of(given: Bound, components: Mapping[str, int], what: str) -> dict[str, float]:
    """The number of components that ``given``, the argument ``what``, says for each size that it names.

    ``components``: the number of components of each size. It is a ValueError if a pattern matches no size, or a value
    is no number or share.
    """
    counts: dict[str, float] = {}
    for pattern, value in (given if isinstance(given, Mapping) else {"**": given}).items():
        if not (names := [name for name in components if pattern_of(str(pattern)).fullmatch(name)]):
            raise ValueError(f"{what}=: {pattern!r} is the name of no size; there are {listed([*components])}")
        part = share(value, "a size's components") if isinstance(value, str) else None
        if part is None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(
                f"{what}=: {value!r} is no number of components: give one such as 4, or a share as in '25%'"
            )
        counts |= {name: float(value) if part is None else part * components[name] for name in names}  # type: ignore[arg-type]
    return counts


def bound(axes: Sequence[OrderedAxis], at_least: Bound, at_most: Bound) -> None:
    """Set bounds as for ``learn_sizes``; a ValueError if they leave no count, or a capacity cannot keep to them."""
    components = {axis.name: axis.K for axis in axes}
    least = {} if at_least is None else counts_of(at_least, components, "at_least")
    most = {} if at_most is None else counts_of(at_most, components, "at_most")
    for axis in (axis for axis in axes if axis.name in least or axis.name in most):
        size = axis.capacity
        if not size.takes_bounds:
            raise ValueError(
                f"{axis.name}: a {type(size).__name__} keeps to no bounds: leave at_least= and at_most= out"
            )
        size.least = max(size.least, min(axis.K, math.ceil(least.get(axis.name, 0.0) - 1e-9)))
        if axis.name in most:
            size.most = min(axis.K, math.floor(most[axis.name] + 1e-9), size.most or axis.K)
        if size.most is not None and size.most < max(1, size.least):
            raise ValueError(
                f"{axis.name}, of {axis.K} components, has at most {size.most}, but at least {max(1, size.least)}"
            )
