"""Figure 13: the pruning frontier of a language model. No study of it exists yet, so it says "not run"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.analysis.collect import Reader
from experiments.figures.model import Data, Spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Nothing: no run belongs to the figure."""
    return Data()


def paint(figure: Figure, data: Data) -> None:
    """Never reached while there is no data."""
    raise NotImplementedError("figure 13 has no study")


SPEC = Spec("figure13", "Figure 13: structured pruning of Pythia-410M on WikiSQL-easy", {}, make, paint)
