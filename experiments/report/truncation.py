"""The truncated cells both ways: gates replaced by ones, as the equation says, and kept soft on the same prefix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison
from experiments.analysis.formats import Number
from experiments.analysis.reduce import Cell, reduce_cell

SAME = 0.01
"""Relative difference below which the two ways are called the same."""


@dataclass(frozen=True)
class TwoWays:
    """A truncated cell, the same cell from ``gates_kept``, and which lies nearer to the published value.

    ``nearer`` is "equation", "gates kept" or "same".
    """

    item: Comparison
    kept: Cell
    nearer: str


def _first(value: object) -> float | None:
    number: Number | Sequence[Number] = value  # type: ignore[assignment]
    return None if isinstance(number, Sequence) else float(number)


def _nearer(equation: float, kept: float, published: float) -> str:
    if math.isclose(equation, kept, rel_tol=SAME):
        return "same"
    logarithmic = min(equation, kept, published) > 0
    scale = math.log if logarithmic else float
    to_equation, to_kept = (abs(scale(number) - scale(published)) for number in (equation, kept))
    return "equation" if to_equation <= to_kept else "gates kept"


def two_ways(reader: Reader, items: Sequence[Comparison]) -> tuple[TwoWays, ...]:
    """Every truncated cell of our own runs whose records hold both; the first number of the cell is compared."""
    found = []
    for item in items:
        quantity = item.table.quantity(item.row, item.column.key)
        if ".truncated." not in quantity or item.stand_in or item.published is None or item.cell.value is None:
            continue
        quantities = {**item.row.quantities, item.column.key: quantity.replace(".truncated.", ".gates_kept.")}
        kept = reduce_cell(reader, item.table, replace(item.row, quantities=quantities), item.column.key)
        if kept.value is None or kept.n != item.cell.n:
            continue
        slot = next(iter(kept.value))
        published = item.published[1].get(slot)
        numbers = [_first(value) for value in (item.cell.value[slot], kept.value[slot], published) if value is not None]
        if len(numbers) == 3 and None not in numbers:
            found.append(TwoWays(item, kept, _nearer(*(float(number or 0.0) for number in numbers))))
    return tuple(found)
