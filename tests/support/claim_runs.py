"""Made-up runs and cells that agree or disagree with a claim: selections with the phases of their records."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import record_samples as samples

from experiments.analysis.collect import RecordedRun
from experiments.analysis.compare import Comparison
from experiments.analysis.published import value_of
from experiments.analysis.reduce import Cell
from experiments.analysis.selection import Selection, selected_runs
from experiments.analysis.statistics import NO, PARTIAL, YES
from experiments.analysis.tables import DASH
from experiments.analysis.verdict import AGREES, CANNOT_TELL, NOT_RUN, Verdict
from experiments.config.schema import branch_phase
from experiments.store.records import Store
from experiments.studies import macro
from experiments.studies.budgets import BUDGETS
from experiments.studies.commit import COMMITTED, TIED
from experiments.studies.depth import NINE, SEEDS_OF_DEPTH, TEN
from experiments.studies.frontier import FIXED_FRONTIER
from experiments.studies.learners import DECAY, SEVEN
from experiments.studies.manifold import FIFTEEN
from experiments.studies.one_d import BASELINE, start
from experiments.studies.orders import ORDERED
from experiments.studies.prices import CONTINUED, SWEEP
from experiments.studies.schedules import FOUR
from experiments.studies.vision import EIGHT_FULL

Phases = Mapping[str, Any]
Made = list[tuple[Selection, Phases | Callable[[int], Phases]]]
"""Runs with their phases: the same for all seeds, or those of a seed."""


class Memory(Store):
    """A store in memory. ``curves``: those of each run, by name."""

    def __init__(self, made=(), curves=None):
        super().__init__(Path("nowhere"))
        self.records = {}
        self.kept = curves and {name: np.array(course) for name, course in curves.items()}
        for selection, phases in made:
            for run in selected_runs(selection):
                of_seed = phases(run.config.seed.value) if callable(phases) else phases
                self.records[run.id] = samples.record(run.config, of_seed)

    def get(self, run_id):
        return self.records.get(run_id)

    def curves(self, run_id):
        return self.kept


def grown(t, soft, truncated=None, **more):
    return {"grown": samples.grown([t], soft, soft if truncated is None else truncated) | more}


def sweep(steps, falling=True, t_off=0.0):
    """Make a staircase: every ``steps`` prices the count falls by one and the error doubles."""
    levels = [at // steps if falling else 0 for at in range(len(SWEEP))]
    return [(runs, grown(20.0 - level + t_off, 1e-5 * 2.0**level)) for level, runs in zip(levels, SWEEP, strict=True)]


def frontier(times):
    made = FIXED_FRONTIER.make()
    fixed = [(runs, {"fixed": samples.fixed(n, 1e-4 / n)}) for n, runs in enumerate(made[:12], 1)]
    return fixed + [(runs, lambda seed: grown(4.0 + seed % 4, times * 1e-4 / (5 + seed % 4))) for runs in made[12:]]


def starts(low, high, other):
    """Write runs from t₀ = 0, which end at ``low``, and from 16: ``high`` in the first panel, ``other`` beside it."""
    ends = {"standard": high, "uniform": other, "alpha_const": other}
    return [(start(key, t0), grown(t if t0 else low, 1e-5)) for key, t in ends.items() for t0 in (0, 16)]


def continued(*counts):
    after = {branch_phase(factor): n for factor, n in zip((0.1, 1.0, 10.0), counts, strict=True)}
    return [(CONTINUED, {phase: samples.grown([n - 1.0], 1e-5, 1e-5) for phase, n in {"grown": 7, **after}.items()})]


def baseline(t):
    return [(BASELINE.with_seeds(range(50)), lambda seed: grown(t(seed), 1e-5))]


def schedules(**rows):
    """Write rows of table 4 with (t, soft, truncated); the baseline has its fifty seeds."""
    made = [(FOUR.runs[key], grown(*numbers)) for key, numbers in rows.items() if key != "baseline"]
    return [*made, (BASELINE.with_seeds(range(50)), grown(*rows.get("baseline", (6.0, 1e-5, 1e-5))))]


def decay(**rows):
    """Write rows of the decay table with (soft, truncated), and a baseline of 1e-5."""
    return [(BASELINE, grown(6.0, 1e-5)), *((DECAY.runs[key], grown(6.0, *errors)) for key, errors in rows.items())]


def accuracies(lost, seeds):
    """Write vision runs; the first ``seeds`` lose so many points by truncation and against fixed models."""

    def phases(seed):
        own = samples.grown([4.0], 90.0, 90.0 - lost * (seed < seeds), "accuracy")
        return {"grown": own, "fixed": samples.fixed(5, 90.0, "accuracy")}

    return [(runs, phases) for runs in EIGHT_FULL.runs.values()]


def layers(constant, both=6, error=3e-4, count=(1, 1, 3, 5)):
    rows = {"const-const": (constant, 2e-2), "const-inc": (10, 1e-3), "dec-inc": (both, error), "dec-const": (7, 2e-2)}
    return [
        (NINE.runs[key].with_seeds(range(SEEDS_OF_DEPTH)), grown(1.0, mse, depth=depth, count=count))
        for key, (depth, mse) in rows.items()
    ]


def manifolds(off):
    return [(runs, grown(int(D) - 1.0 + off, 1e-6, rank=int(D) + off)) for D, runs in FIFTEEN.runs.items()]


def chain(bad):
    runs = TEN.runs["recursive"].with_seeds(range(SEEDS_OF_DEPTH))
    return [(runs, lambda seed: grown(7.0, 2e-5, 3e-2 if seed < bad else 3e-5, depth=8))]


CHECKED = [*accuracies(0.0, 0), *layers(10), *chain(0)]
"""Runs of every row of tables 8 and 9."""


def two_learners(key, ours, our_error, theirs, error):
    """Write NGN and another learner, whose seeds keep these counts in turn."""
    return [
        (SEVEN.runs[name], lambda seed, counts=counts, mse=mse: grown(counts[seed % len(counts)] - 1.0, mse))
        for name, counts, mse in (("ngn", ours, our_error), (key, theirs, error))
    ]


def committed(cost=1.0, beta4=1e-5):
    """Write schedules to 6: committed with ``cost`` times the soft error truncated, others as the paper's errors."""
    soft = {**dict.fromkeys(FOUR.runs, 1e-5), "beta4": beta4}
    made = [(COMMITTED.runs[f"datafour_{key}_commit"], grown(6.0, x, cost * x)) for key, x in soft.items()]
    return made + schedules(no_alpha=(4.5, 1e-5, 9e-5), beta4=(4.0, 1e-5, 6e-4))


def tied(times):
    """Write boundaries that end ``times`` as far below 6 as the minimum of the penalty."""
    below = {kappa: times * float(np.arcsin(1 / (np.pi * kappa))) / (2 * np.pi) for kappa in (1, 3, 10)}
    return [(TIED.runs[f"constant_{kappa}"], grown(6.0 - apart, 1e-5)) for kappa, apart in below.items()]


def rows(table, numbers):
    """Write runs by row: truncated error, then the scores of smaller prefixes."""
    return [
        (table.runs[key], grown(float(len(prefixes) or 6), error, prefixes=prefixes))
        for key, (error, *prefixes) in numbers.items()
    ]


def budgets(cost=100.0, times=2.0):
    """Write models of this cost under budgets of 100 parameters, with ``times`` the error of fixed models."""
    made = []
    for count in range(3, 13):
        limited = grown(count - 1.0, times * 1e-5, budget={"kind": "parameters", "limit": 100.0, "cost": cost})
        made.append((BUDGETS.runs[f"one_d_{count}_budget"], limited))
        made.append((BUDGETS.runs[f"one_d_{count}_fixed"], {"fixed": samples.fixed(count, 1e-5)}))
    return made


def stories(high):
    """Write stories under budgets: grown sizes at 1.7 bits, sizes from all components at ``high`` bits."""
    return [
        (
            BUDGETS.runs[f"stories_{count}_{start}"],
            {"grown": samples.grown([count - 1.0] * 2, bits, bits, "bits_per_character")},
        )
        for count in (4, 8)
        for start, bits in (("budget", 1.7), ("high", high))
    ]


def ordered(order, whole, half):
    """Write an order under budgets of 4 and 8, with a multiple of the errors of r = ½."""
    errors = {"half": (1.0, 1.0), order: (whole, half)}
    made = {f"one_d_{n}_{key}": (a * 1e-5, *[b * 1e-2] * (n - 1)) for n in (4, 8) for key, (a, b) in errors.items()}
    return rows(ORDERED, made)


WIDE, NARROW = (5, 6, 7, 8), (7, 7, 7, 8)
OF_RUNS = {
    "knob": (sweep(40), sweep(40, falling=False)),
    # 40 prices are a factor of 10**(4 * 39 / 499) = 2.05; 10 one of 1.18
    "plateaus": (sweep(40), sweep(10)),
    "sweep_integers": (sweep(40), sweep(40, t_off=0.3)),
    "retarget": (continued(7, 6, 3), continued(9, 7, 7)),
    "baseline_integers": (baseline(lambda seed: 6.0), baseline(lambda seed: 6.5 if seed % 2 else 6.0)),
    "annealing": (schedules(lambda_const=(5.5, 1e-5, 1e-5)), schedules(lambda_const=(5.0, 1e-5, 1e-5))),
    "truncation_free": (schedules(), schedules(baseline=(6.0, 1e-5, 2e-5))),
    "constant_schedules": tuple(
        schedules(lambda_const=(5.5, 1e-5, 2e-5), alpha_const=(7.0, 1e-5, error)) for error in (5e-6, 1e-6)
    ),
    "gap": tuple(schedules(no_alpha=(4.5, 1e-5, 9e-5), beta4=(4.0, 1e-5, error)) for error in (6e-4, 1e-5)),
    "sharp_start": tuple(schedules(beta15=(t, 1e-5, 7e-4)) for t in (2.0, 6.0)),
    "quantile_cut": (decay(learn_r=(1e-6, 8.0)), decay(learn_r=(1e-6, 2e-6))),
    "normalised": tuple(decay(learn_r=(1e-6, 8.0), learn_r_normalized=(soft, 1.0)) for soft in (2e-2, 2e-6)),
    "vision_truncation": (accuracies(2.0, 1), accuracies(2.0, 10)),
    "vision_fixed": (accuracies(2.0, 1), accuracies(2.0, 10)),
    "depth": (layers(10), layers(8)),
    "depths": (layers(10), layers(10, both=7)),
    "identity_first": (layers(10), layers(10, count=(1, 3, 1, 5))),
    "dimension": (manifolds(0), manifolds(1)),
    "rank": (manifolds(0), manifolds(1)),
    "growth_ends": (sweep(200), sweep(20)),
    "snapping": tuple(schedules(no_alpha=(t, 1e-5, 1e-5), baseline=(u, 1e-5, 1e-5)) for t, u in ((4.5, 6), (5, 6.5))),
    "recursive": (chain(0), chain(20)),
    "frontier": (frontier(1.5), frontier(0.5)),
    "l0": (two_learners("l0", WIDE, 1e-5, WIDE, 1e-4), two_learners("l0", WIDE, 1e-5, WIDE, 1e-6)),
    "awnn_spread": (two_learners("awnn", WIDE, 1e-5, NARROW, 1e-4), two_learners("awnn", NARROW, 1e-5, WIDE, 1e-4)),
    "awnn_fit": (two_learners("awnn", WIDE, 1e-5, WIDE, 1e-4), two_learners("awnn", WIDE, 1e-5, WIDE, 1e-6)),
    "ste": (two_learners("ste", WIDE, 1e-5, (2, 3, 7), 1e-5), two_learners("ste", (2, 3, 7), 1e-5, WIDE, 1e-5)),
    "both_directions": (starts(6, 6.5, 14), starts(6, 14, 14)),
    "no_prune_r1": (starts(6, 6.5, 14), starts(6, 6.5, 6)),
    "no_prune_alpha": (starts(6, 6.5, 14), starts(6, 6.5, 6)),
    "commit_exact": (committed(), committed(cost=1.001)),
    "commit_fit": (committed(), committed(beta4=5e-4)),
    "tied_distance": (tied(1.3), tied(2.5)),
    "tied_fit": tuple(rows(TIED, {"baseline_0": (1e-5,), "baseline_3": (error,)}) for error in (1.4e-5, 4e-5)),
    "budget_met": (budgets(), budgets(cost=101.0)),
    "budget_used": (budgets(), budgets(cost=90.0)),
    "budget_fit": (budgets(), budgets(times=4.0)),
    "budget_high": (stories(1.69), stories(1.71)),
    "orders_power": (ordered("power", 0.5, 1.0), ordered("power", 0.1, 1.0)),
    "orders_needed": (ordered("none", 1.0, 5.0), ordered("none", 1.0, 2.0)),
    "orders_nested": (ordered("ranks", 3.0, 0.1), ordered("ranks", 0.8, 0.1)),
}
"""Claim → (runs that agree with it, runs that disagree)."""


def cell(name, n=None, **value):
    """Make a table cell with these numbers, from ``n`` seeds or from every published one."""
    of, row_key, column_key = name.split(".")
    table = macro(of)
    row = table.row(row_key)
    used = row.seeds if n is None else n
    numbers = {key.replace("__", "."): v for key, v in value.items()}
    made = Cell((RecordedRun(0, "run", {}),) * used, {}, (), numbers, DASH, row.seeds)
    published = value_of(table, row, column_key)
    return Comparison(table, row, table.column(column_key), made, published, Verdict(NOT_RUN))


def eight(column, values):
    rows = ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn")
    return [cell(f"dataeightbody.{row}.{column}", value=value) for row, value in zip(rows, values, strict=True)]


def truncated_stories(ratio):
    rows, scores = ("heads", "ffn", "joint", "mamba"), {"soft": 1.0, "truncated": ratio}
    return [cell(f"dataeightbody.stories-{row}.{key}", value=bits) for row in rows for key, bits in scores.items()]


Case = tuple[list[Comparison], str]
OF_CELLS = {
    # one row is proof that there is some; four rows without one do not prove that there is none
    "vision_prune": (
        (eight("prunes_back", [YES, PARTIAL, NO, YES]), AGREES),
        (eight("prunes_back", [YES] * 4), CANNOT_TELL),
    ),
    # single runs have no interval
    "stories_truncation": ((truncated_stories(1.02), CANNOT_TELL), (truncated_stories(1.2), CANNOT_TELL)),
}
"""Claim → two sets of cells with the verdicts on them."""

PUBLISHED = [cell(f"datafourbody.{row}.integer", 0) for row in ("baseline", "lambda_const")]
PUBLISHED += [cell(f"datasevenfullbody.{row}.{of}", 0) for row in ("awnn", "ste", "l0") for of in ("t", "truncated")]
PUBLISHED += [cell(f"{table.name}.{key}.t", 0) for table in (NINE, TEN) for key in table.runs]
PUBLISHED += [cell(f"{NINE.name}.{key}.depth", 0) for key in ("dec-inc", "dec-const")]
PUBLISHED += [cell(f"{FIFTEEN.name}.{D}.exact", 0) for D in FIFTEEN.runs]
"""Cells of which only the published number, the verdict and the runs are read."""
