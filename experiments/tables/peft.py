r"""Learned LoRA rank and adapter width of a large language model (tables 11); single runs."""

from __future__ import annotations

from experiments.tables.model import Row, Table, column, row

_TASKS = ("WikiSQL-easy", "WikiSQL-hard", "Spider", "GSM8K", "SQuAD")
_THIRDS = "<early.value:d>/<mid.value:d>/<late.value:d>"
_SCORE = "<value:.1f>"
_PAIR = "<soft.value:.1f> / <truncated.value:.1f>"
_RATIO = "<value:.3f>"


def _rows(prefix: str) -> tuple[Row, ...]:
    return tuple(row(f"{prefix}{task.lower()}", task, seeds=1) for task in _TASKS)


_COMPACT = (
    column("base", "base", "base_score", _SCORE),
    column("size", "NGN size (e/m/l)", "size", f"<size.value:d> ({_THIRDS})"),
    column("score", "NGN soft/trunc.", "score", _PAIR),
    column("fixed", "fixed", "fixed_score", _SCORE),
)

LORA = Table(
    "dataelevenlorabody",
    "Table 11: LoRA rank",
    (*_COMPACT, column("sora", "SoRA", "sora_score", _SCORE), column("adalora", "AdaLoRA", "adalora_score", _SCORE)),
    _rows(""),
)

ADAPTER = Table("dataelevenadapterbody", "Table 11: adapter width", _COMPACT, _rows(""))

DIAGNOSTICS = Table(
    "dataelevenbody",
    "Table 11: NGN and matched fixed models",
    (
        column("base", "base", "base_score", _SCORE),
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
        *_rows("lora-"),
        r"\midrule",
        r"\multicolumn{9}{l}{\emph{Adapter width}} \\",
        *_rows("adapter-"),
    ),
)

BASELINES = Table(
    "dataelevenbaselinesbody",
    "Table 11: NGN, SoRA and AdaLoRA",
    (
        # a kept/target pair is printed where a run misses the rank that it was asked for
        column("count", "learned count", "size", "<value:d>", "<size.value:d>/<target.value:d>"),
        column("thirds", "e/m/l", "thirds", _THIRDS),
        column("score", "score", "score", _SCORE),
        column("forgetting", "ppl/base", "forgetting", _RATIO),
    ),
    tuple(
        row(f"{task.lower()}-{method.lower()}", task, method, seeds=1)
        for task in _TASKS
        for method in ("NGN", "SoRA", "AdaLoRA")
    ),
)
