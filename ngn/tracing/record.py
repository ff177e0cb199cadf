"""What a trace has seen: dimensions of tensors, products over them, the modules at work, numbers that are lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from ngn.checks import places_in, value_of
from ngn.cuts import is_conv1d
from ngn.tracing.dims import Dim, Leaf, Product, equal, fix, leaves, new, resolved, unite


@dataclass(frozen=True, eq=False)
class Held:
    """A parameter or buffer, ``module.name``: its dimensions, and whether it is a parameter.

    ``places``: all modules that hold it, each with the name that it has there.
    """

    module: nn.Module
    name: str
    dims: list[Dim]
    trained: bool
    places: list[tuple[nn.Module, str]]


class AttributeInt(int):
    """An attribute, or a product of attributes: ``factors`` has (module, name, value) of each.

    ``ratios`` are attributes that the program divides, such as numbers of query heads and key heads, which shrink
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


def shape_of(tensor: Tensor) -> list[int]:
    """The lengths of the dimensions of ``tensor``; none of a nested tensor, which has several lengths in one."""
    return [] if tensor.is_nested else [*tensor.shape]


def tensors_in(values: Any) -> list[Tensor]:
    """The tensors in nested containers."""
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


class Trace:
    """The dimensions of every tensor in the passes of a model.

    ``held`` has parameters and buffers by the id of their tensor, or of the parametrisation that computes them, and
    ``reached`` those that an operation has read or written. ``contractions`` are the products over dimensions, in the
    order of the program: the module in whose call each is computed, the weight with entries in it, if that is known,
    the dimension, and whether it is of train mode.

    Attributes:
        work: for each product of the first pass, the dimensions whose lengths multiply to its multiply-adds.
        batches: batch dimensions of products of activations, such as the heads of attention.
        counted: integers that come from attributes of modules, with the dimensions whose lengths they are.
        normalised: with ``residual``, the dimensions that norms run over, such as a residual stream; else fixed.
        operation, training: the name of the operation at work; whether the present pass is in train mode.
        activations: the dimensions of every tensor that an operation has made.
    """

    def __init__(self, model: nn.Module, residual: bool = False) -> None:
        self.model, self.residual = model, residual
        self.normalised: list[Dim] = []
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.held: dict[int, Held] = {}
        inside: set[int] = set()
        for module in model.modules():
            for name, own in getattr(module, "parametrizations", {}).items():
                shape = value_of(module, name).shape  # what is computed is cut: truncation makes it a plain tensor
                self.held[id(own)] = Held(module, name, [*map(new, shape)], True, [(module, name)])
                inside |= {id(part) for part in own.modules()}
        code = (module for module in model.modules() if isinstance(module, torch.jit.ScriptModule))
        scripted = {id(part) for module in code for part in module.modules()}
        for module, _, name, value in places_in(model):
            if id(module) in inside:
                continue
            if id(value) not in self.held:
                why = None
                if id(module) in scripted:  # torch lets nobody change its code, tensors and hooks
                    why = f"a tensor of scripted code in {self.paths[id(module)] or 'the model'}"
                elif name in module._non_persistent_buffers_set:  # its entries could not be put in a learned order
                    why = f"a buffer that no file holds in {self.paths[id(module)] or 'the model'}"
                dims = [new(size, why) for size in value.shape]
                self.held[id(value)] = Held(module, name, dims, name in module._parameters, [])
            self.held[id(value)].places.append((module, name))
        self.stack: list[nn.Module] = [model]
        self.contractions: list[tuple[nn.Module, Held | None, Dim, bool]] = []
        self.work: list[list[Dim]] = []
        self.batches: list[Dim] = []
        self.counted: list[tuple[AttributeInt, Dim]] = []
        self.operation, self.training = "", False
        self.reached: set[Held] = set()
        self.activations: list[list[Dim]] = []
        self._slices: dict[int, tuple[Dim, set[int], str]] = {}
        self._alike: list[Dim] = []
        self._known: Any = WeakTensorKeyDictionary()

    @property
    def where(self) -> str:
        """The module in whose call the present operation happens."""
        return self.paths[id(self.stack[-1])] or "the model"

    def dims(self, tensor: Tensor) -> list[Dim]:
        """The dimensions of ``tensor``; those of a tensor that no operation made are fixed."""
        if (held := self.held.get(id(tensor))) is not None:
            self.reached.add(held)
            return held.dims
        if tensor not in self._known:
            self.set(tensor, self.fresh(shape_of(tensor), "meets a constant"))
        return self._known[tensor][0]

    def set(self, tensor: Tensor, dims: list[Dim], source: Held | None = None) -> None:
        """Note the dimensions of ``tensor``, and the parameter that it is a part or a view of."""
        if id(tensor) not in self.held:
            self._known[tensor] = dims, source
            self.activations.append(dims)

    def source(self, tensor: Tensor) -> Held | None:
        """The parameter that ``tensor`` is, or is a view of."""
        if (held := self.held.get(id(tensor))) is not None:
            return held
        return self._known[tensor][1] if tensor in self._known else None

    def fix(self, why: str, *dims: Dim) -> None:
        """Let no entry of ``dims`` be removed, because of the present operation."""
        for dim in dims:
            fix(dim, f"{why} in {self.where}")

    def normalise(self, why: str, dim: Dim) -> None:
        """Let a norm run over ``dim``: with fewer entries it computes something else."""
        if self.residual:
            self.normalised.append(dim)
        else:
            self.fix(why, dim)

    def unite(self, a: Dim, b: Dim) -> None:
        """Let the entries of two dimensions stay or go together."""
        unite(a, b, self.where)

    def unite_last(self, added: list[Dim], dims: list[Dim]) -> None:
        """Unite the dimensions of what is broadcast into a result with the last ones of the result."""
        for dim, own in zip(added[::-1], dims[::-1], strict=False):
            if dim.size != 1:
                self.unite(dim, own)

    def new(self, size: int, why: str) -> Dim:
        """A dimension of which no entry can be removed."""
        return new(size, f"{why} in {self.where}")

    def fresh(self, shape: Sequence[int], why: str) -> list[Dim]:
        """Dimensions of which no entry can be removed."""
        return [self.new(size, why) for size in shape]

    def alike(self, size: int, why: str) -> Dim:
        """A dimension of equal entries: they go with those that they meet, or else are fixed (:meth:`finish`)."""
        self._alike.append(new(size, alike=f"{why} in {self.where}"))
        return self._alike[-1]

    def sliced(self, dim: Dim, start: int, stop: int) -> None:
        """Note a slice: where all slices of a dimension turn out equal, they stay so (:meth:`finish`)."""
        self._slices.setdefault(id(dim), (dim, {dim.size}, self.where))[1].update({start, stop} - {0})

    def finish(self, outputs: Any) -> None:
        """Fix the dimensions of the outputs, and settle the slices and equal entries."""
        for dim in (dim for value in tensors_in(outputs) for dim in self.dims(value)):
            fix(dim, "is that of an output")
        for dim, ends, where in self._slices.values():
            equal(dim, sorted(ends), where)
        for leaf in (leaf for made in self._alike for leaf in leaves(made) if leaf.alike):
            leaf.fixed = leaf.fixed or leaf.alike
        self._slices.clear()

    @property
    def missed(self) -> dict[str, Held]:
        """The parameters that no operation has read or written, by their names; without biases of weights that are."""
        weights = {id(each.module) for each in self.reached if each.name == "weight"}
        missed = (each for each in self.held.values() if each.trained and each not in self.reached)
        return {
            f"{self.paths[id(each.module)]}.{each.name}".lstrip("."): each
            for each in missed
            if each.name != "bias" or id(each.module) not in weights
        }

    def contract(self, a: Tensor, b: Tensor, dims: tuple[Dim, Dim]) -> None:
        """Unite two dimensions that a product of ``a`` and ``b`` sums over, and note the product."""
        self.unite(*dims)
        weight = self.source(b) or self.source(a)
        self.contractions.append((self.stack[-1], weight, dims[0], self.training))

    def unknown(self, args: dict[str, Any], out: Any, why: str = "") -> list[list[Dim]]:
        """Fix the dimensions of all tensors of an operation without a rule."""
        why = why or f"the operation {self.operation}"
        for value in tensors_in(args):
            self.fix(why, *self.dims(value))
        return [self.fresh(shape_of(value), why) for value in tensors_in(out)]


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
                vars(module)[name] = AttributeInt.of(value, ratios, changed[-1])
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
        parts = dim.parts if isinstance(dim, Product) else (dim,)
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
