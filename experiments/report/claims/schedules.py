"""Claims about the baseline of the 1D study, its schedules and its starts."""

from __future__ import annotations

import numpy as np

from experiments.analysis.reductions.init_sweep import PANELS, SEEDS, StartPanel
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array
from experiments.report.claims.evidence import Claim, Evidence, Outcome, Untested, claim
from experiments.store.records import NO_CURVES
from experiments.tables.one_d import BASELINE, FOUR

_MSE = "grown.truncated.mse"


def _schedule(key: str) -> Selection:
    """The runs of a row of table 4; of the baseline all fifty seeds, of the others ten."""
    return BASELINE.with_seeds(range(50)) if key == "baseline" else FOUR.runs[key]


def _over_baseline(evidence: Evidence, key: str) -> float:
    """Median over seeds of a schedule's truncated MSE over the baseline's from the same seed."""
    other, base = evidence.pairs(_schedule(key), _schedule("baseline"), _MSE, key)
    return float(np.median(other / base))


@claim("constant_schedules", "table 4")
def _constant_schedules(evidence: Evidence) -> Outcome:
    """Constant λ or α fits about as well as the baseline (within a factor of three from the same seed)."""
    ratios = {name: _over_baseline(evidence, name) for name in ("lambda_const", "alpha_const")}
    because = (
        f"truncated MSE over the baseline's from the same seed, median: λ constant {ratios['lambda_const']:.2f}, "
        f"α constant {ratios['alpha_const']:.2f}"
    )
    return Outcome(all(1 / 3 <= ratio <= 3 for ratio in ratios.values()), because)


def _cost(evidence: Evidence, key: str) -> Array:
    """Truncated over soft MSE of each run of a schedule, shape [runs]."""
    found = evidence.samples(_schedule(key), [_MSE, "grown.soft.mse"], key)
    cost: Array = found[_MSE] / found["grown.soft.mse"]
    return cost


@claim("gap", "table 4")
def _gaps_open(evidence: Evidence) -> Outcome:
    """Without α, or at β = 4, truncation costs at least twice as much as in the baseline."""
    base, no_alpha, soft_gate = (float(np.median(_cost(evidence, row))) for row in ("baseline", "no_alpha", "beta4"))
    because = (
        f"truncated over soft MSE, median over runs: baseline {base:.3f}, α = 0 {no_alpha:.1f}, β = 4 {soft_gate:.1f}"
    )
    return Outcome(min(no_alpha, soft_gate) >= 2 * base, because)


@claim("sharp_start", "table 4")
def _sharp_start(evidence: Evidence) -> Outcome:
    """Starting at β = 15 selects smaller sizes (by more than one) with a worse fit, from the same seed."""
    sharp, base = evidence.pairs(_schedule("beta15"), _schedule("baseline"), "grown.t", "β = 15")
    smaller, ratio = float(np.median(base - sharp)), _over_baseline(evidence, "beta15")
    because = (
        f"against the baseline of the same seed, medians: t {smaller:.2f} smaller, truncated MSE {ratio:.2f} times"
    )
    return Outcome(smaller > 1 and ratio > 1, because)


@claim("baseline_integers", "table 4, figure 7")
def _baseline_integers(evidence: Evidence) -> Outcome:
    """Every boundary of the baseline ends at an integer (fifty seeds)."""
    share = evidence.samples(_schedule("baseline"), ["integer"], "baseline")["integer"]
    return Outcome(bool(share.mean() == 1), f"{int(share.sum())} of {len(share)} boundaries")


@claim("annealing", "table 4")
def _annealing(evidence: Evidence) -> Outcome:
    """Annealing λ to zero lets t end at integers (90 % or more); a constant λ does not (10 % or less)."""
    base, constant = (
        evidence.samples(_schedule(row), ["integer"], row)["integer"] for row in ("baseline", "lambda_const")
    )
    because = (
        f"integers: λ annealed {int(base.sum())} of {len(base)}, λ constant {int(constant.sum())} of {len(constant)}"
    )
    return Outcome(bool(base.mean() >= 0.9 and constant.mean() <= 0.1), because)


@claim("truncation_free", "table 4")
def _truncation_free(evidence: Evidence) -> Outcome:
    """Truncating the baseline costs nothing: the MSE of the median run rises by at most a tenth."""
    cost = _cost(evidence, "baseline")
    because = (
        f"truncated over soft MSE, median of {len(cost)} runs {np.median(cost):.4f}; more than a tenth in "
        f"{int((cost > 1.1).sum())} runs, at most {cost.max():.3g} times"
    )
    return Outcome(bool(np.median(cost) <= 1.1), because)


@claim("overshoot", "figure 1")
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
    return Outcome(
        over > 0, f"{over} of {len(passed)} seeds passed their final t by more than ½, at most {max(passed):.2f}"
    )


def _final(evidence: Evidence, panel: StartPanel, t0: int, what: str) -> float:
    """Mean final t of the seeds of a panel of figure 5 that start at t₀."""
    runs = panel.start(t0).with_seeds(SEEDS)
    return float(evidence.samples(runs, ["grown.t"], f"{what}, t₀ = {t0}")["grown.t"].mean())


def _both_ends(evidence: Evidence) -> list[float]:
    """Mean final t of the baseline from the lowest and from the highest start."""
    return [_final(evidence, PANELS[0], t0, "r = ½") for t0 in (0, 16)]


_NEAR = 1.5
"""Mean final sizes that differ by no more are one range; the published spread over seeds is 1.45."""


@claim("both_directions", "figure 5")
def _both_directions(evidence: Evidence) -> Outcome:
    """With r = ½ and delayed α, runs from t₀ = 0 and 16 meet: mean final t within 1.5."""
    low, high = _both_ends(evidence)
    return Outcome(
        abs(low - high) <= _NEAR and high < 16 - _NEAR, f"mean final t {low:.2f} from 0 and {high:.2f} from 16"
    )


def _fails_to_prune(key: str, panel: StartPanel, what: str) -> Claim:
    def predicate(evidence: Evidence) -> Outcome:
        low, _ = _both_ends(evidence)
        high = _final(evidence, panel, 16, what)
        return Outcome(high - low > _NEAR, f"mean final t {high:.2f} from 16, baseline grown from 0 {low:.2f}")

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
