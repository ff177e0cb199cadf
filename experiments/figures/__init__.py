"""The paper's figures from records alone. A figure without records says so instead of showing anything.

A figure is a function of a :class:`experiments.collect.Reader` and of overrides to a matplotlib figure, listed in
:data:`FIGURES`. Overrides (dotted key → value) name stand-ins, such as shorter runs; the figure then says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from experiments.collect import Reader
from experiments.figures import figure1

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Reader, Mapping[str, Any]], Figure]] = {"figure1": figure1.draw}
"""File name → what draws it."""
