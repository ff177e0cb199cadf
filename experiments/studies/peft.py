"""Learned LoRA rank and adapter width of a large language model: table 11, single runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


_KEYS = ("wikisql-easy", "wikisql-hard", "spider", "gsm8k", "squad")
_PARTS = ("early", "mid", "late")
SMALL_MODEL = "on SmolLM2-135M"
CHANGED = "before results; interval and ties since 2026-11-25, after results"
claim = Claims(1100)


def _of(stand_in: StandIn | None) -> tuple[Claim, ...]:
    """The claims on table 11: of the paper's model, or of the one that stands in for it here."""
    end, where = ("", "table 11") if stand_in is None else ("_small", f"table 11, {SMALL_MODEL}")
    beside = "" if stand_in is None else f" Here {SMALL_MODEL} at {stand_in.name.rpartition(', ')[2]}."
    rows = "dataelevenbaselinesbody"

    def ahead(evidence: Evidence, tasks: Sequence[str], method: str, least: int) -> Tally:
        """On how many tasks NGN's score is at least that of another method."""
        parts = []
        for task in tasks:
            ours, other = (evidence.answers(f"{rows}.{task}-{of}.score", None, stand_in) for of in ("ngn", method))
            parts.append(Estimate(task, difference_of_shares(ours, other), 0))
        return Tally(f"tasks not below {method}", tuple(parts), least)

    def baselines(evidence: Evidence) -> Outcome:
        sizes = {
            task: [evidence.cell(f"{rows}.{task}-{of}.count", None, stand_in) for of in ("ngn", "sora")]
            for task in _KEYS
        }
        matched = [task for task, (ngn, sora) in sizes.items() if ngn == sora]
        if not matched:
            raise Untested("no task has equal ranks")
        parts = [ahead(evidence, matched, "sora", len(matched)), ahead(evidence, _KEYS, "adalora", 4)]
        scores = (
            "/".join(
                f"{evidence.cell(f'{rows}.{task}-{of}.score', None, stand_in):.1f}" for of in ("ngn", "sora", "adalora")
            )
            for task in _KEYS
        )
        listed = ", ".join(f"{task} {of_task}" for task, of_task in zip(_KEYS, scores, strict=True))
        return Outcome(parts, f"scores of NGN/SoRA/AdaLoRA: {listed}")

    def middle(evidence: Evidence) -> Outcome:
        parts, listed = [], []
        for task in ("wikisql-easy", "wikisql-hard"):
            name = f"dataelevenbody.lora-{task}.thirds"
            early, mid, late = (round(evidence.cell(name, f"{part}.value", stand_in)) for part in _PARTS)
            other = max(early, late)
            if mid + other == 0:
                raise Untested(f"{name}: no rank was learned")
            listed.append(f"{task} {early}/{mid}/{late}")
            what = f"middle third, of it and the larger of the others, {task}"
            parts.append(Estimate(what, share(mid, mid + other), 0.5, spec=".0%"))
        return Outcome(parts, f"ranks: {', '.join(listed)}")

    def close(kind: str) -> Callable[[Evidence], Outcome]:
        def predicate(evidence: Evidence) -> Outcome:
            parts = []
            for task in _KEYS:
                name = f"dataeleven{kind}body.{task}.score"
                cut, soft = (evidence.answers(name, f"{of}.value", stand_in) for of in ("truncated", "soft"))
                parts.append(Estimate(task, difference_of_shares(cut, soft), -0.03, 0.03, "+.1%"))
            return Outcome(parts, "truncated minus soft")

        return predicate

    texts = {
        "peft_baselines": "NGN scores no lower than SoRA wherever the ranks are equal, and no lower than AdaLoRA on "
        "four of five tasks.",
        "peft_middle": "The learned LoRA ranks of both WikiSQL tasks concentrate in the middle third of the layers: it "
        "has as many as either other third.",
        "lora_close": "LoRA rank: truncated scores are within three points of the soft ones.",
        "adapter_close": "adapter width: truncated scores are within three points of the soft ones.",
    }
    predicates = (baselines, middle, close("lora"), close("adapter"))
    places = {"peft_middle": "limitations"} if stand_in is None else {}
    return tuple(
        claim(f"{key}{end}", places.get(key, where), CHANGED, text=f"{text}{beside}")(predicate)
        for (key, text), predicate in zip(texts.items(), predicates, strict=True)
    )


CLAIMS = (*_of(None), *_of(STAND_IN))
