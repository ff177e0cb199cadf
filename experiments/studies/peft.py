"""Learned LoRA rank and adapter width of a large language model: table 11, single runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.analysis.claims import Claim, Claims, Estimate, Outcome, Tally
from experiments.analysis.estimates import difference_of_shares, share
from experiments.analysis.evidence import Evidence, Untested
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
WIKITEXT2 = StandIn("WikiText-2 for the Pile", {"task.general": "wikitext2"})
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
        row(f"{prefix}{label.lower()}", label, seeds=1, runs=learned(task, gate), stand_ins=(STAND_IN, WIKITEXT2))
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
            stand_ins=(STAND_IN, WIKITEXT2),
        )
        for label, task in TASKS.items()
        for method in ("NGN", "SoRA", "AdaLoRA")
    ),
)

_KEYS = ("wikisql-easy", "wikisql-hard", "spider", "gsm8k", "squad")
_PARTS = ("early", "mid", "late")
_SCORES = "dataelevenbaselinesbody.{}-{}.score"
CHANGED = "before results; interval and ties since 2026-11-25, after results"
claim = Claims(1100)


def _ahead(evidence: Evidence, tasks: Sequence[str], method: str, least: int) -> Tally:
    """On how many tasks NGN's score is at least that of another method."""
    parts = []
    for task in tasks:
        ours, other = (evidence.answers(_SCORES.format(task, of)) for of in ("ngn", method))
        parts.append(Estimate(task, difference_of_shares(ours, other), 0))
    return Tally(f"tasks not below {method}", tuple(parts), least)


@claim.twice("peft_baselines", "table 11", CHANGED, STAND_IN)
def _baselines(evidence: Evidence) -> Outcome:
    """NGN scores no lower than SoRA wherever the ranks are equal, and no lower than AdaLoRA on four of five tasks."""
    sizes = {
        task: [evidence.cell(f"dataelevenbaselinesbody.{task}-{of}.count") for of in ("ngn", "sora")] for task in _KEYS
    }
    matched = [task for task, (ngn, sora) in sizes.items() if ngn == sora]
    if not matched:
        raise Untested("no task has equal ranks")
    parts = [_ahead(evidence, matched, "sora", len(matched)), _ahead(evidence, _KEYS, "adalora", 4)]
    scores = (
        "/".join(f"{evidence.cell(_SCORES.format(task, of)):.1f}" for of in ("ngn", "sora", "adalora"))
        for task in _KEYS
    )
    listed = ", ".join(f"{task} {of_task}" for task, of_task in zip(_KEYS, scores, strict=True))
    return Outcome(parts, f"scores of NGN/SoRA/AdaLoRA: {listed}")


@claim.twice("peft_middle", "table 11", CHANGED, STAND_IN, limitation=True)
def _middle(evidence: Evidence) -> Outcome:
    """The learned LoRA ranks of both WikiSQL tasks concentrate in the middle third of the layers: it has as many as
    either other third."""
    parts, listed = [], []
    for task in ("wikisql-easy", "wikisql-hard"):
        name = f"dataelevenbody.lora-{task}.thirds"
        ranks = [round(evidence.cell(name, f"{part}.value")) for part in _PARTS]
        listed.append(f"{task} {'/'.join(map(str, ranks))}")
        parts.append(middle_third(ranks, name, task))
    return Outcome(parts, f"ranks: {', '.join(listed)}")


def middle_third(ranks: Sequence[int], what: str, task: str) -> Estimate:
    """Want that the middle third of the layers has as many ranks as either other.

    Raises:
        Untested: if ``what`` has none.
    """
    early, middle, late = ranks
    both = middle + max(early, late)
    if both == 0:
        raise Untested(f"{what}: no rank was learned")
    return Estimate(f"middle third, of it and the larger of the others, {task}", share(middle, both), 0.5, spec=".0%")


def _close(kind: str, title: str) -> tuple[Claim, Claim]:
    def predicate(evidence: Evidence) -> Outcome:
        parts = []
        for task in _KEYS:
            name = f"dataeleven{kind}body.{task}.score"
            cut, soft = (evidence.answers(name, f"{of}.value") for of in ("truncated", "soft"))
            parts.append(Estimate(task, difference_of_shares(cut, soft), -0.03, 0.03, "+.1%"))
        return Outcome(parts, "truncated minus soft")

    text = f"{title}: truncated scores are within three points of the soft ones."
    return claim.twice(f"{kind}_close", "table 11", CHANGED, STAND_IN, text=text)(predicate)


CLOSE = (*_close("lora", "LoRA rank"), *_close("adapter", "adapter width"))
