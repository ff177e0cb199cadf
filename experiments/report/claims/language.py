"""Claims about LoRA rank, adapter width, and structured pruning of language models."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from experiments.report.claims.evidence import Claim, Evidence, Outcome
from experiments.tables.model import StandIn
from experiments.tables.peft import STAND_IN
from experiments.tables.pruning import STAND_IN as PRUNING_STAND_IN

_TASKS = ("wikisql-easy", "wikisql-hard", "spider", "gsm8k", "squad")
_PARTS = ("early", "mid", "late")


SMALL_MODEL = "on SmolLM2-135M"


def _of(stand_in: StandIn | None) -> tuple[Claim, ...]:
    """The claims on table 11: of the paper's model, or of the one that stands in for it here."""
    end, where = ("", "table 11") if stand_in is None else ("_small", f"table 11, {SMALL_MODEL}")
    beside = "" if stand_in is None else f" Here {SMALL_MODEL} at {stand_in.name.rpartition(', ')[2]}."

    def cell(evidence: Evidence, name: str, slot: str | None = None) -> float:
        return evidence.cell(name, slot, stand_in)

    def baselines(evidence: Evidence) -> Outcome:
        own, rows = {}, "dataelevenbaselinesbody"
        for task in _TASKS:
            for method in ("ngn", "sora", "adalora"):
                own[task, method] = cell(evidence, f"{rows}.{task}-{method}.score")
        sizes = {task: [cell(evidence, f"{rows}.{task}-{of}.count") for of in ("ngn", "sora")] for task in _TASKS}
        matched = [task for task, (ngn, sora) in sizes.items() if ngn == sora]
        sora = sum(own[task, "ngn"] > own[task, "sora"] for task in matched)
        adalora = sum(own[task, "ngn"] > own[task, "adalora"] for task in _TASKS)
        because = f"above SoRA on {sora} of {len(matched)} tasks of equal rank, above AdaLoRA on {adalora} of five"
        return Outcome(bool(matched) and sora == len(matched) and adalora >= 4, because)

    def middle(evidence: Evidence) -> Outcome:
        thirds = {
            task: [cell(evidence, f"dataelevenbody.lora-{task}.thirds", f"{part}.value") for part in _PARTS]
            for task in ("wikisql-easy", "wikisql-hard")
        }
        because = ", ".join(f"{task} {'/'.join(f'{n:.0f}' for n in parts)}" for task, parts in thirds.items())
        return Outcome(all(parts[1] == max(parts) for parts in thirds.values()), because)

    def close(kind: str) -> Callable[[Evidence], Outcome]:
        def predicate(evidence: Evidence) -> Outcome:
            gaps = {}
            for task in _TASKS:
                name = f"dataeleven{kind}body.{task}.score"
                gaps[task] = cell(evidence, name, "truncated.value") - cell(evidence, name, "soft.value")
            because = "truncated minus soft, points: " + ", ".join(f"{task} {gap:+.1f}" for task, gap in gaps.items())
            return Outcome(all(abs(gap) <= 3 for gap in gaps.values()), because)

        return predicate

    texts = {
        "peft_baselines": "NGN scores above SoRA wherever the ranks are equal, above AdaLoRA on four of five tasks.",
        "peft_middle": "The learned LoRA ranks of both WikiSQL tasks concentrate in the middle third of the layers.",
        "lora_close": "LoRA rank: truncated scores are within three points of the soft ones.",
        "adapter_close": "adapter width: truncated scores are within three points of the soft ones.",
    }
    predicates = (baselines, middle, close("lora"), close("adapter"))
    places = {"peft_middle": "limitations"} if stand_in is None else {}
    return tuple(
        Claim(f"{key}{end}", f"{text}{beside}", places.get(key, where), predicate)
        for (key, text), predicate in zip(texts.items(), predicates, strict=True)
    )


_LADDERS = [f"{target}-{backbone}" for target in ("heads", "ffn", "both") for backbone in ("frozen", "updated")]


def _pruning(stand_in: StandIn | None) -> tuple[Claim, ...]:
    """The claims on tables 13 and 14: of the paper's models, or of the one that stands in for them here."""
    end = "" if stand_in is None else "_small"
    beside = "" if stand_in is None else f" Here {SMALL_MODEL} at {stand_in.name.partition(', ')[2]}."

    def cell(evidence: Evidence, name: str) -> float:
        return evidence.cell(name, None, stand_in)

    def monotone(evidence: Evidence) -> Outcome:
        steps = rising = 0
        for ladder in _LADDERS:
            for column, sign in (("kept", 1), ("score", 1), ("forgetting", -1)):
                values = [cell(evidence, f"datathirteenbody.{ladder}-1e-{power}.{column}") for power in (2, 3, 4)]
                rising += sum(sign * (after - before) > 0 for before, after in pairwise(values))
                steps += len(values) - 1
        return Outcome(rising >= 0.9 * steps, f"{rising} of {steps} steps to a lower price")

    def frozen(evidence: Evidence) -> Outcome:
        safer = total = 0
        for target in ("heads", "ffn", "both"):
            for power in (2, 3, 4):
                frozen, updated = (
                    cell(evidence, f"datathirteenbody.{target}-{kind}-1e-{power}.forgetting")
                    for kind in ("frozen", "updated")
                )
                safer += frozen < updated
                total += 1
        return Outcome(safer == total, f"less forgetting in {safer} of {total} pairs")

    def random(evidence: Evidence) -> Outcome:
        columns = ("score", "mixed_score")
        ngn, drop, wanda = (
            [cell(evidence, f"datafourteenbody.{row}.{column}") for column in columns]
            for row in ("ngn", "random", "wanda")
        )
        because = "; ".join(
            f"{column}: NGN {a:.1f}, random {b:.1f}, Wanda {c:.1f}"
            for column, a, b, c in zip(columns, ngn, drop, wanda, strict=True)
        )
        far = all(a >= b + 20 for a, b in zip(ngn, drop, strict=True))
        return Outcome(far and all(abs(a - c) <= 10 for a, c in zip(ngn, wanda, strict=True)), because)

    return tuple(
        Claim(f"{key}{end}", f"{text}{beside}", where if stand_in is None else f"{where}, {SMALL_MODEL}", predicate)
        for key, text, where, predicate in (
            (
                "prune_monotone",
                "A lower price keeps more, scores higher and forgets less (at least nine steps in ten).",
                "table 13",
                monotone,
            ),
            (
                "prune_frozen",
                "Freezing the surviving weights forgets less than updating them, at every price.",
                "table 13",
                frozen,
            ),
            (
                "prune_random",
                "Pruning by NGN is far above random removal (20 points) and within 10 points of Wanda.",
                "table 14",
                random,
            ),
        )
    )


CLAIMS = (
    *_of(None),
    *_of(STAND_IN),
    *_pruning(None),
    *_pruning(PRUNING_STAND_IN),
)
