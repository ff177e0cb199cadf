"""Learned ranks and widths on SmolLM2-135M, this project's model for the studies of table 11."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.figures import Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather, points_of
from experiments.analysis.reduce import NotMeasured, quantity_of
from experiments.analysis.selection import Selection, base_of
from experiments.analysis.tables import PM, OwnTable, Row, column, row
from experiments.core.needs import NOTHING, Needs
from experiments.studies.model import Study
from experiments.studies.peft import SMALL, TASKS, learned

METHODS = {
    "base": "base",
    "": "NGN",
    "fixed": "fixed",
    "sora": "SoRA",
    "adalora": "AdaLoRA",
    "svd": "SVD cut",
    "eva": "EVA",
    "uniform": "uniform",
}
"""Companion of a row → its label; the empty key is the learned model itself."""
ADAPTER_METHODS = ("base", "", "fixed")
SCORES = (
    column("size", "kept/target", "size", "<size.value:d>/<target.value:d>"),
    column("thirds", "e/m/l", "size", "<early.value:d>/<mid.value:d>/<late.value:d>"),
    column("integer", "integer", "integer", r"<rate:.0f>\%"),
    column("soft", "soft", "soft", "<value:.1f>"),
    column("score", "truncated", "truncated", "<value:.1f> (<low.value:.1f> to <high.value:.1f>)"),
    column("n", "examples", "n", "<value:d>"),
)

_COSTS = (
    column("nats", "nats", "nats", "<value:.3f>"),
    column("forgetting", "ppl/base", "forgetting", "<value:.3f>"),
    column("seconds", "seconds", "seconds", "<value:.0f>"),
    column("memory", "MiB", "memory", "<value:.0f>"),
)


def _selections(gate: str) -> dict[str, Selection]:
    return {task: learned(task, gate, choices=SMALL) for task in TASKS.values()}


def method_row(label: str, group: str, about: str, runs: Selection) -> Row:
    """Make the row of a companion of learned models, or, if ``about`` is empty, of these."""
    own, dashes = replace(runs, about=about), () if about == "" else ("soft", "integer")
    return row(f"{group}-{about or 'ngn'}", label, METHODS[about], seeds=len(runs.seeds), runs=own, dashes=dashes)


def _tables(
    gate: str, title: str, methods: Iterable[str], text: str, cost: str, rank: int
) -> tuple[OwnTable, OwnTable]:
    """Make the table of scores of a gate, and that of what the same runs cost."""
    name, title, each = f"{gate}_smollm2", f"{title} on SmolLM2-135M, budget=cpu", _selections(gate)
    rows = tuple(method_row(label, task, about, each[task]) for label, task in TASKS.items() for about in methods)
    whole = tuple(replace(line, dashes=frozenset()) for line in rows)
    return (
        OwnTable(name, title, SCORES, rows, text=text, rank=rank),
        OwnTable(f"{name}_cost", f"{title}: cost", _COSTS, whole, text=cost, rank=rank + 1),
    )


LORA, LORA_COST = _tables(
    "lora",
    "LoRA rank",
    METHODS,
    "The paper's model of eight billion parameters is not available here. These are the same methods on "
    "SmolLM2-135M-Instruct, which has the same architecture with 30 layers, trained for minutes. No score can "
    "be compared with the published ones. All rows of a task share one recipe. SoRA, AdaLoRA, plain LoRA of "
    "rank 16 cut by singular values (SVD cut), EVA, and an even allocation get the total rank that NGN learned: "
    "kept and target. The score is the first one of the task in %, with Wilson's 95 % interval over a fixed "
    "list of examples. docs/data.md and each record name splits other than the official ones.",
    "For the same runs: nats per answer token, which separate models that score zero; perplexity on general "
    "text, relative to the model before; wall time of the training, on a machine with other work; peak memory "
    "of the process.",
    5,
)
ADAPTER, ADAPTER_COST = _tables(
    "adapter",
    "Adapter width",
    ADAPTER_METHODS,
    "The same with adapters, whose width is learned.",
    "Of the same runs, as above.",
    7,
)

_SPREAD = f"<mean:.1f>{PM}<sd:.1f> (<min:.1f> to <max:.1f>)"
_SPREAD_FINE = f"<mean:.3f>{PM}<sd:.3f>"

SEEDS = OwnTable(
    "seeds_smollm2",
    "WikiSQL-easy over three seeds, SmolLM2-135M, budget=cpu",
    (
        column("size", "size", "size", _SPREAD),
        column("soft", "soft", "soft", _SPREAD),
        column("score", "truncated", "truncated", _SPREAD),
        column("nats", "nats", "nats", _SPREAD_FINE),
        column("forgetting", "ppl/base", "forgetting", _SPREAD_FINE),
    ),
    tuple(
        method_row(label, gate, about, learned("wikisql_easy", gate, (0, 1, 2), choices=SMALL))
        for gate, label in {"lora": "LoRA rank", "adapter": "adapter width"}.items()
        for about in ("", "fixed")
    ),
    text="Differences between methods against the spread over seeds: mean, standard deviation and range.",
    rank=9,
)


def _adaptation(
    gate: str, model: str, budget: str, title: str, rank: int, curves: int = 0, needs: Needs = NOTHING
) -> Study:
    """Make a study: base scores, then each learned model with its rivals, then two more seeds of the first task."""

    def make() -> list[Selection]:
        runs = [learned(task, gate, choices={"model": model, "budget": budget}) for task in TASKS.values()]
        return [*(base_of(selection, 0, {}) for selection in runs), *runs, runs[0].with_seeds((1, 2)).only()]

    name = f"{gate}_{model.partition('_')[0]}"
    return Study(name, f"table 11: {title}", make, rank=rank, curves=curves, needs=needs)


# Memory and disk by the sums of docs/language.md; the hours are limits, not measured times.
ONE_CARD = Needs(gpus=1, gpu_gb=40, memory_gb=32, disk_gb=20, hours=24)
LORA_SMALL = _adaptation("lora", "smollm2_135m", "cpu", "LoRA rank on SmolLM2-135M, beside six rivals", 501, 1)
ADAPTER_SMALL = _adaptation("adapter", "smollm2_135m", "cpu", "adapter width on SmolLM2-135M", 502, 1)
LORA_LLAMA = _adaptation("lora", "llama3_8b", "paper", "LoRA rank on Llama-3-8B", 503, needs=ONE_CARD)
ADAPTER_LLAMA = _adaptation("adapter", "llama3_8b", "paper", "adapter width on Llama-3-8B", 504, needs=ONE_CARD)
_MODEL = "SmolLM2-135M, budget=cpu"

_SCORED = ("soft score (%)", "truncated score (%)")
_KEPT = {
    gate: {key: Panel("", "layer", title, labels=tuple(TASKS)) for key, title in maps.items()}
    for gate, maps in {"lora": {"q": "query maps", "v": "value maps"}, "adapter": {"width": ""}}.items()
}
_SCORES = {
    task: Panel("", "score (%)", label, series=("NGN", "other models"), labels=tuple(METHODS.values()))
    for label, task in TASKS.items()
}

_GAPS = {"lora": Panel(*_SCORED, "LoRA rank"), "adapter": Panel(*_SCORED, "adapter width")}


def _by_layer(gate: str, reader: Reader) -> Data:
    """Make a point for each layer that keeps a rank or a width, by task, in a panel for each adapted map."""
    gathered = gather(reader, _selections(gate), ["size"], own_data=True)
    points: list[Point] = []
    most = 0
    for place, group in enumerate(gathered.groups.values()):
        for run in group.runs:
            settings, counts = run.record["config"]["gate"], run.record["phases"]["grown"]["count"]
            maps = settings.get("targets", ["width"])
            for at in np.flatnonzero(counts):
                layer = int(at) // len(maps) + 1
                points.append(Point("kept", place, layer, (run.run_id,), maps[at % len(maps)]))
            most = max(most, *counts)
    return gathered.data(points, notes=[f"a mark: the layer keeps one or more, at most {most}; seed 0"])


def _points(task: str, run: RecordedRun) -> Iterator[Point]:
    """Make a point for the score of every method of a task that was run, with its interval."""
    runs = {"": run, "fixed": replace(run, phase="fixed"), **run.companions}
    for place, (name, label) in enumerate(METHODS.items()):
        with suppress(KeyError, NotMeasured):
            score, low, high = (quantity_of(runs[name], quantity)[0] for quantity in ("truncated", "low", "high"))
            ends = min(low, score), high  # rounding
            yield Point("other models" if name else label, place, score, (runs[name].run_id,), task, *ends)


def _by_method(reader: Reader) -> Data:
    gathered = gather(reader, _selections("lora"), ["size", "truncated"], own_data=True)
    points: list[Point] = []
    titles: dict[str, str] = {}
    best: Counter[str] = Counter()
    labels = [*METHODS.values()]
    for task, group in gathered.groups.items():
        for run, size in zip(group.runs, group.of("size"), strict=True):
            own = [*_points(task, run)]
            points += own
            best.update(labels[int(point.x)] for point in own if point.y == max(other.y for other in own))
            titles[task] = f"total rank {size:.0f}"
    highest = ", ".join(f"{method} on {tasks} task{'s' if tasks > 1 else ''}" for method, tasks in best.most_common())
    notes = [
        f"higher is better; the highest, ties for each: {highest}",
        "truncated models at NGN's total rank, seed 0; bars: Wilson's 95 % interval; without a mark: not run",
    ]
    drawn = dict.fromkeys(run for point in points for run in point.runs)  # companions, too
    data = gathered.data(points, notes=notes, titles=titles)
    return replace(data, runs=tuple({**dict.fromkeys(data.runs), **drawn}), found=len(drawn))


def _soft_against_truncated(reader: Reader) -> Data:
    keys = {f"{gate} {task}": chosen for gate in _GAPS for task, chosen in _selections(gate).items()}
    gathered = gather(reader, keys, ["soft", "truncated"], own_data=True)
    labels = {task: label for label, task in TASKS.items()}
    points: list[Point] = []
    for key, group in gathered.groups.items():
        gate, _, task = key.partition(" ")
        points += points_of(group, labels[task], "soft", "truncated", gate)
    lines = []
    for gate in _GAPS:
        ends = [value for point in points if point.panel == gate for value in (point.x, point.y)]
        if ends:
            lines.append(Line("equal", np.array([min(ends), max(ends)]), np.array([min(ends), max(ends)]), gate))
    return gathered.data(points, lines=lines, notes=["a point is one model; seed 0"])


FIGURES = tuple(
    Spec(name, f"{title}: {_MODEL}", panels, make, height, len(panels), section="peft", rank=rank)
    for rank, name, title, panels, make, height in (
        (15, "lora_ranks", "Layers that keep a LoRA rank", _KEPT["lora"], partial(_by_layer, "lora"), 3.6),
        (16, "adapter_widths", "Layers that keep an adapter", _KEPT["adapter"], partial(_by_layer, "adapter"), 3.6),
        (17, "lora_scores", "Score at one total rank", _SCORES, _by_method, 3.2),
        (18, "soft_truncated", "Soft against truncated", _GAPS, _soft_against_truncated, 3.0),
    )
)
