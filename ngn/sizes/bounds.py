"""Bounds of learned sizes: how many components stay at least, and at most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ngn.axis import OrderedAxis
from ngn.budget import share
from ngn.tracing.found import listed, pattern_of

Bound = int | str | Mapping[str, int | str] | None
"""A number of components, a share of them such as "25%", or one of both for each pattern over the names of sizes."""


def counts_of(given: Bound, components: Mapping[str, int], what: str) -> dict[str, float]:
    """The number of components that ``given`` says for each size that it names.

    Args:
        components: the number of components of each size.
        what: the name of the argument, for messages.

    Raises:
        ValueError: if a pattern matches no size, or a value is no number or share.
    """
    counts: dict[str, float] = {}
    for pattern, value in (given if isinstance(given, Mapping) else {"**": given}).items():
        if not (names := [name for name in components if pattern_of(pattern).fullmatch(name)]):
            raise ValueError(f"{what}=: {pattern!r} is the name of no size; there are {listed([*components])}")
        part = share(value, "a size's components") if isinstance(value, str) else None
        if part is None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(
                f"{what}=: {value!r} is no number of components: give one such as 4, or a share as in '25%'"
            )
        counts |= {name: float(value) if part is None else part * components[name] for name in names}  # type: ignore[arg-type]
    return counts


def bound(axes: Sequence[OrderedAxis], at_least: Bound, at_most: Bound) -> None:
    """Set the bounds of the ``axes``; arguments as for ``learn_sizes``.

    Raises:
        ValueError: if they leave no count, or the capacity of a size cannot keep to them.
    """
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
