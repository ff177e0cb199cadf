"""All figures, drawn from records alone. A figure without records only says so.

A figure is a :class:`~experiments.analysis.figures.Spec` at the top level of a file here, or in ``figures/`` of a folder
that $NGN_PLUGINS names.
"""

from __future__ import annotations

from experiments.analysis.figures import Spec
from experiments.plugins import discover_values

FIGURES = discover_values(__name__, __path__, Spec)
"""File name → figure, the paper's figures by number (missing numbers are tables), then those beyond the paper."""
