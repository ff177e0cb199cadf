"""Claims about the baseline of the 1D study, its schedules and its starts."""

from __future__ import annotations

from experiments.analysis.claims import ABOVE, Claim, Estimate, Outcome, Published, claim
from experiments.analysis.estimates import mean, median, share
from experiments.analysis.evidence import Evidence, Untested
from experiments.analysis.reductions.init_sweep import PANELS, SEEDS, StartPanel
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array
from experiments.store.records import NO_CURVES
from experiments.tables.one_d import BASELINE, FOUR

_MSE = "grown.truncated.mse"
_AFTER = "after results, 2026-11-21"
_COUNTS = "after results; published counts since 2026-11-25"


def _schedule(key: str) -> Selection:
    """The runs of a row of table 4; of the baseline all fifty seeds, of the others ten."""
    return BASELINE.with_seeds(range(50)) if key == "baseline" else FOUR.runs[key]


def _over_baseline(evidence: Evidence, key: str) -> Array:
    """A schedule's truncated MSE over the baseline's from the same seed, shape [seeds]."""
    return evidence.ratios(_schedule(key), _schedule("baseline"), _MSE, key)


@claim("constant_schedules", "table 4", _AFTER)
def _constant_schedules(evidence: Evidence) -> Outcome:
    """Constant λ or α fits about as well as the baseline (within a factor of three from the same seed, in the
    median)."""
    rows = {"λ constant": "lambda_const", "α constant": "alpha_const"}
    return Outcome(
        [
            Estimate(f"truncated MSE over the baseline's, {said}", median(_over_baseline(evidence, key)), 1 / 3, 3)
            for said, key in rows.items()
        ]
    )


def _cost(evidence: Evidence, key: str) -> Array:
    """Truncated over soft MSE of each run of a schedule, shape [runs]."""
    found = evidence.samples(_schedule(key), [_MSE, "grown.soft.mse"], key)
    cost: Array = found[_MSE] / found["grown.soft.mse"]
    return cost


def _cost_over_baseline(evidence: Evidence, key: str) -> Array:
    """What truncation costs a schedule (truncated over soft MSE) over what it costs the baseline, shape [seeds]."""
    cut, soft = (
        evidence.ratios(_schedule(key), _schedule("baseline"), quantity, key) for quantity in (_MSE, "grown.soft.mse")
    )
    return cut / soft


@claim("gap", "table 4", "after results, 2026-11-21; pairs since 2026-11-25")
def _gaps_open(evidence: Evidence) -> Outcome:
    """Without α, or at β = 4, truncation costs at least twice as much as in the baseline of the same seed, in the
    median."""
    rows = {"α = 0": "no_alpha", "β = 4": "beta4"}
    return Outcome(
        [
            Estimate(f"cost of truncation over the baseline's, {said}", median(_cost_over_baseline(evidence, key)), 2)
            for said, key in rows.items()
        ]
    )


@claim("sharp_start", "table 4", _AFTER)
def _sharp_start(evidence: Evidence) -> Outcome:
    """Starting at β = 15 selects smaller sizes (by more than one) with a worse fit, from the same seed, in the
    median."""
    sharp, base = evidence.pairs(_schedule("beta15"), _schedule("baseline"), "grown.t", "β = 15")
    return Outcome(
        [
            Estimate("baseline's t minus that of β = 15", median(base - sharp), 1),
            Estimate("truncated MSE over the baseline's", median(_over_baseline(evidence, "beta15")), 1),
        ]
    )


def _integers(evidence: Evidence, key: str, said: str) -> Published:
    """The integers of a schedule beside the published number in table 4."""
    found = evidence.samples(_schedule(key), ["integer"], key)["integer"]
    return Published(said, int(found.sum()), len(found), *evidence.published_count(f"datafourbody.{key}.integer"))


@claim("baseline_integers", "table 4", _COUNTS)
def _baseline_integers(evidence: Evidence) -> Outcome:
    """Every boundary of the baseline ends at an integer."""
    return Outcome([_integers(evidence, "baseline", "integers")])


@claim("annealing", "table 4", _COUNTS)
def _annealing(evidence: Evidence) -> Outcome:
    """Annealing λ to zero lets t end at integers; a constant λ does not."""
    rows = {"integers, λ annealed": "baseline", "λ constant": "lambda_const"}
    return Outcome([_integers(evidence, key, said) for said, key in rows.items()])


@claim("truncation_free", "table 4", _AFTER)
def _truncation_free(evidence: Evidence) -> Outcome:
    """Truncating the baseline costs nothing: the MSE of the median run rises by at most a tenth."""
    cost = _cost(evidence, "baseline")
    because = f"more than a tenth in {int((cost > 1.1).sum())} of {len(cost)} runs, at most {cost.max():.3g} times"
    return Outcome([Estimate("truncated over soft MSE", median(cost), most=1.1, spec=".4f")], because)


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


_NEAR = 1.5
"""Mean final sizes that differ by no more are one range; the published spread over seeds is 1.45."""


def _final(panel: StartPanel, t0: int) -> Selection:
    """The seeds of a panel of figure 5 that start at t₀."""
    return panel.start(t0).with_seeds(SEEDS)


@claim("both_directions", "figure 5")
def _both_directions(evidence: Evidence) -> Outcome:
    """With r = ½ and delayed α, runs from t₀ = 0 and 16 meet: mean final t within 1.5, same seeds."""
    low, high = evidence.pairs(_final(PANELS[0], 0), _final(PANELS[0], 16), "grown.t", "r = ½, t₀ = 0 and 16")
    because = f"mean final t {low.mean():.2f} from 0 and {high.mean():.2f} from 16, {len(low)} seeds"
    return Outcome(
        [
            Estimate("mean final t from 0 minus that from 16", mean(low - high), -_NEAR, _NEAR, ".2f"),
            Estimate("mean final t from 16", mean(high), most=16 - _NEAR, spec=".2f"),
        ],
        because,
    )


def _fails_to_prune(key: str, panel: StartPanel, what: str) -> Claim:
    def predicate(evidence: Evidence) -> Outcome:
        high, low = evidence.pairs(_final(panel, 16), _final(PANELS[0], 0), "grown.t", f"{what}, t₀ = 16")
        because = f"mean final t {high.mean():.2f} from 16, baseline grown from 0 {low.mean():.2f}"
        return Outcome([Estimate("difference, same seeds", mean(high - low), _NEAR, spec=".2f")], because)

    text = (
        f"With {what} runs fail to prune: from t₀ = 16 the mean final t stays more than {_NEAR} above the baseline's."
    )
    return Claim(key, text, "figure 5", predicate)


CLAIMS = (
    _baseline_integers,
    _annealing,
    _truncation_free,
    _constant_schedules,
    _gaps_open,
    _sharp_start,
    _overshoot,
    _both_directions,
    _fails_to_prune("no_prune_r1", PANELS[1], "uniform weights (r = 1)"),
    _fails_to_prune("no_prune_alpha", PANELS[2], "α at full strength throughout"),
)
