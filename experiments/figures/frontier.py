"""Accuracy against count in vision and graphs: fixed models of every count, and learned models.

The paper has no such figure. It shows whether a learned count is a good choice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.analysis import published
from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather, spread
from experiments.analysis.published import value_of
from experiments.analysis.selection import Selection
from experiments.studies import study
from experiments.tables.transfer import EIGHT

FIXED, FROM_LOW, FROM_HIGH = "fixed", "learned from low", "learned from high"
PANELS = {"": Panel("retained count", "test accuracy (%)", lanes=True, series=(FIXED, FROM_LOW, FROM_HIGH))}
_SIDE = {FROM_LOW: -0.27, FROM_HIGH: 0.27}
"""Horizontal offset of a learned series within a count; the fixed series is on the tick."""


def _selections(task: str, gate: str) -> tuple[Selection, dict[str | int, Selection]]:
    """Select the ten learned seeds of a row of table 8, and its fixed runs by count."""
    of = {"task": task, "gate": gate}
    (learned,) = [s for s in study("vision").make() if dict(s.choices).items() >= of.items()]
    alone = [s for s in study("vision_frontier").make() if dict(s.choices).items() >= of.items()]
    return learned, {dict(s.overrides)["method.count"]: s for s in alone}


def _make(task: str, gate: str, reader: Reader, overrides: Mapping[str, Any]) -> Data:
    learned, alone = _selections(task, gate)
    phases = {FIXED: "fixed", FROM_LOW: "grown", FROM_HIGH: "from_high"}
    selections = alone | dict[str | int, Selection](dict.fromkeys(phases, learned))
    quantities = {
        key: [f"{phase}.count", f"{phase}.truncated.accuracy"]
        for key in selections
        for phase in [phases[key] if isinstance(key, str) else "fixed"]
    }
    gathered = gather(reader, selections, quantities, overrides)
    pooled: dict[float, dict[int, tuple[str, float]]] = defaultdict(dict)
    points: list[Point] = []
    for key, group in gathered.groups.items():
        counts, accuracies = (group.values.get(name, ()) for name in quantities[key])
        found = [(run, float(x), float(y)) for run, x, y in zip(group.runs, counts, accuracies, strict=True)]
        if key in _SIDE:
            points += spread((Point(str(key), x, y, (run.run_id,)) for run, x, y in found), 0.18, _SIDE[str(key)])
            continue
        for run, count, accuracy in found:
            # the fixed phase of a learned run equals the fixed run of that count and seed
            pooled[count].setdefault(run.seed, (run.run_id, accuracy))
    for count, seeds in sorted(pooled.items()):
        values = np.array([value for _, value in seeds.values()])
        mean, sd = float(values.mean()), float(values.std(ddof=0))
        ends = (mean - sd, mean + sd) if len(values) > 2 else (None, None)
        points.append(Point(FIXED, count, mean, tuple(name for name, _ in seeds.values()), "", *ends))
    engines: dict[str, set[int]] = defaultdict(set)
    for key, group in gathered.groups.items():
        if key not in _SIDE:
            for run in group.runs:
                engines[run.record["execution"]["engine"]].add(run.record["phases"]["fixed"]["count"][0])
    notes = [
        "fixed: mean over the seeds; bars: one standard deviation, where there are three seeds",
        "published: the median; learned: truncated, one point per seed, spread sideways within its count",
    ]
    if len(engines) > 1:
        each = (f"{engine} ({', '.join(map(str, sorted(counts)))})" for engine, counts in sorted(engines.items()))
        notes.append(f"fixed models were trained by two engines, which round differently: {'; '.join(each)}")
    return gathered.data(points, lines=[_published(task, gate)], notes=notes)


def _published(task: str, gate: str) -> Line:
    """Draw the published median accuracy of the truncated model as a line at the published median count."""
    values = {
        name: value_of(published.load_published(), EIGHT, EIGHT.row(f"{task}-{gate}"), name)
        for name in ("t", "truncated")
    }
    t, accuracy = (np.ravel(value[1]["median"]) for value in values.values() if value is not None)
    count = np.floor(t + 0.5) + 1
    return Line("published, from low", count + np.array([-0.5, 0.5]), np.repeat(accuracy, 2))


def _spec(task: str, gate: str, title: str, rank: int) -> Spec:
    def make(reader: Reader, overrides: Mapping[str, Any]) -> Data:
        return _make(task, gate, reader, overrides)

    name = f"frontier_{task}_{gate}"
    return Spec(name, f"Accuracy against count: {title}", PANELS, make, 3.4, section="transfer", rank=rank)


MNIST_MLP = _spec("mnist", "mlp", "MNIST, tanh MLP features", 8)
MNIST_CONV = _spec("mnist", "conv", "MNIST, convolution branches", 9)
CIFAR10 = _spec("cifar10", "conv", "CIFAR-10, convolution branches", 10)
CORA = _spec("cora", "gcn", "Cora, 2-hop GCN branches", 11)
