"""The paper's figures from records alone. A figure without records says so instead of showing anything.

A figure is a function of a :class:`experiments.collect.Reader` to a matplotlib figure, listed in :data:`FIGURES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.collect import Reader
from experiments.figures import figure1

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Reader], Figure]] = {"figure1": figure1.draw}
"""File name → what draws it."""
