"""Structured pruning of SmolLM2-135M, this project's model for the studies of tables 13 and 14."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data, Line, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.analysis.selection import PRUNED, Selection, base_of
from experiments.analysis.tables import OwnTable, Row, column, row
from experiments.core.needs import Needs
from experiments.studies import pruning
from experiments.studies.model import Study
from experiments.studies.peft import SMALL

_THIRDS = "<kept_early.value:.1f>/<kept_middle.value:.1f>/<kept_late.value:.1f>"
COLUMNS = (
    column("kept", "kept", "kept", r"<value:.1f>\%"),
    column("thirds", "e/m/l (%)", "kept", _THIRDS),
    column("integer", "integer", "integer", r"<rate:.0f>\%"),
    column("soft", "soft", "soft", "<value:.1f>"),
    column("score", "truncated", "truncated", "<value:.1f> (<low.value:.1f> to <high.value:.1f>)"),
    column("nats", "nats", "nats", "<value:.3f>"),
    column("forgetting", "ppl/base", "forgetting", "<value:.2f>"),
    column("seconds", "seconds", "seconds", "<value:.0f>"),
)

LADDER_RUNS = pruning.ladder(SMALL, pruning.SHORT)
TASK_ONLY = pruning.against(SMALL, pruning.SHORT)
MIXED = pruning.against(SMALL, {**pruning.SHORT, "task.replay": pruning.REPLAY}).only("base", *PRUNED)

VARIANTS: dict[str, tuple[str, Selection]] = {
    "ordered": ("NGN, neurons in Wanda's order", TASK_ONLY.with_overrides({"gate.rank_by": "wanda"})),
    "commit": ("NGN, rounded at 90 % of training", TASK_ONLY.with_overrides({"schedule.commit": 0.9})),
}
"""Runs beyond the paper, task-only: key → label and run, with only the base scores."""

METHODS = {
    "wanda": "Wanda, sizes of NGN",
    "even": "Wanda, even sizes",
    **{f"random{draw}": f"random, sizes of NGN, draw {draw}" for draw in range(3)},
}

assert METHODS.keys() == PRUNED.keys()


def method_rows(group: str, learned: Selection) -> tuple[Row, ...]:
    """Make the rows of NGN and of models pruned to its sizes in other ways; ``group`` is their second label."""
    rivals = (
        row(f"{group}-{name}", label, group, seeds=1, runs=replace(learned, about=name), dashes=("integer", "soft"))
        for name, label in METHODS.items()
    )
    return row(f"{group}-ngn", "NGN", group, seeds=1, runs=learned), *rivals


LADDER = OwnTable(
    "pruning_smollm2",
    "Pruning frontier on SmolLM2-135M, budget=cpu",
    COLUMNS,
    tuple(pruning.ladder_row(key, runs) for key, runs in LADDER_RUNS.items()),
    text="The frontier of table 13 on SmolLM2-135M-Instruct: the same targets, backbones and prices, one "
    "pass over 60,000 training tokens. A layer has three blocks of heads (whole groups of one key and value) and 16 of "
    "96 neurons. Kept is the part of all attention and feed-forward weights, and of those in each third of the layers. "
    "With a frozen backbone nothing but the sizes is trained: such a model has never seen the form of the answers, so "
    "its nats say more than its score.",
    rank=10,
)

RIVALS = OwnTable(
    "pruning_smollm2_rivals",
    "Feed-forward pruning at equal sizes on SmolLM2-135M, budget=cpu",
    COLUMNS,
    (
        *method_rows("task-only", TASK_ONLY),
        *(row(key, label, "task-only", seeds=1, runs=runs.only("base")) for key, (label, runs) in VARIANTS.items()),
        *method_rows("mixed", MIXED),
    ),
    text="Table 14 on the same model: feed-forward neurons at the price 1e-3, all weights "
    "trained, on the task alone and mixed with general text. Wanda and random keep as many neurons in each layer as "
    "NGN learned, chosen one by one, and train equally long on the same batches. The even row spreads the total over "
    "the layers. Wanda's scores use the first 128 training questions and the dense model.",
    rank=11,
)


def _pruned() -> list[Selection]:
    """Select the base model, the runs of table 14 with their variants, then the ladder of table 13."""
    first = [base_of(TASK_ONLY, 0, {}), TASK_ONLY.only("base"), MIXED.only("base")]
    return [*first, *(runs.only("base") for _, runs in VARIANTS.values()), TASK_ONLY, MIXED, *LADDER_RUNS.values()]


def _pruned_pythia() -> list[Selection]:
    runs = [*pruning.ladder(pruning.PYTHIA).values()]
    return [base_of(runs[0], 0, {}), *runs]


PRUNING_SMALL = Study(
    "pruning_smollm2", "tables 13 and 14: pruning of SmolLM2-135M, beside five rivals", _pruned, rank=505, curves=1
)

PRUNING_PYTHIA, PRUNING_LLAMA = (
    Study(name, title, make, rank=rank, needs=Needs(gpus=1, gpu_gb=gpu, memory_gb=memory, disk_gb=disk, hours=24))
    for rank, name, title, make, gpu, memory, disk in (
        (506, "pruning_pythia", "table 13: pruning of Pythia-410M", _pruned_pythia, 16, 16, 17),
        (507, "pruning_llama3", "table 14: pruning of Llama-3-8B", lambda: [pruning.LLAMA_PRUNED], 80, 64, 113),
    )
)

_SERIES = tuple(f"{target}, {backbone}" for target in pruning.TARGETS.values() for backbone in pruning.BACKBONES)
_KEPT = "weights kept (%)"
PANELS = {
    "score": Panel(_KEPT, "exact match, truncated (%)", "WikiSQL-easy", series=_SERIES),
    "nats": Panel(_KEPT, "nats per answer token", "WikiSQL-easy", series=_SERIES),
    "forgetting": Panel(_KEPT, "perplexity / base", "general text", ylog=True, series=_SERIES),
}


def _make(reader: Reader) -> Data:
    quantities = ["kept", "n", "low", "high", *PANELS]
    gathered = gather(reader, LADDER_RUNS, quantities)
    asked: set[int] = set()
    points: list[Point] = []
    for key, group in gathered.groups.items():
        target, backbone, _ = key.split("-", 2)
        series = f"{pruning.TARGETS[target]}, {backbone}"
        for at, run in enumerate(group.runs):
            x, n, low, high, *shown = (float(group.of(quantity)[at]) for quantity in quantities)
            asked.add(int(n))
            for panel, y in zip(PANELS, shown, strict=True):
                point = Point(series, x, y, (run.run_id,), panel)
                points.append(replace(point, low=min(low, y), high=high) if panel == "score" else point)
    lines = []
    for panel in PANELS:
        for series in _SERIES:
            drawn = [point for point in points if (point.panel, point.series) == (panel, series)]
            if len(drawn) > 1:
                x, y = np.array([[point.x, point.y] for point in drawn]).T
                lines.append(Line(series, x, y, panel, tuple(name for point in drawn for name in point.runs)))
    of = " or ".join(map(str, sorted(asked)))
    notes = [
        "weights: of attention and feed-forward maps; lines join the prices 1e-2, 1e-3, 1e-4 of one row; one epoch, "
        f"seed 0; bars: Wilson's 95 % interval over {of} questions"
    ]
    return gathered.data(points, lines=lines, notes=notes)


SPEC = Spec(
    "figure13", "Pruning frontier: SmolLM2-135M, budget=cpu, one epoch", PANELS, _make, 3.4, 3, "pruning", rank=7
)
"""The paper's is of Pythia-410M."""
