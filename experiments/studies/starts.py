"""The start of the boundary (figure 5): whether it both grows and prunes, in three panels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from experiments.analysis.claims import Claim, Claims, Estimate, Outcome
from experiments.analysis.collect import Reader
from experiments.analysis.estimates import mean
from experiments.analysis.evidence import Evidence
from experiments.analysis.figures import EACH, Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.analysis.selection import Selection
from experiments.studies.model import Study
from experiments.studies.one_d import BASELINE

SEEDS = range(50)


STARTS = tuple(range(17))
STARTS_OF = {
    "standard": ("r = ½, delayed α", BASELINE),
    "uniform": ("r = 1, delayed α", BASELINE.with_overrides({"gate.r": 1.0})),
    "alpha_const": ("r = ½, constant α", Selection.of({**dict(BASELINE.choices), "schedule": "alpha_const"})),
}
"""Panel of the figure → its title, and its configuration at the standard start."""


def start(panel: str, t0: int, seeds: Iterable[int] = SEEDS) -> Selection:
    """Select the runs of a panel that start at ``t0``. t = softplus(tau) is positive, so 0 means the standard 1e-4."""
    own = STARTS_OF[panel][1].with_seeds(seeds)
    return own if t0 == 0 else own.with_overrides({"gate.t0": float(t0)})


def sweep_selections(seeds: Iterable[int]) -> list[Selection]:
    """Select the runs of every panel and start with these seeds."""
    own = tuple(seeds)
    return [start(panel, t0, own) for panel in STARTS_OF for t0 in STARTS]


INIT_SWEEP = Study(
    "init_sweep",
    "figure 5: t_init 0 to 16, fifty seeds, three panels",
    # ten seeds of every start before the other forty, so that an unfinished sweep is the ten-seed figure
    lambda: sweep_selections(range(10)) + sweep_selections(range(10, 50)),
    rank=105,
)
INIT_SWEEP_TEN = Study(
    "init_sweep_ten", "the first ten seeds of figure 5", lambda: sweep_selections(range(10)), rank=106
)

MEAN = "mean over the seeds"
PANELS = {key: Panel("initial boundary t₀", "final boundary t", title) for key, (title, _) in STARTS_OF.items()}
_DIAGONAL = np.array([STARTS[0], STARTS[-1]])


def make(reader: Reader) -> Data:
    """Make a series of means, with bars of one population deviation, and a series of runs, in each panel."""
    selections = {(panel, t0): start(panel, t0) for panel in STARTS_OF for t0 in STARTS}
    gathered = gather(reader, selections, ["grown.t"])
    points = []
    counts: dict[str, list[int]] = {}
    for (panel, t0), group in gathered.groups.items():
        if not group.runs:
            continue
        counts.setdefault(panel, []).append(len(group.runs))
        final = group.of("grown.t")
        mean, sd = float(final.mean()), float(final.std(ddof=0))
        points.append(Point(MEAN, t0, mean, group.run_ids, panel, mean - sd, mean + sd))
        points += [Point(EACH, t0, float(t), (run,), panel) for run, t in zip(group.run_ids, final, strict=True)]
    lines = [Line("t = t₀", _DIAGONAL, _DIAGONAL, panel) for panel in PANELS]
    spans = {panel: dict.fromkeys((min(numbers), max(numbers))) for panel, numbers in counts.items()}
    titles = {panel: f"seeds per start: {' to '.join(map(str, span))}" for panel, span in spans.items()}
    notes = ["bars: one standard deviation; faint: each run", "t₀ = 0 stands for 0.0001"]
    return gathered.data(points, lines=lines, notes=notes, titles=titles)


SPEC = Spec(
    "figure5",
    "Figure 5: final against initial boundary, 1D regression",
    PANELS,
    make,
    3.2,
    len(PANELS),
    section="one_d",
    rank=4,
)

claim = Claims(200)
_NEAR = 1.5
"""Mean final sizes that differ by no more are one range; the published spread over seeds is 1.45."""


@claim("both_directions", "figure 5")
def _both_directions(evidence: Evidence) -> Outcome:
    """With r = ½ and delayed α, runs from t₀ = 0 and 16 meet: mean final t within 1.5, same seeds."""
    low, high = evidence.pairs(start("standard", 0), start("standard", 16), "grown.t", "r = ½, t₀ = 0 and 16")
    because = f"mean final t {low.mean():.2f} from 0 and {high.mean():.2f} from 16, {len(low)} seeds"
    return Outcome(
        [
            Estimate("mean final t from 0 minus that from 16", mean(low - high), -_NEAR, _NEAR, ".2f"),
            Estimate("mean final t from 16", mean(high), most=16 - _NEAR, spec=".2f"),
        ],
        because,
    )


def _fails_to_prune(key: str, panel: str, what: str) -> Claim:
    def predicate(evidence: Evidence) -> Outcome:
        high, low = evidence.pairs(start(panel, 16), start("standard", 0), "grown.t", f"{what}, t₀ = 16")
        because = f"mean final t {high.mean():.2f} from 16, baseline grown from 0 {low.mean():.2f}"
        return Outcome([Estimate("difference, same seeds", mean(high - low), _NEAR, spec=".2f")], because)

    text = (
        f"With {what} runs fail to prune: from t₀ = 16 the mean final t stays more than {_NEAR} above the baseline's."
    )
    return claim(key, "figure 5", text=text)(predicate)


CLAIMS = (
    _fails_to_prune("no_prune_r1", "uniform", "uniform weights (r = 1)"),
    _fails_to_prune("no_prune_alpha", "alpha_const", "α at full strength throughout"),
)
