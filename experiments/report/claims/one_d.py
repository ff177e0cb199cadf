"""Claims of the controlled analysis: price, frontier, capacity learners, learned decay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from experiments.analysis.claims import ABOVE, Estimate, Outcome, Tally, claim
from experiments.analysis.estimates import (
    bootstrap,
    difference_of_shares,
    mean,
    median,
    rank_correlation,
    ratio_of_geometric_means,
    share,
)
from experiments.analysis.evidence import Evidence, Untested, geometric_mean, sufficient
from experiments.analysis.reductions.plateaus import PRICES, plateaus, staircase
from experiments.analysis.statistics import Array
from experiments.analysis.verdict import DISAGREES
from experiments.config.schema import branch_phase
from experiments.studies import study
from experiments.tables.one_d import BASELINE, CONTINUED, DECAY, SEVEN

_COUNT, _MSE = "grown.count", "grown.truncated.mse"


def _by_count(counts: Array, errors: Array) -> dict[int, Array]:
    """Count → errors of the runs that kept it, where there are at least three."""
    found = {int(count): errors[counts == count] for count in np.unique(counts)}
    return {count: own for count, own in found.items() if len(own) >= 3}


def _sweep(evidence: Evidence, quantities: Sequence[str]) -> dict[str, Array]:
    return evidence.pooled(study("lambda_sweep").make(), quantities, "λ sweep")


@claim("knob", "figure 2")
def _price_trades_fit(evidence: Evidence) -> Outcome:
    """A larger λ gives a smaller count and a worse fit (rank correlations beyond 0.8)."""
    found = _sweep(evidence, ["config.schedule.lambda0", _COUNT, _MSE])
    price = found["config.schedule.lambda0"]
    return Outcome(
        [
            Estimate("rank correlation of λ with the count", rank_correlation(price, found[_COUNT]), most=-0.8),
            Estimate("with the MSE", rank_correlation(price, found[_MSE]), 0.8),
        ],
        f"over {len(price)} prices",
    )


@claim("plateaus", "figure 2")
def _plateaus(evidence: Evidence) -> Outcome:
    """Most plateaus of the count, the first and last left out, span about a factor of two in λ (1.5 to 3)."""
    prices = [*staircase(evidence.reader)]
    if not sufficient(len(prices), len(PRICES)):
        raise Untested(f"λ sweep: {len(prices)} of {len(PRICES)} runs")
    # the first and the last are cut off by the ends of the sweep, so their width is not the plateau's
    inner = plateaus(prices)[1:-1]
    if len(inner) < 3:
        raise Untested(f"λ sweep: {len(inner)} plateaus between the first and the last, too few to speak of most")
    evidence.used += [one.run for one in prices]
    widths = np.array([plateau.width for plateau in inner])
    near = int(((widths >= 1.5) & (widths <= 3)).sum())
    listed = ", ".join(f"{plateau.count}: {plateau.width:.2f}" for plateau in inner)
    because = f"{near} of {len(inner)} plateaus; factor in λ by count: {listed}"
    return Outcome([Estimate("share of such plateaus", share(near, len(inner)), 0.5, spec=".0%")], because)


@claim("retarget", "figure 6")
def _retargeted(evidence: Evidence) -> Outcome:
    """Continuing at 10 λ prunes (by one component or more) and more than at λ; at 0.1 λ the count stays (within
    half a component). All in the mean over runs."""
    quantities = ["grown.count", *(f"{branch_phase(factor)}.count" for factor in (0.1, 1, 10))]
    found = evidence.samples(CONTINUED, quantities, "continued learning")
    before, low, same, high = (found[quantity] for quantity in quantities)
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
    found = _sweep(evidence, ["integer"])["integer"]
    integers = share(int(found.sum()), len(found))
    return Outcome([Estimate("integers", integers, 0.9, spec=".1%")], f"over {len(found)} prices")


def _median_ratio(counts: Sequence[int]) -> Callable[..., Array]:
    """The median over counts of geometric mean errors, grown over fixed, for the bootstrap."""

    def statistic(*logarithms: Array, axis: int) -> Array:
        means = [each.mean(axis=axis) for each in logarithms]
        apart = [grown - fixed for grown, fixed in zip(means[: len(counts)], means[len(counts) :], strict=True)]
        ratio: Array = np.exp(np.median(np.stack(apart), axis=0))
        return ratio

    return statistic


@claim("frontier", "figure 3", "after results, 2026-11-23")
def _frontier(evidence: Evidence) -> Outcome:
    """Fixed models are slightly better at matched count: lower at most counts, typically by a factor of at most two."""
    made = study("fixed_frontier").make()
    fixed_runs = [s for s in made if dict(s.choices)["method"] == "fixed"]
    found = evidence.pooled(fixed_runs, ["fixed.count", "fixed.truncated.mse"], "fixed counts")
    fixed = _by_count(found["fixed.count"], found["fixed.truncated.mse"])
    grown_runs = [s for s in made if dict(s.choices)["method"] == "ngn"]
    pooled = evidence.pooled(grown_runs, [_COUNT, _MSE, "integer"], "grown runs of three prices")
    grown = _by_count(pooled[_COUNT], pooled[_MSE])
    counts = sorted(set(fixed) & set(grown))
    if len(counts) < 3:
        raise Untested(f"only {len(counts)} counts have three grown and three fixed runs")
    whole = _by_count(pooled[_COUNT][pooled["integer"] == 1], pooled[_MSE][pooled["integer"] == 1])
    settled = [geometric_mean(whole[n]) / geometric_mean(fixed[n]) for n in counts if n in whole]
    lower = [Estimate(f"count {n}", ratio_of_geometric_means(grown[n], fixed[n]), 1, spec=".2f") for n in counts]
    errors = tuple(np.log(each[n]) for each in (grown, fixed) for n in counts)
    listed = ", ".join(f"{n}: {geometric_mean(grown[n]) / geometric_mean(fixed[n]):.2f}" for n in counts)
    because = f"grown over fixed, geometric means by count: {listed}" + (
        f"; median of integer boundaries alone {np.median(settled):.2f}" if settled else ""
    )
    return Outcome(
        [
            Tally("counts at which fixed models are lower", tuple(lower), len(counts) // 2 + 1),
            Estimate("median of grown over fixed", bootstrap(errors, _median_ratio(counts)), 1, 2, ".2f"),
        ],
        because,
    )


def _learner(evidence: Evidence, key: str) -> dict[str, Array]:
    return evidence.samples(SEVEN.runs[key], [_COUNT, _MSE], key)


@claim("l0", "figure 7", "after results, 2026-11-23")
def _l0_higher(evidence: Evidence) -> Outcome:
    """At most counts that both reach, L0 has a higher error than NGN."""
    name = "datasevenfullbody.l0.truncated"
    if evidence.items[name].verdict.word == DISAGREES:
        raise Untested(f"{name} disagrees with the published error, so our L0 is no evidence about the paper's")
    ours, other = _learner(evidence, "ngn"), _learner(evidence, "l0")
    ngn, l0 = _by_count(ours[_COUNT], ours[_MSE]), _by_count(other[_COUNT], other[_MSE])
    shared = sorted(set(ngn) & set(l0))
    if not shared:
        raise Untested("no count was kept by three runs of both")
    higher = tuple(Estimate(f"count {n}", ratio_of_geometric_means(l0[n], ngn[n]), 1) for n in shared)
    return Outcome([Tally("shared counts at which L0 errs more", higher, len(shared) // 2 + 1)])


def _ratio_of_deviations(first: Array, second: Array, axis: int) -> Array:
    ratio: Array = first.std(axis=axis) / second.std(axis=axis)
    return ratio


@claim("awnn_spread", "figure 7")
def _awnn_spread(evidence: Evidence) -> Outcome:
    """AWNN's count varies less over seeds than NGN's."""
    counts = tuple(_learner(evidence, key)[_COUNT] for key in ("awnn", "ngn"))
    because = f"sd of the count {counts[0].std():.2f}, NGN {counts[1].std():.2f}"
    ratio = bootstrap(counts, _ratio_of_deviations)
    return Outcome([Estimate("sd of the count over NGN's", ratio, most=1, spec=".2f")], because)


@claim("awnn_fit", "figure 7")
def _awnn_fit(evidence: Evidence) -> Outcome:
    """AWNN fits worse than NGN."""
    errors = [_learner(evidence, key)[_MSE] for key in ("awnn", "ngn")]
    because = "geometric mean MSE {:.2e}, NGN {:.2e}".format(*map(geometric_mean, errors))
    return Outcome([Estimate("ratio of geometric means", ratio_of_geometric_means(*errors), 1)], because)


@claim("ste", "figure 7", "test chosen after results, 2026-11-24")
def _ste_stalls(evidence: Evidence) -> Outcome:
    """Straight-through stalls at small counts (four or fewer) more often than NGN."""
    small = [_learner(evidence, key)[_COUNT] <= 4 for key in ("ste", "ngn")]
    because = f"{small[0].sum()} of {len(small[0])} runs of STE, {small[1].sum()} of {len(small[1])} of NGN"
    apart = difference_of_shares(*((float(each.mean()), len(each)) for each in small))
    return Outcome([Estimate("share of STE minus that of NGN", apart, ABOVE, spec=".1%")], because)


@claim("quantile_cut", "decay table", "before results; pairs since 2026-11-23")
def _quantile_cut(evidence: Evidence) -> Outcome:
    """Learning r alone fits at least as well as the baseline of the same seed, but the quantile cut multiplies the
    error (by 100 or more). Both in the median."""
    found = evidence.samples(DECAY.runs["learn_r"], [_MSE, "grown.soft.mse"], "learn_r")
    soft = evidence.ratios(DECAY.runs["learn_r"], BASELINE, "grown.soft.mse", "learn_r")
    return Outcome(
        [
            Estimate("soft MSE over the baseline's", median(soft), most=1),
            Estimate("truncated over soft MSE", median(found[_MSE] / found["grown.soft.mse"]), 100),
        ]
    )


@claim("normalised", "decay table", "before results; pairs since 2026-11-23")
def _normalised(evidence: Evidence) -> Outcome:
    """Normalising f_k spoils a learned decay: the soft error rises more than tenfold, same seed, in the median."""
    rows = (DECAY.runs["learn_r_normalized"], DECAY.runs["learn_r"])
    ratio = evidence.ratios(*rows, "grown.soft.mse", "learn_r_normalized")
    return Outcome([Estimate("soft MSE with over without normalisation", median(ratio), 10)])


CLAIMS = (
    _price_trades_fit,
    _plateaus,
    _retargeted,
    _sweep_integers,
    _frontier,
    _l0_higher,
    _awnn_spread,
    _awnn_fit,
    _ste_stalls,
    _quantile_cut,
    _normalised,
)
