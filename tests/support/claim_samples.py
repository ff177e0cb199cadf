"""Made-up evidence that agrees or disagrees with a claim: cells of tables, and runs. No training, no torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import record_samples as samples

from experiments.analysis.compare import Comparison
from experiments.analysis.formats import DASH
from experiments.analysis.published import load_published, value_of
from experiments.analysis.reduce import Cell
from experiments.analysis.selection import Selection, selected_runs
from experiments.analysis.statistics import NO, PARTIAL, YES
from experiments.analysis.tables import Table
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, NOT_RUN, Verdict
from experiments.config.schema import branch_phase
from experiments.store.records import Store
from experiments.studies import MACROS, study
from experiments.studies.budgets import BUDGETS
from experiments.studies.commit import COMMITTED, TIED
from experiments.studies.decay import DECAY
from experiments.studies.depth import NINE, SEEDS_OF_DEPTH, TEN
from experiments.studies.learners import SEVEN
from experiments.studies.one_d import BASELINE
from experiments.studies.orders import ORDERED
from experiments.studies.peft import SMALL, TASKS, learned
from experiments.studies.prices import CONTINUED
from experiments.studies.pruning import TARGETS
from experiments.studies.pruning_small import LADDER_RUNS
from experiments.studies.schedules import FOUR
from experiments.studies.standins import ASKED_RUNS, PRICED_RUNS, SNAPPED_RUNS, STRONG_RUNS, TRAINED_RUNS, UPDATED_RUNS
from experiments.studies.vision import EIGHT


def cell(name: str, n: int | None = None, **value: Any) -> tuple[str, Comparison]:
    """Make a table cell with these numbers, from ``n`` seeds or from every published one."""
    macro, row_key, column_key = name.split(".")
    (table,) = [table for table in MACROS if table.name == macro]
    row = table.row(row_key)
    used = row.seeds if n is None else n
    made = Cell(value, DASH, used, row.seeds, {}, ("run",) * used, ())
    published = value_of(load_published(), table, row, column_key)
    return name, Comparison(table, row, table.column(column_key), made, published, Verdict(NOT_RUN))


def prunes_back(*values: Any) -> dict[str, Comparison]:
    rows = ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn")
    return dict(cell(f"dataeightbody.{row}.prunes_back", value=value) for row, value in zip(rows, values, strict=True))


def stories(ratio: float) -> dict[str, Comparison]:
    rows, values = ("heads", "ffn", "joint", "mamba"), {"soft": 1.0, "truncated": ratio}
    return dict(cell(f"dataeightbody.stories-{row}.{key}", value=one) for key, one in values.items() for row in rows)


def dimensions(last: float) -> dict[str, Comparison]:
    rates = {1: 100.0, 2: 100.0, 4: 100.0, 6: 100.0, 8: last}
    return dict(cell(f"datafifteenbody.{d}.exact", rate=rate) for d, rate in rates.items())


Case = tuple[dict[str, Comparison], str]
OF_CELLS: dict[str, tuple[Case, Case]] = {
    "dimension": ((dimensions(90.0), AGREES), (dimensions(20.0), DISAGREES)),
    # one row is proof that there is some; four rows without one do not prove that there is none
    "vision_prune": ((prunes_back(YES, PARTIAL, NO, YES), AGREES), (prunes_back(*[YES] * 4), CANNOT_TELL)),
    # single runs have no interval
    "stories_truncation": ((stories(1.02), CANNOT_TELL), (stories(1.2), CANNOT_TELL)),
}
"""Claim → two sets of cells with the verdicts on them."""

PUBLISHED = dict(cell(f"datafourbody.{row}.integer", 0) for row in ("baseline", "lambda_const"))
"""Cells of which only the published number is read."""


class Memory(Store):
    """A store in memory."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.records: dict[str, dict[str, Any]] = {}
        self.courses: dict[str, dict[str, np.ndarray]] = {}

    def get(self, run_id: str) -> dict[str, Any] | None:
        return self.records.get(run_id)

    def curves(self, run_id: str) -> dict[str, np.ndarray] | None:
        return self.courses.get(run_id)

    def write(self, record: Any, curves: Any = None, replace: bool = False) -> bool:
        self.records[record["run_id"]] = record
        if curves is not None:
            self.courses[record["run_id"]] = curves
        return True


Fill = Callable[[Memory], None]
Phases = Mapping[str, Any]
Entry = tuple[Selection, Phases | Callable[[int], Phases]]


def runs(make: Callable[..., Iterable[Entry]]) -> Callable[..., Fill]:
    """Turn a function that gives (runs, their phases or a function of the seed) into one that makes such a filling."""

    @functools.wraps(make)
    def made(*arguments: Any, **named: Any) -> Fill:
        def fill(store: Memory) -> None:
            for selection, phases in make(*arguments, **named):
                for run in selected_runs(selection):
                    own = phases(run.config.seed.value) if callable(phases) else phases
                    store.write(samples.record(run.config, own))

        return fill

    return made


def grown(selection: Selection, t: float, soft: float, truncated: float | None = None, **more: Any) -> Entry:
    return selection, {"grown": samples.grown([t], soft, soft if truncated is None else truncated) | more}


@runs
def sweep(steps: int, falling: bool = True, t_off: float = 0.0) -> Iterator[Entry]:
    """A staircase: every ``steps`` prices the count falls by one and the error doubles."""
    for at, selection in enumerate(study("lambda_sweep").make()):
        level = at // steps if falling else 0
        yield grown(selection, 20.0 - level + t_off, 1e-5 * 2.0**level)


@runs
def frontier(times: float) -> Iterator[Entry]:
    def learned(seed: int) -> Phases:
        error = times * 1e-4 / (5 + seed % 4)
        return {"grown": samples.grown([4.0 + seed % 4], error, error)}

    for selection in study("fixed_frontier").make():
        count = int(dict(selection.overrides).get("method.count", 0))
        yield selection, {"fixed": samples.fixed(count, 1e-4 / count)} if count else learned


@runs
def starts(low: float, high: float, other: float) -> Iterator[Entry]:
    """Boundaries that began at 0, at 16, and at 16 with another r or alpha."""
    for selection in study("init_sweep").make():
        start = dict(selection.overrides).get("gate.t0", 0.0)
        changed = "gate.r" in dict(selection.overrides) or dict(selection.choices)["schedule"] == "alpha_const"
        if start in (0.0, 16.0):
            yield grown(selection, low if start == 0 else other if changed else high, 1e-5)


@runs
def continued(*counts: int) -> Iterator[Entry]:
    """Runs of seven blocks that end with these counts after more training at a low, the same and a high price."""
    branches = zip((0.1, 1.0, 10.0), counts, strict=True)
    after = {branch_phase(factor): samples.grown([float(n - 1)], 1e-5, 1e-5) for factor, n in branches}
    yield CONTINUED, {"grown": samples.grown([6.0], 1e-5, 1e-5), **after}


@runs
def schedules(**rows: tuple[float, float, float]) -> Iterator[Entry]:
    """Rows of table 4 with (t, soft, truncated); the baseline has its fifty seeds."""
    for key, numbers in {"baseline": (6.0, 1e-5, 1e-5), **rows}.items():
        selection = FOUR.runs[key]
        yield grown(selection.with_seeds(range(50)) if key == "baseline" else selection, *numbers, r=[0.8])


@runs
def decay(**rows: tuple[float, float]) -> Iterator[Entry]:
    """Rows of the decay table with (soft, truncated), and a baseline of 1e-5."""
    yield grown(BASELINE, 6.0, 1e-5, r=[0.8])
    for key, numbers in rows.items():
        yield grown(DECAY.runs[key], 6.0, *numbers, r=[0.8])


@runs
def accuracies(lost: float, seeds: int) -> Iterator[Entry]:
    """Vision runs; the first ``seeds`` lose so many points by truncation and against fixed models."""

    def phases(seed: int) -> Phases:
        own = samples.grown([4.0], 90.0, 90.0 - lost * (seed < seeds), "accuracy")
        return {"grown": own, "fixed": samples.fixed(5, 90.0, "accuracy")}

    for key in ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn"):
        yield EIGHT.runs[key], phases


@runs
def layers(constant: int) -> Iterator[Entry]:
    """Runs of every schedule of table 9 with (depth, error)."""
    numbers = {"const-const": (constant, 2e-2), "const-inc": (10, 1e-3), "dec-inc": (6, 3e-4), "dec-const": (7, 2e-2)}
    for key, (depth, mse) in numbers.items():
        phase = {**samples.grown([1.0] * 10, mse, mse), "depth": depth}
        yield NINE.runs[key].with_seeds(range(SEEDS_OF_DEPTH)), {"grown": phase}


@runs
def chain(bad: int) -> Iterator[Entry]:
    def phases(seed: int) -> Phases:
        return {"grown": {**samples.grown([7.0], 2e-5, 3e-2 if seed < bad else 3e-5), "depth": 8}}

    yield TEN.runs["recursive"].with_seeds(range(SEEDS_OF_DEPTH)), phases


@runs
def baseline(odd: float = 6.0) -> Iterator[Entry]:
    """Fifty seeds of the baseline that end at 6, those with an odd number at ``odd``."""
    yield BASELINE.with_seeds(range(50)), lambda seed: {"grown": samples.grown([odd if seed % 2 else 6], 1e-5, 1e-5)}


def courses(highest: float) -> Fill:
    def fill(store: Memory) -> None:
        baseline()(store)
        curve = {"grown.t": np.array([[0.0], [highest], [6.0]])}
        store.courses |= {run.id: curve for run in selected_runs(BASELINE)}

    return fill


@runs
def two_learners(key: str, ours: Sequence[int], theirs: Sequence[int], error: float) -> Iterator[Entry]:
    """NGN with the error 1e-5 and another learner; the counts are those of the first seeds, which return."""
    for name, counts, mse in (("ngn", ours, 1e-5), (key, theirs, error)):

        def phases(seed: int, counts: Sequence[int] = counts, mse: float = mse) -> Phases:
            return {"grown": samples.grown([counts[seed % len(counts)] - 1.0], mse, mse)}

        yield SEVEN.runs[name], phases


def committed(cost: float = 1.0, beta4: float = 1e-5) -> Fill:
    """Committed schedules that end at 6, with a truncated error of ``cost`` times the soft error.

    Schedules without a commit have errors of the paper's form."""

    @runs
    def with_commit() -> Iterator[Entry]:
        for key in ("baseline", "lambda_const", "alpha_const", "no_alpha", "beta4", "beta15"):
            soft = beta4 if key == "beta4" else 1e-5
            yield grown(COMMITTED.runs[f"datafour_{key}_commit"], 6.0, soft, cost * soft, r=[0.8])

    def fill(store: Memory) -> None:
        schedules(no_alpha=(4.5, 1e-5, 9e-5), beta4=(4.0, 1e-5, 6e-4))(store)
        with_commit()(store)

    return fill


@runs
def tied(times: float) -> Iterator[Entry]:
    """Boundaries that end ``times`` as far below 6 as the minimum of the penalty."""
    for kappa in (1, 3, 10):
        below = times * float(np.arcsin(1 / (np.pi * kappa))) / (2 * np.pi)
        yield grown(TIED.runs[f"constant_{kappa}"], 6.0 - below, 1e-5)


@runs
def rows(table: Table, numbers: Mapping[str, tuple[float, ...]]) -> Iterator[Entry]:
    """Runs by row: truncated error, then the scores of smaller prefixes."""
    for key, (error, *prefixes) in numbers.items():
        yield grown(table.runs[key], float(len(prefixes) or 6), error, prefixes=prefixes)


@runs
def budgets(cost: float = 100.0, times: float = 2.0) -> Iterator[Entry]:
    """Models of this cost under budgets of 100 parameters, with ``times`` the error of fixed models."""
    limited = {"kind": "parameters", "limit": 100.0, "cost": cost}
    for count in range(3, 13):
        yield grown(BUDGETS.runs[f"one_d_{count}_budget"], count - 1.0, times * 1e-5, budget=limited)
        yield BUDGETS.runs[f"one_d_{count}_fixed"], {"fixed": samples.fixed(count, 1e-5)}


@runs
def stories_started(high: float) -> Iterator[Entry]:
    """Stories under budgets: grown sizes at 1.7 bits, sizes from all components at ``high`` bits."""
    for count in (4, 8):
        for start, bits in (("budget", 1.7), ("high", high)):
            phase = samples.grown([count - 1.0] * 2, bits, bits, "bits_per_character")
            yield BUDGETS.runs[f"stories_{count}_{start}"], {"grown": phase}


def ordered(order: str, whole: float, half: float) -> Fill:
    """Write an order under budgets of 4 and 8, with a multiple of the errors of r = ½."""
    numbers: dict[str, tuple[float, ...]] = {}
    for count in (4, 8):
        for key, a, b in (("half", 1.0, 1.0), (order, whole, half)):
            numbers[f"one_d_{count}_{key}"] = (a * 1e-5, *[b * 1e-2] * (count - 1))
    return rows(ORDERED, numbers)


def adapted(every: Iterable[Selection], **changes: Any) -> Fill:
    """Write SmolLM2-135M adapted: a learned size, its base model and its rivals."""

    def fill(store: Store) -> None:
        for selection in every:
            for seed in selection.seeds:
                samples.adapt(store, selection, seed, **changes)

    return fill


def beside_random(store: Store, selection: Selection, score: float) -> None:
    """Write the random neurons of pruned runs that are there, with this score."""
    (run,) = selected_runs(selection)
    record = store.get(run.id)
    for name, find in selection.companions:
        if record is not None and name.startswith("random"):
            beside = find(selection, 0, record)
            gate, counts = beside.config(0).gate, record["phases"]["grown"]["count"]
            samples.put(store, beside, 0, {"fixed": samples.answers(counts, gate, score, 30.0)})


def strong(ngn: float) -> Fill:
    """Write a pruned model with this score beside Wanda with 70 and random neurons with 17."""

    def fill(store: Store) -> None:
        samples.adapt(store, UPDATED_RUNS["ffn-updated"])
        samples.adapt(store, STRONG_RUNS["four"], score=ngn, rival=70.0)
        beside_random(store, STRONG_RUNS["four"], 17.0)

    return fill


def frozen(perplexity: float) -> Fill:
    """Write frozen models of this perplexity and updated ones of 30."""

    def fill(store: Store) -> None:
        for target in TARGETS:
            updated = (UPDATED_RUNS[f"{target}-updated"], LADDER_RUNS[f"{target}-updated-1e-2"])
            trained = [TRAINED_RUNS[f"{target}-trained-1e-{power}"] for power in (1, 2)]
            for selection, found in (*((each, 30.0) for each in updated), *((each, perplexity) for each in trained)):
                made = samples.adapt(store, selection)
                made["phases"]["grown"]["truncated"]["perplexity"] = found
                store.write(made, replace=True)

    return fill


def snapped(t: float) -> Fill:
    """Write adapters of two strengths of the snapping; boundaries of the weaker one all end at ``t``."""

    def fill(store: Store) -> None:
        adapted(SNAPPED_RUNS.values(), questions=20_000)(store)
        for task in TASKS.values():
            selection = learned(task, "adapter", choices=SMALL)
            for seed in selection.seeds:
                made = samples.adapt(store, selection, seed)
                made["phases"]["grown"]["t"] = [t] * len(made["phases"]["grown"]["t"])
                store.write(made, replace=True)

    return fill


WIDE, NARROW, FEW = (5, 6, 7, 8), (7, 7, 7, 8), (2, 3, 7)
OF_RUNS: dict[str, tuple[Fill, Fill]] = {
    "knob": (sweep(40), sweep(40, falling=False)),
    # 40 prices are a factor of 10**(4 * 39 / 499) = 2.05; 10 one of 1.18
    "plateaus": (sweep(40), sweep(10)),
    "sweep_integers": (sweep(40), sweep(40, t_off=0.3)),
    "retarget": (continued(7, 6, 3), continued(9, 7, 7)),
    "baseline_integers": (baseline(), baseline(6.5)),
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
    "recursive": (chain(0), chain(20)),
    "frontier": (frontier(1.5), frontier(0.5)),
    "l0": (two_learners("l0", WIDE, WIDE, 1e-4), two_learners("l0", WIDE, WIDE, 1e-6)),
    "awnn_spread": (two_learners("awnn", WIDE, NARROW, 1e-4), two_learners("awnn", NARROW, WIDE, 1e-4)),
    "awnn_fit": (two_learners("awnn", WIDE, WIDE, 1e-4), two_learners("awnn", WIDE, WIDE, 1e-6)),
    "ste": (two_learners("ste", WIDE, FEW, 1e-5), two_learners("ste", FEW, WIDE, 1e-5)),
    "overshoot": (courses(8.0), courses(6.1)),
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
    "budget_high": (stories_started(1.69), stories_started(1.71)),
    "orders_power": (ordered("power", 0.5, 1.0), ordered("power", 0.1, 1.0)),
    "orders_needed": (ordered("none", 1.0, 5.0), ordered("none", 1.0, 2.0)),
    "orders_nested": (ordered("ranks", 3.0, 0.1), ordered("ranks", 0.8, 0.1)),
    "prune_random_strong": (strong(70.0), strong(30.0)),
    "prune_frozen_trained": (frozen(29.0), frozen(31.0)),
    "adapter_close_snapped": (snapped(0.5), snapped(1.0)),
    "peft_baselines_asked": (adapted(ASKED_RUNS.values(), score=80.0), adapted(ASKED_RUNS.values(), score=20.0)),
    "peft_middle_prices": (adapted(PRICED_RUNS.values()), adapted(PRICED_RUNS.values(), third=2)),
}
"""Claim → (runs that agree with it, runs that disagree)."""
