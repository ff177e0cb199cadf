"""All figures, drawn from records alone. A figure without records only says so."""

from __future__ import annotations

from experiments.figures import (
    budgets,
    courses,
    depth,
    figure1,
    figure2,
    figure3,
    figure5,
    figure6,
    figure7,
    figure13,
    frontier,
    language,
    manifold,
    orders,
    stories,
)
from experiments.figures.model import Spec

FIGURES: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        figure1.SPEC,
        figure2.SPEC,
        figure3.SPEC,
        figure5.SPEC,
        figure6.SPEC,
        figure7.SPEC,
        figure13.SPEC,
        *frontier.SPECS,
        courses.SPEC,
        manifold.SPEC,
        depth.SPEC,
        *language.SPECS,
        orders.SPEC,
        budgets.SPEC,
        *stories.SPECS,
    )
}
"""File name → figure: the paper's figures by number (missing numbers are tables), then those beyond the paper."""
