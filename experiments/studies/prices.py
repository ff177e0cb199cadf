"""The price: its sweep (figure 2), plateaus of the count, and continued training at other prices (figure 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from experiments.analysis.claims import ABOVE, Claims, Estimate, Outcome
from experiments.analysis.collect import Reader
from experiments.analysis.estimates import difference_of_means, mean, rank_correlation, share
from experiments.analysis.evidence import Evidence, Untested, require
from experiments.analysis.figures import Curve, Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.analysis.reduce import sample
from experiments.analysis.statistics import Array
from experiments.config.schema import branch_phase
from experiments.studies.model import Study
from experiments.studies.one_d import BASELINE, SHOWN_SEED

CONTINUED = BASELINE.with_overrides({"continue_with": (0.1, 1.0, 10.0)})
"""Continued training (figure 6): the baseline, and three branches from its end. The figure shows seed 0."""
PRICES = tuple(float(f"{10 ** (-6 + 4 * n / 499):.6g}") for n in range(500))
"""Log-spaced from 1e-6 to 1e-2, rounded to six digits, so that run ids do not depend on the last bit."""
SWEEP = tuple(
    BASELINE.with_seeds([0]).with_overrides({"schedule.lambda0": price, "schedule.alpha_max": price})
    for price in PRICES
)
"""One run per price, with the snapping strength alpha_max = lambda0."""
LEAST = 5
"""Least number of prices in a plateau: five in a row span a factor of 1.08."""


@dataclass(frozen=True)
class Price:
    """The run at one price lambda0, the index of the price in the sweep, and the retained count."""

    place: int
    price: float
    count: int
    run: str


Plateau = list[Price]
"""Neighbouring prices with the same retained count, ascending."""


def width(plateau: Plateau) -> float:
    """Return the factor of the price over which the count stays the same."""
    return plateau[-1].price / plateau[0].price


def staircase(reader: Reader) -> Iterator[Price]:
    """Yield every price of the sweep that has a usable record, ascending."""
    for place, (price, selection) in enumerate(zip(PRICES, SWEEP, strict=True)):
        samples = sample(reader.collect(selection), ["grown.count"])
        for run_id, count in zip(samples.run_ids, samples.of("grown.count"), strict=True):
            yield Price(place, price, int(count), run_id)


def plateaus(prices: Iterable[Price], least: int = LEAST) -> list[Plateau]:
    """Find stretches of at least ``least`` neighbouring prices with one retained count, in the given order.

    A single price with another count or without a record ends a stretch. Nothing is smoothed or filled in.
    """
    stretches = groupby(enumerate(prices), key=lambda at: (at[1].count, at[1].place - at[0]))
    each = ([one for _, one in members] for _, members in stretches)
    return [members for members in each if len(members) >= least]


LAMBDA_SWEEP = Study("lambda_sweep", "figure 2: 500 prices from 1e-6 to 1e-2, seed 0", lambda: list(SWEEP), rank=103)

CONTINUE_LEARNING = Study(
    "continue_learning", "figure 6: ten seeds, each continued at three prices", lambda: [CONTINUED], rank=107, curves=10
)

LANDED, BETWEEN = "t at an integer", "t between integers"
_LABELLED = 1.3
"""Least width of a plateau whose factor is printed. Labels of narrower plateaus would overlap."""
_PRICE = "capacity price λ₀ (= the largest α)"
PANELS = {
    "count": Panel(_PRICE, "retained count", "Retained count", xlog=True),
    "mse": Panel(_PRICE, "MSE", "Error", xlog=True, ylog=True),
}


def make(reader: Reader) -> Data:
    """Make two series in "count", t within 0.01 of an integer or not, and the plateaus; in "mse", both errors."""
    quantities = ["grown.count", "integer", "grown.soft.mse", "grown.truncated.mse"]
    gathered = gather(reader, dict(zip(PRICES, SWEEP, strict=True)), quantities, unit="prices")
    points, steps, lines = [], [], []
    for price, group in sorted(gathered.groups.items()):
        for name, *numbers in zip(group.run_ids, *map(group.of, quantities), strict=True):
            count, integer, soft, truncated = map(float, numbers)
            landed = LANDED if integer else BETWEEN
            shown = ((landed, count, "count"), ("soft", soft, "mse"), ("truncated", truncated, "mse"))
            points += [Point(series, price, y, (name,), panel) for series, y, panel in shown]
            steps.append(Price(PRICES.index(price), price, int(count), name))
    for plateau in plateaus(steps):
        label = f"×{width(plateau):.1f}" if width(plateau) >= _LABELLED else ""
        ends, runs = np.array([plateau[0].price, plateau[-1].price]), tuple(one.run for one in plateau)
        lines.append(Line("plateau", ends, np.full(2, plateau[0].count), "count", runs, label))
    notes = [
        "one run of seed 0 per price",
        f"plateau: at least {LEAST} neighbouring prices of one count; ×: the factor of λ₀ that it spans",
    ]
    return gathered.data(points, lines=lines, notes=notes)


SPEC = Spec(
    "figure2", "Figure 2: sweep of the capacity price, 1D regression", PANELS, make, 4.8, section="one_d", rank=2
)

SHARED = "shared training"
COURSES = {
    "t": Panel("training step", "boundary t", "Boundary"),
    "mse": Panel("training step", "task MSE", "Error", ylog=True),
}

_QUANTITIES = {"t": "t", "mse": "task"}
FACTORS: tuple[float, ...] = dict(CONTINUED.overrides)["continue_with"]


def branch(factor: float) -> str:
    """Name the series of the branch with this factor of the price."""
    return f"{factor:g} × λ₀"


def _continued(reader: Reader) -> Data:
    """Make curves of the shared training and of the branches, whose steps continue from its end."""
    quantities = ["grown.t", *(f"{branch_phase(factor)}.t" for factor in FACTORS)]
    gathered = gather(reader, {"": CONTINUED}, quantities, unit="seeds")
    curves = []
    for run in gathered.groups[""].runs:
        stored = reader.store.curves(run.run_id)
        if stored is None:
            continue
        end = run.record["phases"]["grown"]["steps"]
        parts = [*((branch(factor), branch_phase(factor), end) for factor in FACTORS), (SHARED, "grown", 0)]
        for series, phase, start in parts:
            step = stored[f"{phase}.step"] + start
            for panel, course in _QUANTITIES.items():
                y = stored[f"{phase}.{course}"].reshape(len(step), -1)[:, 0]
                curves.append(Curve(series, run.run_id, run.seed, step, y, panel, run.seed == SHOWN_SEED))
    lines = []
    for panel in COURSES:
        shown = [curve for curve in curves if curve.panel == panel]
        values = np.concatenate([curve.y for curve in shown]) if shown else np.zeros(0)
        for start in {float(curve.x[0]) for curve in shown if curve.series != SHARED}:
            ends = np.array([values.min(), values.max()])
            lines.append(Line("the schedules start again", np.repeat(start, 2), ends, panel))
    notes = [f"strong: seed {SHOWN_SEED}; faint: the other seeds"] if gathered.found > 1 else []
    return gathered.data(curves=curves, lines=lines, notes=notes, courses=dict.fromkeys(COURSES, ""))


CONTINUED_COURSES = Spec(
    "figure6",
    "Figure 6: continued training at three prices, 1D regression",
    COURSES,
    _continued,
    4.4,
    section="one_d",
    rank=5,
)

claim = Claims(300)
_COUNT, _MSE = "grown.count", "grown.truncated.mse"


def _sweep(evidence: Evidence, quantities: Sequence[str]) -> dict[str, Array]:
    return evidence.samples(LAMBDA_SWEEP.make(), quantities, "λ sweep")


@claim("knob", "figure 2")
def _price_trades_fit(evidence: Evidence) -> Outcome:
    """A larger λ gives a smaller count and a worse fit (rank correlations beyond 0.8)."""
    samples = _sweep(evidence, ["config.schedule.lambda0", _COUNT, _MSE])
    price = samples["config.schedule.lambda0"]
    return Outcome(
        [
            Estimate("rank correlation of λ with the count", rank_correlation(price, samples[_COUNT]), most=-0.8),
            Estimate("with the MSE", rank_correlation(price, samples[_MSE]), 0.8),
        ],
        f"over {len(price)} prices",
    )


@claim("plateaus", "figure 2")
def _plateaus(evidence: Evidence) -> Outcome:
    """Most plateaus of the count, the first and last left out, span about a factor of two in λ (1.5 to 3)."""
    prices = [*staircase(evidence.reader)]
    require(len(prices), len(PRICES), "λ sweep")
    # the first and the last are cut off by the ends of the sweep, so their width is not the plateau's
    inner = plateaus(prices)[1:-1]
    if len(inner) < 3:
        raise Untested(f"λ sweep: {len(inner)} plateaus between the first and the last, too few to speak of most")
    evidence.used += [one.run for one in prices]
    widths = np.array([width(plateau) for plateau in inner])
    near = int(((widths >= 1.5) & (widths <= 3)).sum())
    listed = ", ".join(f"{plateau[0].count}: {width(plateau):.2f}" for plateau in inner)
    because = f"{near} of {len(inner)} plateaus; factor in λ by count: {listed}"
    return Outcome([Estimate("share of such plateaus", share(near, len(inner)), 0.5, spec=".0%")], because)


@claim("retarget", "figure 6")
def _retargeted(evidence: Evidence) -> Outcome:
    """Continuing at 10 λ prunes (by one component or more) and more than at λ; at 0.1 λ the count stays (within
    half a component). All in the mean over runs."""
    quantities = ["grown.count", *(f"{branch_phase(factor)}.count" for factor in (0.1, 1, 10))]
    samples = evidence.samples(CONTINUED, quantities, "continued learning")
    before, low, same, high = (samples[quantity] for quantity in quantities)
    because = (
        f"mean count {before.mean():.1f} before; {low.mean():.1f} at 0.1 λ, {same.mean():.1f} at λ, {high.mean():.1f} "
        "at 10 λ"
    )
    return Outcome(
        [
            Estimate("components lost at 10 λ", mean(before - high), 1, spec=".2f"),
            Estimate("more than at λ by", mean(same - high), ABOVE, spec=".2f"),
            Estimate("lost at λ", mean(before - same), 0, spec=".2f"),
            Estimate("gained at 0.1 λ", mean(low - before), -0.5, 0.5, ".2f"),
        ],
        because,
    )


@claim("sweep_integers", "figure 2")
def _sweep_integers(evidence: Evidence) -> Outcome:
    """Snapping holds across the λ sweep: at least 90 % of the boundaries are integers."""
    samples = _sweep(evidence, ["integer"])["integer"]
    integers = share(int(samples.sum()), len(samples))
    return Outcome([Estimate("integers", integers, 0.9, spec=".1%")], f"over {len(samples)} prices")


@claim("growth_ends", "limitations", "after results, 2026-11-28")
def _growth_ends(evidence: Evidence) -> Outcome:
    """Weights of ½^k are too small for high components: at a tenth of the price, a λ of 1e-6 to 2e-6 in place of 1e-5
    to 2e-5, less than one component is added."""
    samples = _sweep(evidence, ["config.schedule.lambda0", _COUNT])
    decades = [np.abs(samples["config.schedule.lambda0"] / low - 1.5) <= 0.5 for low in (1e-6, 1e-5)]
    apart = difference_of_means(*(samples[_COUNT][among] for among in decades))
    return Outcome([Estimate("components added", apart, most=1, spec=".2f")])
