"""Look up the measured numbers of one run by name.

A name is a path into the phases of the record (``grown.truncated.mse``), a path into its configuration
(``config.gate.r``), or a key of :data:`NAMED`. ``wanda/score`` is the score of the companion ``wanda``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from experiments.analysis.collect import Problem, RecordedRun
from experiments.analysis.formats import WORDS
from experiments.analysis.significance import wilson_interval
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


def _mean(path: str) -> Callable[[RecordedRun], float]:
    """Return the mean over the run's boundaries; of flags, the fraction that is true."""
    return lambda run: sum(found := _path(run, path)) / len(found)


def _total(phase: str) -> Callable[[RecordedRun], float]:
    """Return the number of retained components over all groups."""
    return lambda run: float(sum(_path(run, f"{phase}.count")))


def _exact(run: RecordedRun) -> float:
    """Return whether the learned count of a manifold run equals the intrinsic dimension."""
    (count,) = _path(run, "grown.count")
    return float(count == _path(run, "config.task.D"))


def _half(run: RecordedRun) -> float:
    """Return the score of the first half of the retained components, rounded down, but of at least one."""
    most = max(_path(run, "grown.count")) // 2
    return float(_path(run, "grown.prefixes")[most - 1]) if most else _score("truncated")(run)


def _phase_of(run: RecordedRun) -> str:
    """Return the main phase of a run: the selected one, the learned one, or the only one of a plain model."""
    return run.phase or ("grown" if "grown" in run.record["phases"] else "fixed")


def _primary(run: RecordedRun, scores: str) -> float:
    """Return the first of the task's scores, which is its main one."""
    return float(next(iter(_path(run, scores).values())))


def _of_phase(path: str) -> Callable[[RecordedRun], float]:
    """Return a number of the main phase."""
    return lambda run: float(_path(run, f"{_phase_of(run)}.{path}"))


def _score(form: str) -> Callable[[RecordedRun], float]:
    return lambda run: _primary(run, f"{_phase_of(run)}.{form}")


def _target(run: RecordedRun) -> float:
    """Return the total count that a run was given, or that it learned."""
    return float(run.record["config"]["method"].get("target", _of_phase("sizes.total")(run)))


def _examples(run: RecordedRun) -> float:
    """Return the number of examples that the first score averages over."""
    phase = _phase_of(run)
    return float(_path(run, f"{phase}.n.{next(iter(_path(run, f'{phase}.truncated')))}"))


def _wilson(end: int) -> Callable[[RecordedRun], float]:
    def of(run: RecordedRun) -> float:
        return 100 * wilson_interval(_score("truncated")(run) / 100, int(_examples(run)), 0.05)[end]

    return of


def _relative(phase: str | None = None) -> Callable[[RecordedRun], float]:
    """Return the perplexity on general text, relative to the pretrained model."""

    def of(run: RecordedRun) -> float:
        own = _path(run, f"{phase or _phase_of(run)}.truncated.perplexity")
        return float(own / _path(run.companions["base"], "fixed.truncated.perplexity"))

    return of


THIRDS = ("early", "middle", "late")


def _kept(*thirds: str) -> Callable[[RecordedRun], float]:
    """Return the percentage of attention and feed-forward weights left in these thirds of the layers."""

    def of(run: RecordedRun) -> float:
        pairs = [_path(run, f"{_phase_of(run)}.kept.{third}") for third in thirds]
        return 100 * sum(left for left, _ in pairs) / sum(before for _, before in pairs)

    return of


def _blocks(*thirds: str) -> Callable[[RecordedRun], float]:
    """Return the percentage of blocks left in these thirds of the layers, for a model pruned in one kind."""

    def of(run: RecordedRun) -> float:
        gate = _path(run, "config.gate")
        (kind,) = gate["kinds"].values()
        layers = dict(zip(THIRDS, split([1] * gate["layers"]), strict=True))
        left = sum(_path(run, f"{_phase_of(run)}.sizes.{third}") for third in thirds)
        return float(100 * left / (kind["K"] * sum(layers[third] for third in thirds)))

    return of


NAMED: dict[str, Callable[[RecordedRun], float]] = {
    "integer": _mean("grown.integer"),
    "mean_t": _mean("grown.t"),
    "grown_total": _total("grown"),
    "fixed_total": _total("fixed"),
    "prunes_back": lambda run: float(WORDS.index(_path(run, "from_high.prunes_back.outcome"))),
    "exact": _exact,
    "half": _half,
    # of models that adapt a pretrained one
    "size": _of_phase("sizes.total"),
    "early": _of_phase("sizes.early"),
    "mid": _of_phase("sizes.middle"),
    "late": _of_phase("sizes.late"),
    "kept": _kept(*THIRDS),
    **{f"kept_{third}": _kept(third) for third in THIRDS},
    "blocks": _blocks(*THIRDS),
    **{f"blocks_{third}": _blocks(third) for third in THIRDS},
    "soft": _score("soft"),
    "truncated": _score("truncated"),
    "score": _score("truncated"),
    "fixed_score": lambda run: _primary(run, "fixed.truncated"),
    "nats": _of_phase("truncated.nats"),
    "seconds": _of_phase("seconds"),
    "memory": _of_phase("peak_memory_mib"),
    "forgetting": _relative(),
    "fixed_forgetting": _relative("fixed"),
    "target": _target,
    "n": _examples,
    "low": _wilson(0),
    "high": _wilson(1),
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
    found = NAMED[quantity](run) if quantity in NAMED else _path(run, quantity)
    numbers = [float(number) for number in (found if isinstance(found, list) else [found])]
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise NotMeasured(Problem("damaged", run.run_id, f"{quantity} is not a finite number"))
    return numbers
