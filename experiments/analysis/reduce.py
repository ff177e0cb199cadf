"""Look up the measured numbers of a run by name, and reduce those of a row's runs to one cell.

A name is a path into the phases of the record (``grown.truncated.mse``), a path into its configuration
(``config.gate.r``), or a key of :data:`NAMED`. ``wanda/score`` is the score of the companion ``wanda``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from experiments.analysis.collect import Collected, Problem, Reader, RecordedRun
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import Array, statistic, wilson_interval
from experiments.analysis.tables import DASH, WORDS, Number, Row, Slot, Table, Value, parse_format
from experiments.tasks.language.components import thirds as split


class NotMeasured(Exception):
    """A run lacks a number; the exception carries the problem to report."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _phase(run: RecordedRun, name: str) -> Mapping[str, Any]:
    phase = run.record["phases"].get(name)
    if phase is None:
        diverged = run.record["status"] == "diverged"
        text = "training diverged before this phase" if diverged else "the record has no such phase"
        raise NotMeasured(Problem("diverged" if diverged else "unmeasured", run.run_id, f"{name}: {text}"))
    if phase["status"] != "complete":
        at = f" (first seen at step {phase['diverged_at']})" if "diverged_at" in phase else ""
        raise NotMeasured(Problem("diverged", run.run_id, f"{name}: training diverged{at}"))
    found: Mapping[str, Any] = phase
    return found


def _path(run: RecordedRun, path: str) -> Any:
    first, *rest = path.split(".")
    place: Any = run.record["config"] if first == "config" else _phase(run, first)
    for part in rest:
        if not isinstance(place, Mapping) or part not in place:
            kind = "diverged" if run.record["status"] == "diverged" else "unmeasured"
            raise NotMeasured(Problem(kind, run.run_id, f"the record has no {path}"))
        place = place[part]
    return place


def _mean(values: Sequence[float]) -> float:
    """Return the mean over the run's boundaries; of flags, the fraction that is true."""
    return sum(values) / len(values)


def _own(run: RecordedRun, path: str) -> Any:
    """Return what the main phase holds: the selected one, the learned one, or the only one of a plain model."""
    return _path(run, f"{run.phase or ('grown' if 'grown' in run.record['phases'] else 'fixed')}.{path}")


def _first(scores: Mapping[str, float]) -> float:
    """Return the first of the task's scores, which is its main one."""
    return next(iter(scores.values()))


def _half(run: RecordedRun) -> float:
    """Return the score of the first half of the retained components, rounded down, but of at least one."""
    most = max(_path(run, "grown.count")) // 2
    return float(_path(run, "grown.prefixes")[most - 1]) if most else _first(_own(run, "truncated"))


def _examples(run: RecordedRun) -> int:
    """Return the number of examples that the first score averages over."""
    return int(_own(run, f"n.{next(iter(_own(run, 'truncated')))}"))


def _wilson(run: RecordedRun) -> tuple[float, float]:
    """Return the ends of Wilson's 95 % interval of the first score, in percent."""
    low, high = wilson_interval(_first(_own(run, "truncated")) / 100, _examples(run), 0.05)
    return 100 * low, 100 * high


def _forgetting(run: RecordedRun, perplexity: float) -> float:
    """Return the perplexity on general text, relative to the pretrained model."""
    return perplexity / float(_path(run.companions["base"], "fixed.truncated.perplexity"))


THIRDS = ("early", "middle", "late")


def _kept(run: RecordedRun, thirds: Sequence[str] = THIRDS) -> float:
    """Return the percentage of attention and feed-forward weights left in these thirds of the layers."""
    pairs = [_own(run, f"kept.{third}") for third in thirds]
    return 100 * sum(left for left, _ in pairs) / sum(before for _, before in pairs)


def _blocks(run: RecordedRun, thirds: Sequence[str] = THIRDS) -> float:
    """Return the percentage of blocks left in these thirds of the layers, for a model pruned in one kind."""
    gate = _path(run, "config.gate")
    (kind,) = gate["kinds"].values()
    layers = dict(zip(THIRDS, split([1] * gate["layers"]), strict=True))
    left = sum(_own(run, f"sizes.{third}") for third in thirds)
    return float(100 * left / (kind["K"] * sum(layers[third] for third in thirds)))


NAMED: dict[str, Callable[[RecordedRun], float]] = {
    "integer": lambda run: _mean(_path(run, "grown.integer")),
    "mean_t": lambda run: _mean(_path(run, "grown.t")),
    "grown_total": lambda run: sum(_path(run, "grown.count")),
    "fixed_total": lambda run: sum(_path(run, "fixed.count")),
    "prunes_back": lambda run: WORDS.index(_path(run, "from_high.prunes_back.outcome")),
    "exact": lambda run: _path(run, "grown.count") == [_path(run, "config.task.D")],  # of the intrinsic dimension
    "half": _half,
    # of models that adapt a pretrained one
    "size": lambda run: _own(run, "sizes.total"),
    "early": lambda run: _own(run, "sizes.early"),
    "mid": lambda run: _own(run, "sizes.middle"),
    "late": lambda run: _own(run, "sizes.late"),
    "kept": _kept,
    **{f"kept_{third}": partial(_kept, thirds=[third]) for third in THIRDS},
    "blocks": _blocks,
    **{f"blocks_{third}": partial(_blocks, thirds=[third]) for third in THIRDS},
    "soft": lambda run: _first(_own(run, "soft")),
    "truncated": lambda run: _first(_own(run, "truncated")),
    "score": lambda run: _first(_own(run, "truncated")),
    "fixed_score": lambda run: _first(_path(run, "fixed.truncated")),
    "nats": lambda run: _own(run, "truncated.nats"),
    "seconds": lambda run: _own(run, "seconds"),
    "memory": lambda run: _own(run, "peak_memory_mib"),
    "forgetting": lambda run: _forgetting(run, _own(run, "truncated.perplexity")),
    "fixed_forgetting": lambda run: _forgetting(run, _path(run, "fixed.truncated.perplexity")),
    # the total that a run was given, or that it learned
    "target": lambda run: run.record["config"]["method"].get("target", _own(run, "sizes.total")),
    "n": _examples,
    "low": lambda run: _wilson(run)[0],
    "high": lambda run: _wilson(run)[1],
}

NEEDS_COMPANION = {"forgetting": "base", "fixed_forgetting": "base"}
"""Quantity → the companion that it is read from."""


def companion_of(quantity: str) -> str | None:
    """Return the companion that a quantity is read from or needs, or None."""
    first, beside, _ = quantity.partition("/")
    return first if beside else NEEDS_COMPANION.get(quantity)


def quantity_of(run: RecordedRun, quantity: str) -> list[float]:
    """Return a quantity of one run: one number, or one per gate.

    Raises:
        NotMeasured: if the phase diverged, or the number is missing or not finite.
    """
    beside, nested, rest = quantity.partition("/")
    if nested:
        if beside not in run.companions:
            raise NotMeasured(Problem("missing", run.run_id, f"its {beside} is not run"))
        return quantity_of(run.companions[beside], rest)
    value = NAMED[quantity](run) if quantity in NAMED else _path(run, quantity)
    numbers = [float(number) for number in (value if isinstance(value, list) else [value])]
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise NotMeasured(Problem("damaged", run.run_id, f"{quantity} is not a finite number"))
    return numbers


@dataclass(frozen=True)
class RunSample:
    """Quantities of those runs that have all of them.

    Attributes:
        numbers: quantity → array of shape [gates, runs]; empty without runs.
        problems: of the other runs.
    """

    runs: tuple[RecordedRun, ...]
    numbers: Mapping[str, Array]
    problems: tuple[Problem, ...]

    @property
    def n(self) -> int:
        """The number of runs."""
        return len(self.runs)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The run ids, in the order of the numbers."""
        return tuple(run.run_id for run in self.runs)

    def of(self, quantity: str) -> Array:
        """The numbers of a quantity that has one per run, shape [runs]."""
        return self.numbers[quantity][0] if self.runs else np.empty(0)


@dataclass(frozen=True)
class Cell(RunSample):
    """One cell, reduced from records.

    Attributes:
        value: over the usable seeds; None if there are none. Only a ``complete`` cell prints it in the paper.
        wanted: the number of all seeds.
    """

    value: Value | None
    text: str
    wanted: int

    @property
    def complete(self) -> bool:
        """Whether every wanted seed was used. A seed with any problem is not used."""
        return self.value is not None and self.n == self.wanted

    @property
    def printed(self) -> str:
        """The text in the paper's file."""
        return self.text if self.complete else DASH


def sample(collected: Collected, quantities: Iterable[str], several: Collection[str] = ()) -> RunSample:
    """Return the quantities of all runs that have them.

    Args:
        several: quantities that may have several numbers per run, one per gate.
    """
    quantities = list(dict.fromkeys(quantities))
    problems = list(collected.problems)
    needed = dict.fromkeys(companion for companion in map(companion_of, quantities) if companion is not None)
    for companion in needed:
        problems += collected.companion_problems[companion]
    used: list[RecordedRun] = []
    found: list[dict[str, list[float]]] = []
    for run in collected.runs:
        if not needed.keys() <= run.companions.keys():
            continue
        try:
            measured = {quantity: quantity_of(run, quantity) for quantity in quantities}
        except NotMeasured as lack:
            problems.append(lack.problem)
            continue
        if any(len(numbers) > 1 for quantity, numbers in measured.items() if quantity not in several):
            problems.append(Problem("unmeasured", run.run_id, "has several gates where the table has one"))
        elif found and any(len(numbers) != len(found[0][quantity]) for quantity, numbers in measured.items()):
            problems.append(Problem("unmeasured", run.run_id, "has another number of gates than the other seeds"))
        else:
            used.append(run)
            found.append(measured)
    numbers = {name: np.array([each[name] for each in found], dtype=np.float64).T for name in quantities if found}
    return RunSample(tuple(used), numbers, tuple(dict.fromkeys(problems)))


def _applied(slot: Slot, samples: Array) -> Number | list[Number]:
    """Compute a slot's statistic over ``samples`` [gates, seeds]: one number, or a list with one per gate."""
    numbers: list[Number] = [float(number) for number in np.atleast_1d(statistic(slot.statistic, samples))]
    if slot.separator is not None:
        return numbers
    (one,) = numbers  # a run with several gates was no part of the sample
    return one


def reduce_cell(reader: Reader, table: Table, row: Row, column: str, selection: Selection | None = None) -> Cell:
    """Reduce the records of a row to the value of one of its columns.

    Args:
        selection: runs to use instead of the row's own, such as a stand-in's.
    """
    runs = selection or row.runs
    if column in row.dashes:
        return Cell((), {}, (), None, DASH, 0)
    form = parse_format(table.formats(row, column)[0])
    of = {slot: slot.quantity(table.quantity(row, column)) for slot in form.slots}
    single = {quantity for slot, quantity in of.items() if slot.separator is None}
    found = sample(reader.collect(runs), of.values(), set(of.values()) - single)
    value = {slot.name: _applied(slot, found.numbers[quantity]) for slot, quantity in of.items()} if found.n else None
    text = DASH if value is None else form.render(value)
    return Cell(found.runs, found.numbers, found.problems, value, text, len(runs.seeds))


def reduce_row(reader: Reader, table: Table, row: Row) -> tuple[Cell, ...]:
    """Reduce the records of a row to one cell per column."""
    return tuple(reduce_cell(reader, table, row, column.key) for column in table.columns)
