r"""Learned LoRA rank and adapter width of a large language model (tables 11); single runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from experiments.analysis.selection import RIVALS, Selection, base_of
from experiments.analysis.tables import Row, StandIn, Table, column, row

TASKS = {
    "WikiSQL-easy": "wikisql_easy",
    "WikiSQL-hard": "wikisql_hard",
    "Spider": "spider",
    "GSM8K": "gsm8k",
    "SQuAD": "squad",
}
"""Label → task."""
LLAMA = {"model": "llama3_8b"}
SMALL = {"model": "smollm2_135m", "budget": "cpu"}
"""The choices of the paper, and those of this project's own studies."""
STAND_IN = StandIn("SmolLM2-135M, budget=cpu", {}, SMALL)
_THIRDS = "<early.value:d>/<mid.value:d>/<late.value:d>"
_SCORE = "<value:.1f>"
_PAIR = "<soft.value:.1f> / <truncated.value:.1f>"
_RATIO = "<value:.3f>"


def learned(task: str, gate: str, seeds: tuple[int, ...] = (0,), choices: Mapping[str, str] = LLAMA) -> Selection:
    """Select runs that learn a rank or a width on a task, with base scores and, for LoRA, with rivals."""
    companions = {"base": base_of, **(RIVALS if gate == "lora" else {})}
    return Selection.of({"task": task, "gate": gate, **choices}, {}, seeds, companions)


def _rows(gate: str, prefix: str = "") -> tuple[Row, ...]:
    return tuple(
        row(f"{prefix}{label.lower()}", label, seeds=1, runs=learned(task, gate), stand_ins=(STAND_IN,))
        for label, task in TASKS.items()
    )


_COMPACT = (
    column("base", "base", "base/score", _SCORE),
    column("size", "NGN size (e/m/l)", "size", f"<size.value:d> ({_THIRDS})"),
    column("score", "NGN soft/trunc.", "score", _PAIR),
    column("fixed", "fixed", "fixed_score", _SCORE),
)

LORA = Table(
    "dataelevenlorabody",
    "Table 11: LoRA rank",
    (*_COMPACT, column("sora", "SoRA", "sora/score", _SCORE), column("adalora", "AdaLoRA", "adalora/score", _SCORE)),
    _rows("lora"),
)

ADAPTER = Table("dataelevenadapterbody", "Table 11: adapter width", _COMPACT, _rows("adapter"))

DIAGNOSTICS = Table(
    "dataelevenbody",
    "Table 11: NGN and matched fixed models",
    (
        column("base", "base", "base/score", _SCORE),
        column("size", "size", "size", "<value:d>"),
        column("thirds", "e/m/l", "thirds", _THIRDS),
        column("integer", "integer", "integer", r"<rate:.0f>\%"),
        column("score", "NGN soft/trunc.", "score", _PAIR),
        column("fixed", "fixed", "fixed_score", _SCORE),
        column("forgetting", "NGN ppl/base", "forgetting", _RATIO),
        column("fixed_forgetting", "fixed ppl/base", "fixed_forgetting", _RATIO),
    ),
    (
        r"\multicolumn{9}{l}{\emph{LoRA rank}} \\",
        *_rows("lora", "lora-"),
        r"\midrule",
        r"\multicolumn{9}{l}{\emph{Adapter width}} \\",
        *_rows("adapter", "adapter-"),
    ),
)

BASELINES = Table(
    "dataelevenbaselinesbody",
    "Table 11: NGN, SoRA and AdaLoRA",
    (
        # print a kept/target pair if a run misses its target rank
        column("count", "learned count", "size", "<value:d>", "<size.value:d>/<target.value:d>"),
        column("thirds", "e/m/l", "thirds", _THIRDS),
        column("score", "score", "score", _SCORE),
        column("forgetting", "ppl/base", "forgetting", _RATIO),
    ),
    tuple(
        row(
            f"{label.lower()}-{method.lower()}",
            label,
            method,
            seeds=1,
            runs=replace(learned(task, "lora"), about="" if method == "NGN" else method.lower()),
            stand_ins=(STAND_IN,),
        )
        for label, task in TASKS.items()
        for method in ("NGN", "SoRA", "AdaLoRA")
    ),
)

PEFT = (LORA, ADAPTER, DIAGNOSTICS, BASELINES)
