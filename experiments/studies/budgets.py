"""Sizes under budgets, beside the fixed models that define the budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.analysis.claims import ABOVE, Claims, Estimate, Outcome, Tally, none
from experiments.analysis.collect import Reader
from experiments.analysis.estimates import mean, median, share
from experiments.analysis.evidence import Evidence
from experiments.analysis.figures import Data, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array
from experiments.analysis.tables import MEDIAN_MSE, OwnTable, Row, column, row
from experiments.studies.model import study_of


def at_budget(
    key: str,
    title: str,
    method: str,
    choices: Mapping[str, str],
    count: Any,
    score: str,
    form: str,
    seeds: int,
    overrides: Mapping[str, Any] | None = None,
) -> Row:
    """Select runs under the budget of a fixed model with ``count`` components, or that model."""
    phase = "fixed" if method == "fixed" else "grown"
    runs = Selection.of({**choices, "method": method}, {"method.count": count, **(overrides or {})}, range(seeds))
    quantities = {"count": f"{phase}_total", "parameters": f"{phase}.parameters.deployed"}
    quantities["truncated"] = f"{phase}.truncated.{score}"
    formats = {"truncated": (form,), "half": (form,)}
    dashes = ["half"] if method == "fixed" else []
    return row(key, title, seeds=seeds, runs=runs, formats=formats, quantities=quantities, dashes=dashes)


def _pair(key: str, label: str, choices: Mapping[str, str], count: Any, score: str, form: str, seeds: int) -> list[Row]:
    """Make rows for runs under the budget of a fixed model, and for that model."""
    size = count if isinstance(count, int) else " + ".join(map(str, count))
    return [
        at_budget(f"{key}_{method}", f"{label}, {said} {size}", method, choices, count, score, form, seeds)
        for method, said in (("budget", "budget of"), ("fixed", "fixed"))
    ]


def _budgets() -> Iterator[Row]:
    one_d = {"task": "regression1d", "gate": "mlp"}
    for count in range(3, 13):
        yield from _pair(f"one_d_{count}", "1D", one_d, count, "mse", MEDIAN_MSE, 10)
    for task, counts in (("mnist", (2, 4, 6)), ("cifar10", (4, 8))):
        for count in counts:
            choices = {"task": task, "gate": "conv"}
            yield from _pair(f"{task}_{count}", task, choices, count, "accuracy", "<median:.2f>", 10)
    for count in (8, 4):
        choices, both = {"task": "tinystories", "gate": "slices"}, (count, count)
        scored = choices, both, "bits_per_character", "<median:.4f>", 10
        yield from _pair(f"stories_{count}", "TinyStories", *scored)
        label = f"TinyStories, budget of {count} + {count}, from all sixteen"
        yield at_budget(f"stories_{count}_high", label, "budget", *scored, {"gate.t0": 15.0})


BUDGETS = OwnTable(
    "budget",
    "Sizes under a budget, beside fixed models of it",
    (
        column("count", "kept", "grown_total", "<mean:.1f>"),
        column("parameters", "parameters", "grown.parameters.deployed", "<mean:.0f>"),
        column("truncated", "score", "grown.truncated.mse", MEDIAN_MSE),
    ),
    tuple(_budgets()),
    text="Sizes follow a limit that reaches the budget at 40 % of training. Where there are two, they part only on "
    "evidence. The deployed model has at most the parameters of a fixed model of the count named. The row below each "
    "is that fixed model. Mean count and parameters, median score. Under a budget, CIFAR-10 and TinyStories ran on a "
    "GPU; all other rows ran on a CPU.",
    rank=14,
)

BUDGET = study_of(BUDGETS, "sizes under budgets of 3 to 12 components, and fixed models", 303, 1)

_SIDE = {"budget": -0.08, "fixed": 0.08, "high": 0.0}
"""Horizontal offset of each series within a budget."""
_SERIES = {"budget": "under the budget", "fixed": "fixed", "high": "under the budget, from all components"}
PANELS = {
    task: Panel(
        "components of the fixed model", label, title, ylog=task == "one_d", series=tuple(_SERIES.values())[:number]
    )
    for task, title, label, number in (
        ("one_d", "1D", "MSE", 2),
        ("mnist", "MNIST, branches", "MNIST test accuracy (%)", 2),
        ("cifar10", "CIFAR-10, branches", "CIFAR-10 test accuracy (%)", 2),
        ("stories", "TinyStories slice, per layer", "bits per character", 3),
    )
}


def _make(reader: Reader) -> Data:
    quantities = {row.key: [BUDGETS.quantity(row, "truncated")] for row in BUDGETS.rows}
    gathered = gather(reader, BUDGETS.runs, quantities, own_data=True)
    points: list[Point] = []
    for key, group in gathered.groups.items():
        task, count, method = key.rsplit("_", 2)
        if group.runs:
            low, middle, high = np.quantile(group.of(quantities[key][0]), (0.25, 0.5, 0.75))
            point = Point(_SERIES[method], int(count), float(middle), group.run_ids, task, float(low), float(high))
            points.append(replace(point, shift=_SIDE[method]))
    points.sort(key=lambda point: point.x)
    return gathered.data(points, notes=["median over seeds, bars: quartiles; truncated models within the budget"])


SPEC = Spec("budgets", "Under a budget, beside fixed models", PANELS, _make, 4.6, 2, section="one_d", rank=20)
claim = Claims(1500)
_BITS = "grown.truncated.bits_per_character"
_COUNTS = range(3, 13)
_AGAIN = "before results; judged again on new runs"


def _spent(evidence: Evidence) -> tuple[Array, Array]:
    """Cost and budget of every budgeted run of the 1D study, each of shape [runs]."""
    runs = [BUDGETS.runs[f"one_d_{count}_budget"] for count in _COUNTS]
    samples = evidence.samples(runs, ["grown.budget.cost", "grown.budget.limit"], "1D budgets")
    return samples["grown.budget.cost"], samples["grown.budget.limit"]


@claim("budget_met", "study budget", _AGAIN, by_construction=True)
def _met(evidence: Evidence) -> Outcome:
    """No model of the 1D study is above its budget."""
    cost, limit = _spent(evidence)
    return Outcome([none("models above their budget", int((cost > limit).sum()))], f"{len(cost)} models")


@claim("budget_used", "study budget", _AGAIN, by_construction=True)
def _used(evidence: Evidence) -> Outcome:
    """At least two thirds of the models of the 1D study use all of their budget."""
    cost, limit = _spent(evidence)
    used = int((cost == limit).sum())
    because = f"{used} of {len(cost)} models, the least used {np.min(cost / limit):.0%}"
    return Outcome([Estimate("share that use all", share(used, len(cost)), 2 / 3, spec=".1%")], because)


@claim("budget_fit", "study budget", _AGAIN)
def _budget_fit(evidence: Evidence) -> Outcome:
    """At most budgets of 3 to 12 components the 1D error is within a factor of three of the fixed model's of that
    size, same seed, in the median."""
    ratios = {}
    for count in _COUNTS:
        limited, alone = (BUDGETS.runs[f"one_d_{count}_{method}"] for method in ("budget", "fixed"))
        ratios[count] = evidence.ratios(limited, alone, "truncated", f"budget of {count}")
    near = tuple(Estimate(f"budget {count}", median(ratio), most=3) for count, ratio in ratios.items())
    listed = ", ".join(f"{count}: {np.median(ratio):.2g}" for count, ratio in ratios.items())
    because = f"over the fixed model's error, by count: {listed}"
    return Outcome([Tally("budgets within a factor of three", near, len(near) // 2 + 1)], because)


@claim("budget_high", "study budget", "before the runs from all components; pairs since 2026-11-25, after results")
def _high(evidence: Evidence) -> Outcome:
    """On TinyStories sizes that start from all components are better under a budget than grown ones, at both budgets:
    fewer bits per character, same seed, in the mean."""
    parts = []
    for count in (8, 4):
        grown, high = (BUDGETS.runs[f"stories_{count}_{start}"] for start in ("budget", "high"))
        before, after = evidence.pairs(grown, high, _BITS, f"budget of {count} + {count}")
        what = f"bits saved, {count} + {count}, {len(before)} seeds"
        parts.append(Estimate(what, mean(before - after), ABOVE, spec=".3f"))
    return Outcome(parts)
