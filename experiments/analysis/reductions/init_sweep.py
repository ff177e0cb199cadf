"""Select the runs on grow/prune stability (figure 5): final boundary against initial boundary, in three panels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.analysis.selection import Selection
from experiments.tables.one_d import BASELINE

SEEDS = range(50)


@dataclass(frozen=True)
class StartPanel:
    """One panel of the figure; ``selection`` is its configuration at the standard start."""

    key: str
    title: str
    selection: Selection

    def start(self, t_init: int) -> Selection:
        """Select its runs that start at ``t_init``. t = softplus(tau) is positive, so 0 means the standard 1e-4."""
        return self.selection if t_init == 0 else self.selection.with_overrides({"gate.t0": float(t_init)})


PANELS = (
    StartPanel("standard", "r = ½, delayed α", BASELINE),
    StartPanel("uniform", "r = 1, delayed α", BASELINE.with_overrides({"gate.r": 1.0})),
    StartPanel("alpha_const", "r = ½, constant α", Selection.of({**dict(BASELINE.choices), "schedule": "alpha_const"})),
)
STARTS = tuple(range(17))


def sweep_selections(seeds: Iterable[int]) -> list[Selection]:
    """Select the runs of every panel and start with these seeds."""
    own = tuple(seeds)
    return [panel.start(t_init).with_seeds(own) for panel in PANELS for t_init in STARTS]
