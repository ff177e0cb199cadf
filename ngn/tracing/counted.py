"""Integers that remember the attributes of modules that they come from, such as a number of heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ngn.cuts import is_conv1d
from ngn.tracing.dims import Dim, Leaf, Product, resolved


class AttributeInt(int):
    """An attribute, or a product of attributes.

    Attributes:
        factors: (module, name, value) of each.
        ratios: attributes that the program divides, such as numbers of query heads and key heads, which shrink
            together.
    """

    factors: tuple[tuple[nn.Module, str, int], ...]
    ratios: list[tuple[AttributeInt, AttributeInt]]

    @classmethod
    def of(
        cls, value: int, ratios: list[tuple[AttributeInt, AttributeInt]], *factors: tuple[nn.Module, str, int]
    ) -> AttributeInt:
        """``value`` with its ``factors``, and the ``ratios`` of the program."""
        made = cls(value)
        made.factors, made.ratios = factors, ratios
        return made

    def __mul__(self, other: Any) -> Any:
        value = int(self) * other
        if not isinstance(other, int):
            return value
        return AttributeInt.of(value, self.ratios, *self.factors, *getattr(other, "factors", ()))

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, AttributeInt):
            self.ratios.append((self, other))
        return int(self) // other

    def __rmul__(self, other: Any) -> Any:
        return self * other


@contextmanager
def counting(model: nn.Module) -> Iterator[None]:
    """Let the integer attributes of the modules of ``model`` that are not torch's remember what they are."""
    changed: list[tuple[nn.Module, str, int]] = []
    ratios: list[tuple[AttributeInt, AttributeInt]] = []
    for module in model.modules():
        if type(module).__module__.startswith("torch.") or is_conv1d(module):  # cutting sets their attributes
            continue
        bases = (kind for kind in type(module).__mro__ if kind.__module__.startswith("torch."))
        of_torch = {name for kind in bases for name in getattr(kind, "__constants__", ())}  # these, too
        for name, value in vars(module).items():
            if type(value) is int and value > 1 and name not in of_torch:
                changed.append((module, name, value))
    for module, name, value in changed:
        vars(module)[name] = AttributeInt.of(value, ratios, (module, name, value))
    try:
        yield
    finally:
        for module, name, value in changed:
            if isinstance(vars(module).get(name), AttributeInt):
                vars(module)[name] = value


def attributes_of(leaf: Leaf, counted: list[tuple[AttributeInt, Dim]]) -> list[tuple[nn.Module, str]]:
    """The attributes that the program takes for lengths with ``leaf``, and that so shrink with it."""
    attributes: dict[tuple[int, str], tuple[nn.Module, str]] = {}
    for size, dim in counted:
        dim = resolved(dim)
        parts = dim.factors if isinstance(dim, Product) else (dim,)
        if leaf not in parts:
            continue
        fitting = [each for each in size.factors if each[2] % leaf.size == 0]
        exact = [each for each in fitting if each[2] == leaf.size]
        if len(size.factors) > 1 and len(exact) > 1:  # heads and entries of one number: the first are the outer ones
            number = [part.size for part in parts].index(leaf.size)
            exact = exact[min(number, len(exact) - 1) :][:1]
        for module, name, _ in exact[:1] or fitting[:1]:
            attributes[id(module), name] = module, name
    for pair in counted[0][0].ratios if counted else ():
        both = {(id(module), name): (module, name) for size in pair for module, name, value in size.factors}
        if both.keys() & attributes.keys() and all(int(size) % leaf.size == 0 for size in pair):
            attributes |= both
    return [*attributes.values()]
