"""Images and graphs: table 8, fixed models of every count, and training in bf16."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from experiments.analysis.claims import ABOVE, Claims, Estimate, Outcome
from experiments.analysis.collect import Reader
from experiments.analysis.estimates import median, share
from experiments.analysis.evidence import Evidence
from experiments.analysis.figures import Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather, points_of, spread
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import YES, Array
from experiments.analysis.tables import MEAN_T, PM, OwnTable, Row, StandIn, Table, column, mean_sd, row
from experiments.studies.model import Study, study_of

_T = r"\texttt{[<median:.2f*, >]}"
_WORD = "<aggregate:word>"
_BITS = "<value:.4f>"
_ONE_RUN = {"t": (r"\texttt{[<value:.2f*, >]}",), "soft": (_BITS,), "truncated": (_BITS,), "fixed": (_BITS,)}
"""Formats of a single run in bits per character; the other rows are medians in percent."""


def _ten(key: str, task: str, gate: str, *labels: str, **rest: Any) -> Row:
    runs = Selection.of({"task": task, "gate": gate, "method": "ngn", "schedule": "paper"}, seeds=range(10))
    return row(key, *labels, seeds=10, runs=runs, **rest)


def _story(key: str, label: str) -> Row:
    return row(key, "TinyStories", label, seeds=1, formats=_ONE_RUN)


_TEN_SEEDS = (
    # a tie between two rates was decided by t, so t is no independent test
    _ten("mnist-mlp", "mnist", "mlp", "MNIST", "tanh MLP features", calibrated=frozenset(["t"])),
    _ten("mnist-conv", "mnist", "conv", "MNIST", "conv branches"),
    _ten(
        "cifar10-conv",
        "cifar10",
        "conv",
        "CIFAR-10",
        "conv branches",
        stand_ins=(StandIn("3 epochs", {"train.epochs": 3}),),
    ),
    _ten("cora-gcn", "cora", "gcn", "Cora", "2-hop GCN branches"),
)

EIGHT = Table(
    "dataeightbody",
    "Table 8: other structures and tasks, medians",
    (
        column("t", "learned t", "grown.t", _T),
        column("integer", "integer", "integer", r"<rate:.0f>\%"),
        column("soft", "soft", "grown.soft.accuracy", "<median:.2f>"),
        column("truncated", "trunc", "grown.truncated.accuracy", "<median:.2f>"),
        column("fixed", "fixed", "fixed.truncated.accuracy", "<median:.2f>"),
        column("prunes_back", "prunes back?", "prunes_back", _WORD),
    ),
    (
        *_TEN_SEEDS,
        _story("stories-heads", r"attention heads ($\times 2$ layers)"),
        _story("stories-ffn", r"FFN blocks ($\times 2$ layers)"),
        _story("stories-joint", r"heads + FFN blocks ($\times 2$ layers)"),
        _story("stories-mamba", r"Mamba state dim. $N$ ($\times 2$ layers)"),
    ),
)

_ACCURACY = mean_sd(".2f", ".2f")
_FROM_HIGH = rf"\texttt{{[<from_high.t.mean:.2f>{PM}<from_high.t.sd:.2f>]}}"

EIGHT_FULL = Table(
    "dataeightfullbody",
    "Table 8, mean ± sd",
    (
        column("t", "learned t", "grown.t", rf"\texttt{{[{MEAN_T}]}}"),
        column("soft", "soft acc.", "grown.soft.accuracy", _ACCURACY),
        column("truncated", "trunc. acc.", "grown.truncated.accuracy", _ACCURACY),
        column("fixed", "fixed acc.", "fixed.truncated.accuracy", _ACCURACY),
        column(
            "prunes_back",
            "prunes back?",
            "prunes_back",
            rf"<aggregate:word> ({_FROM_HIGH}; Y/P/N=<yes:d>/<partial:d>/<no:d>)",
        ),
    ),
    _TEN_SEEDS,
)

CORA_COUNTS = OwnTable(
    "cora_counts",
    "Cora: fixed models of one to eight branches",
    (column("accuracy", "accuracy", "fixed.truncated.accuracy", mean_sd(".2f", ".2f")),),
    tuple(
        row(
            f"count{count}",
            f"{count} branch{'es' if count > 1 else ''}",
            seeds=3,
            runs=Selection.of({"task": "cora", "gate": "gcn", "method": "fixed"}, {"method.count": count}, range(3)),
        )
        for count in range(1, 9)
    ),
    text="Test accuracy in % of fixed models, mean and standard deviation over three seeds, on the public split.",
    rank=5,
)
_SEEDS = range(5)
_TASKS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}

BF16 = OwnTable(
    "bf16",
    "MNIST and CIFAR-10 convolutions in float32 and in bf16",
    (
        column("count", "branches", "grown.count", "<mean:.1f>"),
        column("soft", "soft", "grown.soft.accuracy", mean_sd(".2f", ".2f")),
        column("truncated", "trunc", "grown.truncated.accuracy", mean_sd(".2f", ".2f")),
    ),
    tuple(
        row(f"{task}{suffix}", f"{label}, {precision}", seeds=len(_SEEDS), runs=runs)
        for task, label in _TASKS.items()
        for suffix, precision, change in (
            ("", "float32", {}),
            ("_bf16", "bf16", {"train.autocast": "bf16", "phases": ("grown",)}),
        )
        for runs in [Selection.of({"task": task, "gate": "conv"}, change, _SEEDS)]
    ),
    text="Accuracy in %, mean and standard deviation over five seeds, with train.autocast=bf16 and without it. "
    "Weights, moments and boundaries are in float32 or float64 in both.",
    rank=17,
)


def _vision_frontier() -> list[Selection]:
    # beyond 16 features the weights 0.5^k are negligible
    tasks = (("mnist", "mlp", 16), ("mnist", "conv", 8), ("cifar10", "conv", 16), ("cora", "gcn", 8))
    return [
        Selection.of({"task": task, "gate": gate, "method": "fixed"}, {"method.count": count}, range(3))
        for task, gate, most in tasks
        for count in range(1, most + 1)
    ]


VISION = study_of(EIGHT, "table 8: MNIST, CIFAR-10 and Cora, ten seeds", 201, name="vision")
VISION_FRONTIER = Study(
    "vision_frontier", "accuracy against count: fixed models of every count, three seeds", _vision_frontier, rank=202
)

PRECISION = study_of(BF16, "convolutions in bf16: MNIST and CIFAR-10, five seeds", 306, name="precision")

FIXED, FROM_LOW, FROM_HIGH = "fixed", "learned from low", "learned from high"
PANELS = {"": Panel("retained count", "test accuracy (%)", lanes=True, series=(FIXED, FROM_LOW, FROM_HIGH))}
_SIDE = {FROM_LOW: -0.27, FROM_HIGH: 0.27}
"""Horizontal offset of a learned series within a count; the fixed series is on the tick."""


def _make(task: str, gate: str, reader: Reader) -> Data:
    of, learned = {"task": task, "gate": gate}, EIGHT.runs[f"{task}-{gate}"]
    alone: dict[str | int, Selection] = {
        dict(s.overrides)["method.count"]: s for s in VISION_FRONTIER.make() if dict(s.choices).items() >= of.items()
    }
    phases = {FIXED: "fixed", FROM_LOW: "grown", FROM_HIGH: "from_high"}
    selections = alone | dict[str | int, Selection](dict.fromkeys(phases, learned))
    quantities = {
        key: [f"{phase}.count", f"{phase}.truncated.accuracy"]
        for key in selections
        for phase in [phases[key] if isinstance(key, str) else "fixed"]
    }
    gathered = gather(reader, selections, quantities)
    pooled: dict[float, dict[int, tuple[str, float]]] = defaultdict(dict)
    points: list[Point] = []
    for key, group in gathered.groups.items():
        found = points_of(group, str(key), *quantities[key])
        if key in _SIDE:
            points += spread(found, 0.18, _SIDE[str(key)])
            continue
        for run, point in zip(group.runs, found, strict=True):
            # the fixed phase of a learned run equals the fixed run of that count and seed
            pooled[point.x].setdefault(run.seed, (run.run_id, point.y))
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
    from experiments.analysis.published import value_of  # here: the paper's file never imports it

    values = {name: value_of(EIGHT, EIGHT.row(f"{task}-{gate}"), name) for name in ("t", "truncated")}
    t, accuracy = (np.ravel(value[1]["median"]) for value in values.values() if value is not None)
    count = np.floor(t + 0.5) + 1
    return Line("published, from low", count + np.array([-0.5, 0.5]), np.repeat(accuracy, 2))


FRONTIERS = tuple(
    Spec(
        f"frontier_{task}_{gate}",
        f"Accuracy against count: {title}",
        *(PANELS, partial(_make, task, gate), 3.4),
        section="transfer",
        rank=rank,
    )
    for rank, (task, gate, title) in enumerate(
        (
            ("mnist", "mlp", "MNIST, tanh MLP features"),
            ("mnist", "conv", "MNIST, convolution branches"),
            ("cifar10", "conv", "CIFAR-10, convolution branches"),
            ("cora", "gcn", "Cora, 2-hop GCN branches"),
        ),
        start=8,
    )
)
claim = Claims(800)
_ROWS = ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn")


def _gained(evidence: Evidence, other: str, far: Callable[[Array], Any], label: str) -> tuple[dict[str, Array], str]:
    """By how many points truncated models are better than ``other``, same seed, by row; and the number of runs that
    are ``far``, which ``said`` puts into words."""
    points = {}
    for key in _ROWS:
        samples = evidence.samples(EIGHT.runs[key], ["grown.truncated.accuracy", f"{other}.accuracy"], key)
        points[key] = samples["grown.truncated.accuracy"] - samples[f"{other}.accuracy"]
    counts = {key: int(far(each).sum()) for key, each in points.items()}
    where = ", ".join(f"{key} {count}" for key, count in counts.items() if count)
    runs = f"{label} in {sum(counts.values())} of {sum(map(len, points.values()))} runs"
    return points, runs + (f" ({where})" if where else "")


@claim("vision_truncation", "table 8", "after results, 2026-11-21")
def _truncation(evidence: Evidence) -> Outcome:
    """Truncation costs little: in the median run at most half a point of accuracy on MNIST, CIFAR-10 and Cora."""
    points, because = _gained(evidence, "grown.soft", lambda each: each <= -0.5, "half a point or more lost")
    parts = [
        Estimate(f"truncated minus soft, points, {key}", median(x), -0.5, spec="+.2f") for key, x in points.items()
    ]
    return Outcome(parts, because)


@claim("vision_fixed", "table 8", "after results, 2026-11-21")
def _fixed(evidence: Evidence) -> Outcome:
    """Learned and fixed models of the same size are within one point of each other, same seed, in the median."""
    points, because = _gained(evidence, "fixed.truncated", lambda each: abs(each) > 1, "more than one point apart")
    parts = [Estimate(f"truncated minus fixed, points, {key}", median(x), -1, 1, "+.2f") for key, x in points.items()]
    return Outcome(parts, because)


@claim("vision_prune", "table 8", "after results, 2026-11-21")
def _not_universal(evidence: Evidence) -> Outcome:
    """Pruning back from a high start is not universal: in some row not every seed does."""
    words = {row: evidence.cell(f"dataeightbody.{row}.prunes_back") for row in _ROWS}
    back = [row for row, word in words.items() if word == YES]
    because = f"every seed prunes back in {len(back)} of {len(words)} rows: {', '.join(back) or 'none'}"
    other = len(words) - len(back)
    return Outcome([Estimate("share of other rows", share(other, len(words)), ABOVE, spec=".0%")], because)
