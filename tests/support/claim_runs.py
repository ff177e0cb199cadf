"""Made-up runs that agree or disagree with a claim. No training, no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import record_samples as samples

from experiments.analysis.selection import Selection, selected_runs
from experiments.config.schema import branch_phase
from experiments.store.records import Store
from experiments.studies import study
from experiments.studies.decay import DECAY
from experiments.studies.depth import NINE, SEEDS_OF_DEPTH, TEN
from experiments.studies.learners import SEVEN
from experiments.studies.one_d import BASELINE
from experiments.studies.prices import CONTINUED
from experiments.studies.schedules import FOUR
from experiments.studies.vision import EIGHT


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

    def add(self, selection: Selection, phases: Callable[[int], Mapping[str, Any]]) -> None:
        for run in selected_runs(selection):
            self.records[run.id] = samples.record(run.config, phases(run.config.seed.value))


def learner(store: Memory, key: str, counts: Sequence[int], error: float) -> None:
    runs = SEVEN.row(key).runs
    assert runs is not None
    store.add(runs, lambda seed: {"grown": samples.grown([float(counts[seed % len(counts)] - 1)], error, error)})


def sweep(store: Memory, steps: int, falling: bool = True, t_off: float = 0.0) -> None:
    """Make a staircase: every ``steps`` prices the count falls by one and the error doubles."""
    for at, selection in enumerate(study("lambda_sweep").make()):
        level = at // steps if falling else 0
        t, error = float(20 - level) + t_off, 1e-5 * 2.0**level
        store.add(selection, lambda seed, t=t, error=error: {"grown": samples.grown([t], error, error)})  # type: ignore[misc]


def frontier(store: Memory, times: float) -> None:
    for selection in study("fixed_frontier").make():
        if dict(selection.choices)["method"] == "fixed":
            count = int(dict(selection.overrides)["method.count"])
            store.add(selection, lambda seed, n=count: {"fixed": samples.fixed(n, 1e-4 / n)})  # type: ignore[misc]
        else:
            store.add(
                selection,
                lambda seed: {
                    "grown": samples.grown(
                        [4.0 + seed % 4], times * 1e-4 / (5 + seed % 4), times * 1e-4 / (5 + seed % 4)
                    )
                },
            )


def starts(store: Memory, low: float, high: float, other: float) -> None:
    for selection in study("init_sweep").make():
        start = dict(selection.overrides).get("gate.t0", 0.0)
        if start not in (0.0, 16.0):
            continue
        changed = "gate.r" in dict(selection.overrides) or dict(selection.choices)["schedule"] == "alpha_const"
        t = low if start == 0 else other if changed else high
        store.add(selection, lambda seed, t=t: {"grown": samples.grown([t], 1e-5, 1e-5)})  # type: ignore[misc]


def continued(store: Memory, low: int, same: int, high: int) -> None:
    def phases(seed: int) -> dict[str, Any]:
        branches = zip((0.1, 1.0, 10.0), (low, same, high), strict=True)
        after = {branch_phase(factor): samples.grown([float(n - 1)], 1e-5, 1e-5) for factor, n in branches}
        return {"grown": samples.grown([6.0], 1e-5, 1e-5), **after}

    store.add(CONTINUED, phases)


def errors(store: Memory, selection: Selection, t: float, soft: float, truncated: float) -> None:
    store.add(selection, lambda seed: {"grown": {**samples.grown([t], soft, truncated), "r": [0.8]}})


def schedules(**rows: tuple[float, float, float]) -> Callable[[Memory], None]:
    """Write rows of table 4 with (t, soft, truncated); the baseline has its fifty seeds."""

    def fill(store: Memory) -> None:
        for key, numbers in {"baseline": (6.0, 1e-5, 1e-5), **rows}.items():
            runs = FOUR.row(key).runs
            assert runs is not None
            errors(store, runs.with_seeds(range(50)) if key == "baseline" else runs, *numbers)

    return fill


def decay(**rows: tuple[float, float]) -> Callable[[Memory], None]:
    """Write rows of the decay table with (soft, truncated), and a baseline of 1e-5."""

    def fill(store: Memory) -> None:
        errors(store, BASELINE, 6.0, 1e-5, 1e-5)
        for key, numbers in rows.items():
            runs = DECAY.row(key).runs
            assert runs is not None
            errors(store, runs, 6.0, *numbers)

    return fill


def accuracies(lost: float, seeds: int) -> Callable[[Memory], None]:
    """Write vision runs; the first ``seeds`` lose so many points by truncation and against fixed models."""

    def fill(store: Memory) -> None:
        for key in ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn"):
            runs = EIGHT.row(key).runs
            assert runs is not None
            store.add(
                runs,
                lambda seed: {
                    "grown": samples.grown([4.0], 90.0, 90.0 - lost * (seed < seeds), "accuracy"),
                    "fixed": samples.fixed(5, 90.0, "accuracy"),
                },
            )

    return fill


def layers(constant: int, both: int = 6, error: float = 3e-4) -> Callable[[Memory], None]:
    def fill(store: Memory) -> None:
        for key, depth, mse in (
            ("const-const", constant, 2e-2),
            ("const-inc", 10, 1e-3),
            ("dec-inc", both, error),
            ("dec-const", 7, 2e-2),
        ):
            runs = NINE.row(key).runs
            assert runs is not None
            phase = {**samples.grown([1.0] * 10, mse, mse), "depth": depth}
            store.add(runs.with_seeds(range(SEEDS_OF_DEPTH)), lambda seed, phase=phase: {"grown": phase})  # type: ignore[misc]

    return fill


def chain(bad: int) -> Callable[[Memory], None]:
    def fill(store: Memory) -> None:
        runs = TEN.row("recursive").runs
        assert runs is not None
        store.add(
            runs.with_seeds(range(SEEDS_OF_DEPTH)),
            lambda seed: {"grown": {**samples.grown([7.0], 2e-5, 3e-2 if seed < bad else 3e-5), "depth": 8}},
        )

    return fill


def baseline(store: Memory, t: Callable[[int], float]) -> None:
    store.add(BASELINE.with_seeds(range(50)), lambda seed: {"grown": samples.grown([t(seed)], 1e-5, 1e-5)})


def courses(store: Memory, highest: float) -> None:
    baseline(store, lambda seed: 6.0)
    for run in selected_runs(BASELINE):
        store.courses[run.id] = {"grown.t": np.array([[0.0], [highest], [6.0]])}


def two_learners(
    key: str, ours: Sequence[int], our_error: float, theirs: Sequence[int], error: float
) -> Callable[[Memory], None]:
    def fill(store: Memory) -> None:
        learner(store, "ngn", ours, our_error)
        learner(store, key, theirs, error)

    return fill


WIDE, NARROW = (5, 6, 7, 8), (7, 7, 7, 8)
OF_RUNS: dict[str, tuple[Callable[[Memory], None], Callable[[Memory], None]]] = {
    "knob": (lambda s: sweep(s, 40), lambda s: sweep(s, 40, falling=False)),
    # 40 prices are a factor of 10**(4 * 39 / 499) = 2.05; 10 one of 1.18
    "plateaus": (lambda s: sweep(s, 40), lambda s: sweep(s, 10)),
    "sweep_integers": (lambda s: sweep(s, 40), lambda s: sweep(s, 40, t_off=0.3)),
    "retarget": (lambda s: continued(s, 7, 6, 3), lambda s: continued(s, 9, 7, 7)),
    "baseline_integers": (
        lambda s: baseline(s, lambda seed: 6.0),
        lambda s: baseline(s, lambda seed: 6.5 if seed % 2 else 6),
    ),
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
    "frontier": (lambda s: frontier(s, 1.5), lambda s: frontier(s, 0.5)),
    "l0": (two_learners("l0", WIDE, 1e-5, WIDE, 1e-4), two_learners("l0", WIDE, 1e-5, WIDE, 1e-6)),
    "awnn_spread": (two_learners("awnn", WIDE, 1e-5, NARROW, 1e-4), two_learners("awnn", NARROW, 1e-5, WIDE, 1e-4)),
    "awnn_fit": (two_learners("awnn", WIDE, 1e-5, WIDE, 1e-4), two_learners("awnn", WIDE, 1e-5, WIDE, 1e-6)),
    "ste": (two_learners("ste", WIDE, 1e-5, (2, 3, 7), 1e-5), two_learners("ste", (2, 3, 7), 1e-5, WIDE, 1e-5)),
    "overshoot": (lambda s: courses(s, 8.0), lambda s: courses(s, 6.1)),
    "both_directions": (lambda s: starts(s, 6, 6.5, 14), lambda s: starts(s, 6, 14, 14)),
    "no_prune_r1": (lambda s: starts(s, 6, 6.5, 14), lambda s: starts(s, 6, 6.5, 6)),
    "no_prune_alpha": (lambda s: starts(s, 6, 6.5, 14), lambda s: starts(s, 6, 6.5, 6)),
}
