"""Six schedules of the 1D regression: table 4 and its full form; and what the baseline's boundary does."""

from __future__ import annotations

from itertools import chain

from experiments.analysis.claims import ABOVE, Claims, Estimate, Outcome, Published
from experiments.analysis.collect import Reader
from experiments.analysis.estimates import difference_of_shares, median, share
from experiments.analysis.evidence import Evidence, Untested
from experiments.analysis.figures import Data, Panel, Spec
from experiments.analysis.gather import boundaries, gather
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array
from experiments.analysis.tables import MEAN_MSE, MEAN_T, MEDIAN_MSE, Row, Table, column, row
from experiments.store.records import NO_CURVES
from experiments.studies.model import Study, selections_of
from experiments.studies.one_d import BASELINE, CHOSEN_BY, FIFTY


def _row(key: str, label: str, choice: str) -> Row:
    runs = Selection.of({**dict(BASELINE.choices), "schedule": choice}, seeds=range(10))
    return row(key, label, seeds=10, runs=runs, calibrated=CHOSEN_BY)


_ROBUST = (
    _row("baseline", "baseline", "paper"),
    _row("lambda_const", r"$\lambda$ const", "lambda_const"),
    _row("alpha_const", r"$\alpha=10^{-4}$ const", "alpha_const"),
)

_ABLATED = (
    _row("no_alpha", r"$\alpha=0$", "no_alpha"),
    _row("beta4", r"$\beta=4$ const", "beta4"),
    _row("beta15", r"$\beta=15$ const", "beta15"),
)


def _four(columns: int) -> tuple[Row | str, ...]:
    head = rf"\multicolumn{{{columns}}}{{l}}{{\emph{{%s}}}} \\"
    return (head % "Schedule robustness", *_ROBUST, r"\addlinespace", head % "Component ablations", *_ABLATED)


FOUR = Table(
    "datafourbody",
    "Table 4: schedule ablation, medians",
    (
        column("t", "t", "grown.t", "<median:.2f>"),
        column("integer", "integer", "integer", r"<rate:.0f>\%"),
        column("soft", "soft MSE", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "truncated MSE", "grown.truncated.mse", MEDIAN_MSE),
    ),
    _four(5),
)

FOUR_FULL = Table(
    "datafourfullbody",
    "Table 4, mean ± sd",
    (
        column("t", "t", "grown.t", MEAN_T),
        column("soft", "soft MSE", "grown.soft.mse", MEAN_MSE),
        column("truncated", "truncated MSE", "grown.truncated.mse", MEAN_MSE),
    ),
    _four(4),
)

SCHEDULES = Study(
    "schedules",
    "table 4: six schedules, fifty seeds",
    lambda: [runs.with_seeds(FIFTY) for runs in selections_of(FOUR)],
    rank=101,
    curves=10,
)

_TITLES = {
    "baseline": "baseline",
    "lambda_const": "λ constant",
    "alpha_const": "α constant",
    "no_alpha": "α = 0",
    "beta4": "β = 4 constant",
    "beta15": "β = 15 constant",
}

PANELS = {key: Panel("training step", "boundary t", title) for key, title in _TITLES.items()}
"""Panels by the key of the table's row."""


def make(reader: Reader) -> Data:
    """Make a panel for each schedule: the boundary of each seed, and the median."""
    gathered = gather(reader, FOUR.runs, ["grown.t"])
    drawn = [boundaries(reader, group, key) for key, group in gathered.groups.items()]
    curves, lines = (chain(*parts) for parts in zip(*drawn, strict=True))
    return gathered.data(curves=curves, lines=lines, courses={key: key for key in PANELS})


SPEC = Spec(
    "schedule_courses",
    "1D regression: the boundary over training under six schedules",
    PANELS,
    make,
    4.2,
    3,
    section="one_d",
    rank=12,
)

claim = Claims(100)
_MSE = "grown.truncated.mse"
_AFTER = "after results, 2026-11-21"
_COUNTS = "after results; published counts since 2026-11-25"


def _over_baseline(evidence: Evidence, key: str, quantity: str) -> Array:
    """An error of a schedule over the baseline's from the same seed, shape [seeds]."""
    return evidence.ratios(FOUR.runs[key], FOUR.runs["baseline"], quantity, key)


def _integers(evidence: Evidence, key: str, label: str) -> Published:
    """The integers of a schedule beside the published number in table 4."""
    samples = evidence.samples(FOUR.runs[key], ["integer"], key)["integer"]
    return Published(label, int(samples.sum()), len(samples), *evidence.published_count(f"datafourbody.{key}.integer"))


@claim("baseline_integers", "table 4", _COUNTS)
def _baseline_integers(evidence: Evidence) -> Outcome:
    """Every boundary of the baseline ends at an integer."""
    return Outcome([_integers(evidence, "baseline", "integers")])


@claim("annealing", "table 4", _COUNTS)
def _annealing(evidence: Evidence) -> Outcome:
    """Annealing λ to zero lets t end at integers; a constant λ does not."""
    rows = {"integers, λ annealed": "baseline", "λ constant": "lambda_const"}
    return Outcome([_integers(evidence, key, label) for label, key in rows.items()])


@claim("truncation_free", "table 4", _AFTER)
def _truncation_free(evidence: Evidence) -> Outcome:
    """Truncating the baseline costs nothing: the MSE of the median run rises by at most a tenth."""
    samples = evidence.samples(FOUR.runs["baseline"], [_MSE, "grown.soft.mse"], "baseline")
    cost = samples[_MSE] / samples["grown.soft.mse"]
    because = f"more than a tenth in {int((cost > 1.1).sum())} of {len(cost)} runs, at most {cost.max():.3g} times"
    return Outcome([Estimate("truncated over soft MSE", median(cost), most=1.1, spec=".4f")], because)


@claim("constant_schedules", "table 4", _AFTER)
def _constant_schedules(evidence: Evidence) -> Outcome:
    """Constant λ or α fits about as well as the baseline (within a factor of three from the same seed, in the
    median)."""
    rows = {"λ constant": "lambda_const", "α constant": "alpha_const"}
    parts = []
    for label, key in rows.items():
        ratios = _over_baseline(evidence, key, _MSE)
        parts.append(Estimate(f"truncated MSE over the baseline's, {label}", median(ratios), 1 / 3, 3))
    return Outcome(parts)


@claim("gap", "table 4", "after results, 2026-11-21; pairs since 2026-11-25")
def _gaps_open(evidence: Evidence) -> Outcome:
    """Without α, or at β = 4, truncation costs at least twice as much as in the baseline of the same seed, in the
    median."""
    rows = {"α = 0": "no_alpha", "β = 4": "beta4"}
    parts = []
    for label, key in rows.items():
        cut, soft = (_over_baseline(evidence, key, quantity) for quantity in (_MSE, "grown.soft.mse"))
        parts.append(Estimate(f"cost of truncation over the baseline's, {label}", median(cut / soft), 2))
    return Outcome(parts)


@claim("sharp_start", "table 4", _AFTER)
def _sharp_start(evidence: Evidence) -> Outcome:
    """Starting at β = 15 selects smaller sizes (by more than one) with a worse fit, from the same seed, in the
    median."""
    sharp, base = evidence.pairs(FOUR.runs["beta15"], FOUR.runs["baseline"], "grown.t", "β = 15")
    smaller = Estimate("baseline's t minus that of β = 15", median(base - sharp), 1)
    worse = Estimate("truncated MSE over the baseline's", median(_over_baseline(evidence, "beta15", _MSE)), 1)
    return Outcome([smaller, worse])


@claim("snapping", "limitations", "after results, 2026-11-28")
def _snapping(evidence: Evidence) -> Outcome:
    """Too little snapping leaves boundaries between integers: without α fewer end at one than in the baseline."""
    ended = [evidence.samples(FOUR.runs[key], ["integer"], key)["integer"] for key in ("no_alpha", "baseline")]
    apart = difference_of_shares(*((float(each.mean()), len(each)) for each in ended))
    return Outcome([Estimate("integers without α, less the baseline's", apart, most=-ABOVE, spec=".0%")])


@claim("overshoot", "figure 1", _AFTER)
def _overshoot(evidence: Evidence) -> Outcome:
    """Growth can overshoot: some seed's t passes its final value by more than ½."""
    passed = []
    for run in evidence.runs(BASELINE, "baseline"):
        curves = evidence.reader.store.curves(run.run_id)
        if curves is not None and "grown.t" in curves:
            t = curves["grown.t"][:, 0]
            passed.append(float(t.max() - t[-1]))
    if not passed:
        raise Untested(f"baseline: {NO_CURVES}")
    over = sum(amount > 0.5 for amount in passed)
    because = f"{over} of {len(passed)} seeds passed their final t by more than ½, at most {max(passed):.2f}"
    return Outcome([Estimate("share of such seeds", share(over, len(passed)), ABOVE, spec=".0%")], because)
