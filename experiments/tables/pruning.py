r"""Structured pruning of language models: the frontier of a small one (table 13) and a large one (table 14)."""

from __future__ import annotations

from experiments.tables.model import Row, Table, column, number, row

_KEPT = r"<value:.1f>\%"
_THIRDS = "<early.value:.1f>/<mid.value:.1f>/<late.value:.1f>"
_SCORE = "<value:.1f>"

_TARGETS = {"heads": "attention heads", "ffn": "FFN neurons", "both": "both"}


def _frontier() -> tuple[Row, ...]:
    return tuple(
        row(f"{short}-{backbone}-1e-{power}", target, backbone, f"$10^{{-{power}}}$", seeds=1)
        for short, target in _TARGETS.items()
        for backbone in ("frozen", "updated")
        for power in (2, 3, 4)
    )


THIRTEEN = Table(
    "datathirteenbody",
    "Table 13: pruning frontier",
    (
        column("kept", "kept", "kept", _KEPT),
        column("thirds", "e/m/l (%)", "kept_thirds", _THIRDS),
        column("score", "EM (trunc)", "score", _SCORE),
        column("forgetting", "Pile × base", "forgetting", "<value:.2f>"),
    ),
    _frontier(),
)

_FORGETTING = "<value:short>"
FOURTEEN = Table(
    "datafourteenbody",
    "Table 14: direct FFN pruning",
    (
        column("kept", "kept", "task.kept", _KEPT),
        column("thirds", "e/m/l (%)", "task.kept_thirds", _THIRDS),
        column("score", "score", "task.score", _SCORE),
        column("forgetting", "ppl ×", "task.forgetting", _FORGETTING),
        column("mixed_kept", "kept, mixed", "mixed.kept", _KEPT),
        column("mixed_thirds", "e/m/l, mixed (%)", "mixed.kept_thirds", _THIRDS),
        column("mixed_score", "score, mixed", "mixed.score", _SCORE),
        column("mixed_forgetting", "ppl ×, mixed", "mixed.forgetting", _FORGETTING),
    ),
    (
        row("ngn", "NGN prune", seeds=1),
        row("random", "random drop", seeds=1),
        row("wanda", "Wanda (per-layer)", seeds=1),
    ),
)

_RATE = r"<rate:.0f>\%"
_NGN = row("number", "NGN prune", seeds=1)
NUMBERS = (
    number("datafourteenintrate", "Table 14: integer, task-only", _NGN, "task.integer", _RATE),
    number("datafourteenmixintrate", "Table 14: integer, mixed", _NGN, "mixed.integer", _RATE),
)
