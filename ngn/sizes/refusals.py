"""Checks before training that every size can be cut afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import snapshot, value_of
from ngn.components.low_rank import Bottleneck
from ngn.cuts import owned


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[None]:
    """Undo all changes to the modules of ``model`` if the block raises."""
    put_back = snapshot(model)
    try:
        yield
    except BaseException:
        put_back()
        raise


def refuse_uncuttable(model: nn.Module, axes: Sequence[OrderedAxis]) -> None:
    """Refuse tensors that cannot be cut: too short, tied to another module, or cut by another axis.

    Raises:
        ValueError: with the names of the size and the tensor.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    bases = {id(module.base): path for path, module in model.named_modules() if isinstance(module, Bottleneck)}
    holders: dict[int, list[tuple[int, str]]] = {}
    for module in model.modules():
        for name, value in module._parameters.items():
            holders.setdefault(id(value), []).append((id(module), name))
    taken: list[tuple[tuple[int, int], range, OrderedAxis]] = []
    for axis in axes:
        places = {(id(cut.module), cut.name) for cut in axis.cuts}
        for cut in axis.cuts:
            what = f"{axis.name}: {paths[id(cut.module)]}.{cut.name}".replace(" .", " ")
            held, value = owned(cut), value_of(cut.module, cut.name)
            if not isinstance(value, Tensor):
                continue
            if id(cut.module) in bases:
                raise ValueError(
                    f"{what} has a learned rank next to it ({bases[id(cut.module)]}), which would not be cut: learn "
                    "one of the two sizes"
                )
            dim, span = cut.dim % value.dim(), range(max(0, cut.start), cut.start + axis.places * cut.width)
            if span.stop > value.shape[dim]:
                raise ValueError(
                    f"{what} has {value.shape[dim]} entries along dimension {dim}; the size needs {span.stop}"
                )
            if others := [place for place in holders.get(id(held), []) if place not in places]:
                raise ValueError(
                    f"{what} is tied to {paths[others[0][0]]}.{others[0][1]}, which would not be cut: untie them"
                )
            for place, other, by in taken:
                if place == (id(held), dim) and by is not axis and other[0] <= span[-1] and span[0] <= other[-1]:
                    raise ValueError(f"{what} is also cut by {by.name}: learn one of the two sizes")
            taken.append(((id(held), dim), span, axis))
