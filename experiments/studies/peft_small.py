"""Learned ranks and widths on SmolLM2-135M, this project's model for the studies of table 11."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.figures import Data, Line, Panel, Point, Spec
from experiments.analysis.gather import Gathered, gather, points_of
from experiments.analysis.reduce import NotMeasured, quantity_of
from experiments.analysis.selection import Selection, base_of, selected_runs
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


def method_row(label: str, task: str, about: str, runs: Selection) -> Row:
    """Make the row of a companion of learned models, or, if ``about`` is empty, of these."""
    dashes = () if about == "" else ("soft", "integer")
    return row(
        f"{task}-{about or 'ngn'}", label, METHODS[about], seeds=1, runs=replace(runs, about=about), dashes=dashes
    )


def _rows(gate: str, methods: Iterable[str]) -> tuple[Row, ...]:
    """Make the rows of all methods on all tasks."""
    each = ((label, task, learned(task, gate, choices=SMALL)) for label, task in TASKS.items())
    return tuple(method_row(label, task, about, runs) for label, task, runs in each for about in methods)


def _tables(
    gate: str, title: str, methods: Iterable[str], text: str, cost: str, rank: int
) -> tuple[OwnTable, OwnTable]:
    """Make the table of scores of a gate, and that of what the same runs cost."""
    name, title, rows = f"{gate}_smollm2", f"{title} on SmolLM2-135M, budget=cpu", _rows(gate, methods)
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


def _seeds(gate: str, about: str) -> Row:
    runs = replace(learned("wikisql_easy", gate, (0, 1, 2), choices=SMALL), about=about)
    dashes = ("soft",) if about else ()
    label = {"lora": "LoRA rank", "adapter": "adapter width"}[gate]
    return row(f"{gate}-{about or 'ngn'}", label, METHODS[about], seeds=3, runs=runs, dashes=dashes)


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
    tuple(_seeds(gate, about) for gate in ("lora", "adapter") for about in ("", "fixed")),
    text="Differences between methods against the spread over seeds: mean, standard deviation and range.",
    rank=9,
)


def _adapted(gate: str, model: str, budget: str) -> list[Selection]:
    """Select base scores, then each learned model with its rivals, then two more seeds of the first task."""
    runs = [learned(task, gate, choices={"model": model, "budget": budget}) for task in TASKS.values()]
    more = runs[0].with_seeds((1, 2)).only()
    return [*(base_of(selection, 0, {}) for selection in runs), *runs, more]


def _adaptation(
    gate: str, model: str, budget: str, title: str, rank: int, curves: int = 0, needs: Needs = NOTHING
) -> Study:
    name, make = f"{gate}_{model.partition('_')[0]}", lambda: _adapted(gate, model, budget)
    return Study(name, f"table 11: {title}", make, rank=rank, curves=curves, needs=needs)


# Memory and disk by the sums of docs/language.md; the hours are limits, not measured times.
ONE_CARD = Needs(gpus=1, gpu_gb=40, memory_gb=32, disk_gb=20, hours=24)
LORA_SMALL = _adaptation("lora", "smollm2_135m", "cpu", "LoRA rank on SmolLM2-135M, beside six rivals", 501, 1)
ADAPTER_SMALL = _adaptation("adapter", "smollm2_135m", "cpu", "adapter width on SmolLM2-135M", 502, 1)
LORA_LLAMA = _adaptation("lora", "llama3_8b", "paper", "LoRA rank on Llama-3-8B", 503, needs=ONE_CARD)
ADAPTER_LLAMA = _adaptation("adapter", "llama3_8b", "paper", "adapter width on Llama-3-8B", 504, needs=ONE_CARD)
_MODEL = "SmolLM2-135M, budget=cpu"
_SERIES = {about: label for about, label in METHODS.items() if about != "base"} | {"svd": "singular values"}

_SCORED = ("soft score (%)", "truncated score (%)")
_PLACES = {task: Panel("layer", "rank", label, series=("q", "v")) for label, task in TASKS.items()}
_WIDTHS = {task: Panel("layer", "width", label) for label, task in TASKS.items()}
_SCORES = {
    task: Panel("total rank", "score (%)", label, series=tuple(_SERIES.values())) for label, task in TASKS.items()
}

_GAPS = {"lora": Panel(*_SCORED, "LoRA rank"), "adapter": Panel(*_SCORED, "adapter width")}


def _selections(gate: str) -> dict[str, Selection]:
    return {task: learned(task, gate, choices=SMALL) for task in TASKS.values()}


def _by_layer(gate: str, reader: Reader) -> Data:
    """Make a series of retained components over the layers for each adapted map."""
    gathered = gather(reader, _selections(gate), ["size"], own_data=True)
    points: list[Point] = []
    titles: dict[str, str] = {}
    for task, group in gathered.groups.items():
        for run in group.runs:
            settings, counts = run.record["config"]["gate"], run.record["phases"]["grown"]["count"]
            maps = settings.get("targets", ["width"])
            for at, count in enumerate(counts):
                points.append(Point(maps[at % len(maps)], at // len(maps) + 1, count, (run.run_id,), task))
            sizes = run.record["phases"]["grown"]["sizes"]
            titles[task] = f"{sizes['total']} ({sizes['early']}/{sizes['middle']}/{sizes['late']})"
    said = "after the task: the total, and its parts in the early, middle and late third of the layers"
    notes = [f"{said}; {_seeds_of(gathered)}"]
    return gathered.data(points, notes=notes, titles=titles)


def _seeds_of(gathered: Gathered[str]) -> str:
    """Say which seeds the models have."""
    seeds = sorted({run.seed for group in gathered.groups.values() for run in group.runs})
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _measured(run: RecordedRun, *quantities: str) -> list[float] | None:
    try:
        return [quantity_of(run, quantity)[0] for quantity in quantities]
    except NotMeasured:
        return None


def _points(task: str, run: RecordedRun) -> Iterator[Point]:
    """Make a point for every method of a task: its retained total, and its score with an interval."""
    runs = {"": run, "fixed": replace(run, phase="fixed"), **run.companions}
    for number, (name, series) in enumerate(_SERIES.items()):
        found = _measured(runs[name], "size", "truncated", "low", "high") if name in runs else None
        if found is not None:
            size, score, low, high = found
            apart = 1.2 * (number - (len(_SERIES) - 1) / 2)  # all methods aim at one total
            yield Point(series, size, score, (runs[name].run_id,), task, low, high, apart)


def _against_rank(reader: Reader) -> Data:
    selections = _selections("lora")
    gathered = gather(reader, selections, ["size", "truncated"], own_data=True)
    points: list[Point] = []
    lines: list[Line] = []
    lacking: dict[str, list[str]] = {}
    for task, group in gathered.groups.items():
        for run in group.runs:
            points += _points(task, run)
            drawn = {point.series for point in points if point.panel == task}
            for name in (each for each in _SERIES.values() if each not in drawn):
                lacking.setdefault(name, []).append(_PLACES[task].title)
            base = run.companions.get("base")
            if base is not None and (score := _measured(base, "truncated")) is not None:
                ends = np.array([0.0, max(p.x for p in points if p.panel == task)])
                lines.append(Line("base", ends, np.repeat(score, 2), task, (base.run_id,)))
    notes = ["side by side at one total; bars: Wilson's 95 % interval over the examples; truncated models"]
    notes[0] += f", {_seeds_of(gathered)}"
    if lacking:
        notes.append("not run: " + ", ".join(f"{name} ({', '.join(tasks)})" for name, tasks in lacking.items()))
    data = gathered.data(points, lines=lines, notes=notes)
    # the companions of the learned models also belong to the figure
    others: dict[str, None] = {}
    for task, group in gathered.groups.items():
        chosen = reader.chosen(selections[task])
        for run, (_, find) in itertools.product(group.runs, chosen.companions):
            others.update(dict.fromkeys(one.id for one in selected_runs(find(chosen, run.seed, run.record))))
    return replace(data, runs=(*data.runs, *others))


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
    return gathered.data(points, lines=lines, notes=[f"a point is one model; {_seeds_of(gathered)}"])


FIGURES = tuple(
    Spec(name, f"{title}: {_MODEL}", panels, make, height, len(panels), section="peft", rank=rank)
    for rank, name, title, panels, make, height in (
        (15, "lora_ranks", "Learned LoRA rank by layer and map", _PLACES, partial(_by_layer, "lora"), 3.0),
        (16, "adapter_widths", "Learned adapter width by layer", _WIDTHS, partial(_by_layer, "adapter"), 2.4),
        (17, "lora_scores", "Score against total rank", _SCORES, _against_rank, 3.2),
        (18, "soft_truncated", "Soft against truncated", _GAPS, _soft_against_truncated, 3.0),
    )
)
