"""The dimensions of tensors, as a trace follows them: which entries belong together.

A dimension is a leaf, a product of dimensions (heads x entries, channels x height x width; the last factor is the inner
one) or a sum of dimensions (the pieces of a concatenation, one after the other). Leaves that must have one length are
united. A leaf that turns out to be a product or a sum is refined: everything that holds it then sees the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TypeAlias, Union


class Misfit(Exception):
    """Two dimensions of one length have parts that cannot be aligned."""


class Leaf:
    """Entries without known parts: their number, and why none can be removed (``fixed``); None if some can.

    ``alike``: where equal entries were made, so that any of them can go with what they meet; None for other entries.
    Those that meet nothing else are fixed at the end of a trace.
    """

    __slots__ = ("alike", "fixed", "parts", "size")

    def __init__(self, size: int, fixed: str | None = None, alike: str | None = None) -> None:
        self.size, self.fixed, self.alike = size, fixed, alike
        self.parts: Dim | None = None

    def become(self, parts: Dim) -> None:
        """Stand for its ``parts`` from now on, or for a leaf that it is united with."""
        self.parts = parts
        if isinstance(parts, Leaf):
            parts.alike = parts.alike and self.alike
        if self.fixed is not None:
            fix(parts, self.fixed)


@dataclass(frozen=True, eq=False)
class _Composed:
    parts: tuple[Dim, ...]
    size: int


class Product(_Composed):
    """Factors, the outermost first; without any, a dimension of length one."""


class Sum(_Composed):
    """Pieces that lie one after the other."""


Dim: TypeAlias = Union[Leaf, Product, Sum]
ONE, NONE = Product((), 1), Sum((), 0)


def new(size: int, fixed: str | None = None, alike: str | None = None) -> Dim:
    """A dimension of which nothing else is known."""
    return ONE if size == 1 else Leaf(size, fixed, alike)


def product(*factors: Dim) -> Dim:
    """The product of ``factors``, the outermost first."""
    return resolved(Product(factors, prod(part.size for part in factors)))


def joined(*terms: Dim) -> Dim:
    """The pieces ``terms``, one after the other."""
    return resolved(Sum(terms, sum(part.size for part in terms)))


def resolved(dim: Dim) -> Dim:
    """``dim`` in terms of leaves that are neither united with others nor refined, without nesting of one kind."""
    if isinstance(dim, Leaf):
        path = []
        while isinstance(dim, Leaf) and dim.parts is not None:
            path.append(dim)
            dim = dim.parts
        dim = dim if isinstance(dim, Leaf) else resolved(dim)
        for leaf in path:
            leaf.parts = dim
        return dim
    flat: list[Dim] = []
    nothing = ONE if isinstance(dim, Product) else NONE
    for part in map(resolved, dim.parts):
        flat += part.parts if type(part) is type(dim) else (part,) if part.size != nothing.size else ()
    return flat[0] if len(flat) == 1 else type(dim)(tuple(flat), dim.size) if flat else nothing


def leaves(dim: Dim) -> Iterator[Leaf]:
    """Yield the leaves of ``dim``."""
    dim = resolved(dim)
    if isinstance(dim, Leaf):
        yield dim
    else:
        for part in dim.parts:
            yield from leaves(part)


def fix(dim: Dim, reason: str) -> None:
    """Let no entry of ``dim`` be removed."""
    for leaf in leaves(dim):
        leaf.fixed = leaf.fixed or reason


def reason(dim: Dim) -> str | None:
    """Why no entry of ``dim`` can be removed; None if some can."""
    reasons = [leaf.fixed for leaf in leaves(dim)]
    return None if None in reasons else reasons[0] if reasons else "a single entry"


def unite(a: Dim, b: Dim, where: str) -> None:
    """Let the entries of two dimensions stay or go together; those that cannot be aligned are fixed."""
    try:
        if a.size != b.size:
            raise Misfit
        _unite(a, b)
    except Misfit:
        for dim in (a, b):
            fix(dim, f"two layouts meet in {where}")


def _unite(a: Dim, b: Dim) -> None:
    a, b = resolved(a), resolved(b)
    if a is b:
        return
    for one, other in ((a, b), (b, a)):
        if why := reason(one):
            return fix(other, why)
    if isinstance(a, Leaf):
        return a.become(b)
    if isinstance(b, Leaf):
        return b.become(a)
    if isinstance(a, Sum) or isinstance(b, Sum):
        if not isinstance(a, Sum) or (isinstance(b, Sum) and b.parts[0].size < a.parts[0].size):
            a, b = b, a
        first, *rest = a.parts
        here, after = split(b, first.size)
        _unite(first, here)
        return _unite(joined(*rest), after)
    *outer_a, last_a = a.parts
    *outer_b, last_b = b.parts
    if last_a.size % last_b.size:
        (outer_a, last_a), (outer_b, last_b) = (outer_b, last_b), (outer_a, last_a)
    if last_a.size % last_b.size:
        raise Misfit
    while isinstance(last_a, Leaf) and outer_b and last_a.size % (last_b.size * outer_b[-1].size) == 0:
        last_b = product(outer_b.pop(), last_b)
    outer, inner = factored(last_a, last_b.size)
    _unite(inner, last_b)
    _unite(product(*outer_a, outer), product(*outer_b))


def split(dim: Dim, at: int) -> tuple[Dim, Dim]:
    """The entries of ``dim`` before ``at``, and those from there on."""
    dim = resolved(dim)
    if at == 0 or at == dim.size:
        return (NONE, dim) if at == 0 else (dim, NONE)
    if isinstance(dim, Leaf):
        parts = new(at, alike=dim.alike), new(dim.size - at, alike=dim.alike)
        dim.become(Sum(parts, dim.size))
        return parts
    if isinstance(dim, Sum):
        for number, term in enumerate(dim.parts):
            if at < term.size:
                before, after = split(term, at)
                return joined(*dim.parts[:number], before), joined(after, *dim.parts[number + 1 :])
            at -= term.size
        raise AssertionError("split beyond the end")
    outer, inner = dim.parts[0], product(*dim.parts[1:])
    whole, part = divmod(at, inner.size)
    before, after = split(outer, whole)
    if not part:
        return product(before, inner), product(after, inner)
    _, after = split(after, 1)
    left, right = split(inner, part)
    return joined(product(before, inner), left), joined(right, product(after, inner))


def factored(dim: Dim, inner: int) -> tuple[Dim, Dim]:
    """``dim`` as a dimension of blocks and one of ``inner`` entries within; a :class:`Misfit` if parts cross them."""
    dim = resolved(dim)
    if inner == 1 or inner == dim.size:
        return (dim, ONE) if inner == 1 else (ONE, dim)
    if dim.size % inner:
        raise Misfit
    if isinstance(dim, Leaf):
        parts = new(dim.size // inner, alike=dim.alike), new(inner, alike=dim.alike)
        dim.become(Product(parts, dim.size))
        return parts
    if isinstance(dim, Product):
        *outer, last = dim.parts
        if inner % last.size == 0:
            rest, within = factored(product(*outer), inner // last.size)
            return rest, product(within, last)
        if last.size % inner == 0:
            rest, within = factored(last, inner)
            return product(*outer, rest), within
        raise Misfit
    if all(term.size % inner == 0 for term in dim.parts):
        pieces = [factored(term, inner) for term in dim.parts]
        for _, within in pieces[1:]:
            _unite(pieces[0][1], within)
        return joined(*(new(1) if rest.size == 1 else rest for rest, _ in pieces)), pieces[0][1]
    blocks, rest = [], dim
    while rest.size:
        block, rest = split(rest, inner)
        blocks.append(block)
    for block in blocks[1:]:
        _unite(blocks[0], block)
    return new(len(blocks), "the number of equal pieces"), blocks[0]


def span(dim: Dim, start: int, stop: int) -> Dim:
    """The entries ``start`` to ``stop`` of ``dim``."""
    dim = resolved(dim)
    if (start, stop) == (0, dim.size):
        return dim
    if (why := reason(dim)) is not None:
        return new(stop - start, why)
    return split(split(dim, stop)[0], start)[1]


def equal(dim: Dim, ends: Sequence[int], where: str) -> None:
    """Keep the pieces of ``dim`` up to each of ``ends`` equal if they are: programs divide the length to find them."""
    starts = [0, *ends[:-1]]
    if reason(dim) is None and len({stop - start for start, stop in zip(starts, ends, strict=True)}) == 1:
        first = span(dim, 0, ends[0])
        for start, stop in zip(starts[1:], ends[1:], strict=True):
            unite(first, span(dim, start, stop), where)


def positions(dim: Dim, leaf: Leaf) -> list[tuple[int, int]] | None:
    """Where ``leaf`` lies in ``dim``: (start, width) pairs, entry i of it is at start + i width ... + width - 1.

    None if two copies of it cross, so that no such pairs exist.
    """
    dim = resolved(dim)
    if isinstance(dim, Leaf):
        return [(0, 1)] if dim is leaf else []
    inside = [positions(part, leaf) for part in dim.parts]
    known = [spans for spans in inside if spans is not None]
    if len(known) < len(inside):
        return None
    sizes = [part.size for part in dim.parts]
    if isinstance(dim, Sum):
        starts = accumulate(sizes, initial=0)
        return [(at + start, width) for at, spans in zip(starts, known, strict=False) for start, width in spans]
    places = [number for number, spans in enumerate(known) if spans]
    if len(places) != 1:
        return None if places else []
    outer, size, inner = prod(sizes[: places[0]]), sizes[places[0]], prod(sizes[places[0] + 1 :])
    return [((n * size + at) * inner, width * inner) for n in range(outer) for at, width in known[places[0]]]
