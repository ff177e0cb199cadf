"""Integers that remember the attributes of modules that they come from, such as a number of heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from ngn.cuts import is_conv1d
from ngn.tracing.dims import Dim, Leaf, Product, resolved

SIZES: tuple[tuple[type[nn.Module], frozenset[str]], ...] = (
    (nn.Linear, frozenset({"in_features", "out_features"})),
    (nn.Embedding, frozenset({"num_embeddings", "embedding_dim"})),
    (nn.EmbeddingBag, frozenset({"num_embeddings", "embedding_dim"})),
    (_ConvNd, frozenset({"in_channels", "out_channels", "groups"})),
    (_NormBase, frozenset({"num_features"})),
    (nn.PReLU, frozenset({"num_parameters"})),
    (nn.GroupNorm, frozenset({"num_channels", "num_groups"})),
)
"""The integers that a cut sets (``ngn/cut/modules.py``), also of classes that other people derive from these."""


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
        set_elsewhere = frozenset[str]().union(*(names for kind, names in SIZES if isinstance(module, kind)))
        for name, value in vars(module).items():
            if type(value) is int and value > 1 and name not in set_elsewhere:
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
