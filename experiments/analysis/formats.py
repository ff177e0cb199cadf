r"""Number formats of the paper's cells.

A format is TeX text with slots, such as ``<mean:.2f>\,$\pm$\,<sd:.2f>``. There are three forms of a slot:

- ``<statistic:spec>`` takes a number of the column's own quantity.
- ``<quantity.statistic:spec>`` takes a number of another quantity.
- ``<statistic:spec*, >`` takes one number per gate, joined by ``, ``.

A value maps slot names to numbers or lists of numbers. Specs:

========= ==================================================================
``.2f``   fixed decimals, any number of them
``.2e``   scientific, two digits of exponent
``d``     an integer
``short`` an integer below 1000, else ``1.6e3``
``word``  2, 1, 0 as ``yes``, ``partial``, ``no``
========= ==================================================================
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Union

Number = Union[int, float]
Value = Mapping[str, Union[Number, Sequence[Number]]]

DASH = "--"
"""Printed where there is no number."""
WORDS = ("no", "partial", "yes")
"""Outcomes of pruning back, in their order. A value holds the code 0, 1 or 2 for a record's word."""

_SLOT = re.compile(r"<([A-Za-z_][\w./]*):(\.\d[fe]|d|short|word)(?:\*([^>]*))?>")


@dataclass(frozen=True)
class Slot:
    """A place for one number, or with ``separator`` for one number per gate."""

    name: str
    spec: str
    separator: str | None = None

    @property
    def statistic(self) -> str:
        """The part of the name after its last dot."""
        return self.name.rsplit(".", 1)[-1]

    def quantity(self, default: str) -> str:
        """Return the quantity named before the last dot, else the quantity of the column."""
        return self.name.rsplit(".", 1)[0] if "." in self.name else default


def print_number(number: Number, spec: str) -> str:
    """Print one number.

    Raises:
        ValueError: if the number is not finite, or is a fraction where the spec needs an integer.
    """
    if not math.isfinite(number):
        raise ValueError(f"{number} is no number to print")
    if spec == "word":
        return WORDS[int(number)]
    if spec == "d":
        if number != int(number):
            raise ValueError(f"{number} is no integer")
        return str(int(number))
    if spec == "short":
        if float(f"{number:.0f}") < 1000:
            return f"{number:.0f}"
        mantissa, exponent = f"{number:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{number:{spec}}"


def half_unit(number: Number, spec: str) -> float:
    """Return half a unit of the last printed digit, the rounding error of a printed number; 0 for counts and words."""
    if spec in ("d", "word"):
        return 0.0
    if spec == "short":
        text = print_number(number, spec)
        return 0.05 * 10 ** int(text.split("e")[1]) if "e" in text else 0.5
    unit = 0.5 * 10 ** -int(spec[1:-1])
    return unit if spec.endswith("f") else unit * 10 ** int(f"{number:{spec}}".split("e")[1])


@dataclass(frozen=True)
class Format:
    """A parsed format: alternating literal TeX and slots."""

    source: str
    parts: tuple[str | Slot, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots, in order."""
        return tuple(part for part in self.parts if isinstance(part, Slot))

    def render(self, value: Value) -> str:
        """Print a value that has exactly this format's slots.

        Raises:
            KeyError: if a slot has no number.
            ValueError: if a number does not fit its slot.
        """
        text = ""
        for part in self.parts:
            if isinstance(part, str):
                text += part
                continue
            entry = value[part.name]
            if isinstance(entry, Sequence):
                if part.separator is None:
                    raise ValueError(f"{self.source}: slot {part.name} takes one number, not {list(entry)}")
                text += part.separator.join(print_number(number, part.spec) for number in entry)
            else:
                text += print_number(entry, part.spec)
        return text


@cache
def parse_format(source: str) -> Format:
    """Parse a format.

    Raises:
        ValueError: if it has no slot, or a slot twice.
    """
    parts: list[str | Slot] = []
    end = 0
    for found in _SLOT.finditer(source):
        literal = source[end : found.start()]
        slot = Slot(found[1], found[2], found[3])
        parts += [literal, slot] if literal else [slot]
        end = found.end()
    if source[end:]:
        parts.append(source[end:])
    names = [part.name for part in parts if isinstance(part, Slot)]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"format {source!r} needs slots of different names")
    return Format(source, tuple(parts))
