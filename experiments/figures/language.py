"""Learned ranks and widths of adapted language models by layer, and their scores against other allocations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.figures import Data, Line, Panel, Point, Spec
from experiments.analysis.gather import Gathered, gather, stand_in
from experiments.analysis.quantities import NotMeasured, quantity_of
from experiments.analysis.selection import Selection, selected_runs
from experiments.tables.peft import SMALL, TASKS, learned

_MODEL = "SmolLM2-135M, budget=cpu"
_SERIES = {
    "": "NGN",
    "fixed": "fixed",
    "sora": "SoRA",
    "adalora": "AdaLoRA",
    "svd": "singular values",
    "eva": "EVA",
    "uniform": "uniform",
}
_SCORED = ("soft score (%)", "truncated score (%)")
_PLACES = {task: Panel("layer", "rank", label, series=("q", "v")) for label, task in TASKS.items()}
_WIDTHS = {task: Panel("layer", "width", label) for label, task in TASKS.items()}
_SCORES = {
    task: Panel("total rank", "score (%)", label, series=tuple(_SERIES.values())) for label, task in TASKS.items()
}
_GAPS = {"lora": Panel(*_SCORED, "LoRA rank"), "adapter": Panel(*_SCORED, "adapter width")}


def _selections(gate: str) -> dict[str, Selection]:
    return {task: learned(task, gate, choices=SMALL) for task in TASKS.values()}


def _by_layer(gate: str, reader: Reader, overrides: Mapping[str, Any]) -> Data:
    """Make a series of retained components over the layers for each adapted map."""
    gathered = gather(reader, _selections(gate), ["size"], overrides, own_data=True)
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
    notes = [f"{said}; {_seeds(gathered)}"]
    return gathered.data(points, notes=notes, titles=titles)


def _seeds(gathered: Gathered[str]) -> str:
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


def _against_rank(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    selections = _selections("lora")
    gathered = gather(reader, selections, ["size", "truncated"], overrides, own_data=True)
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
    notes[0] += f", {_seeds(gathered)}"
    if lacking:
        notes.append("not run: " + ", ".join(f"{name} ({', '.join(tasks)})" for name, tasks in lacking.items()))
    data = gathered.data(points, lines=lines, notes=notes)
    # the companions of the learned models also belong to the figure
    others: dict[str, None] = {}
    for task, group in gathered.groups.items():
        chosen = stand_in(selections[task], overrides)
        for run, (_, find) in itertools.product(group.runs, chosen.companions):
            others.update(dict.fromkeys(one.id for one in selected_runs(find(chosen, run.seed, run.record))))
    return replace(data, runs=(*data.runs, *others))


def _soft_against_truncated(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    keys = {f"{gate} {task}": chosen for gate in _GAPS for task, chosen in _selections(gate).items()}
    gathered = gather(reader, keys, ["soft", "truncated"], overrides, own_data=True)
    labels = {task: label for label, task in TASKS.items()}
    points: list[Point] = []
    for key, group in gathered.groups.items():
        gate, _, task = key.partition(" ")
        for run, soft, truncated in zip(group.runs, *group.values.values(), strict=True):
            points.append(Point(labels[task], float(soft), float(truncated), (run.run_id,), gate))
    lines = []
    for gate in _GAPS:
        ends = [value for point in points if point.panel == gate for value in (point.x, point.y)]
        if ends:
            lines.append(Line("equal", np.array([min(ends), max(ends)]), np.array([min(ends), max(ends)]), gate))
    return gathered.data(points, lines=lines, notes=[f"a point is one model; {_seeds(gathered)}"])


def _lora(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    return _by_layer("lora", reader, overrides)


def _adapter(reader: Reader, overrides: Mapping[str, Any]) -> Data:
    return _by_layer("adapter", reader, overrides)


RANKS = Spec(
    "lora_ranks", f"Learned LoRA rank by layer and map: {_MODEL}", _PLACES, _lora, 3.0, 5, section="peft", rank=15
)
WIDTHS = Spec(
    "adapter_widths", f"Learned adapter width by layer: {_MODEL}", _WIDTHS, _adapter, 2.4, 5, section="peft", rank=16
)
SCORES = Spec(
    "lora_scores", f"Score against total rank: {_MODEL}", _SCORES, _against_rank, 3.2, 5, section="peft", rank=17
)
GAPS = Spec(
    "soft_truncated",
    f"Soft against truncated: {_MODEL}",
    _GAPS,
    _soft_against_truncated,
    3.0,
    2,
    section="peft",
    rank=18,
)
