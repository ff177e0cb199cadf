"""Claims about LoRA rank, adapter width, and structured pruning of language models.

Scores are shares of one set of questions, from one seed. Their intervals are those of the questions; records do not
say which questions were answered, so models that share them are compared as if they did not, which is wider. Ties are
no losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from experiments.analysis.claims import Claim, Estimate, Outcome, Published, Tally
from experiments.analysis.estimates import difference_of_shares, exact, share
from experiments.analysis.evidence import Evidence, Untested
from experiments.analysis.tables import StandIn
from experiments.tables.peft import STAND_IN
from experiments.tables.pruning import STAND_IN as PRUNING_STAND_IN

_TASKS = ("wikisql-easy", "wikisql-hard", "spider", "gsm8k", "squad")
_PARTS = ("early", "mid", "late")

SMALL_MODEL = "on SmolLM2-135M"
_CHANGED = "before results; interval and ties since 2026-11-25, after results"


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
            for task in _TASKS
        }
        matched = [task for task, (ngn, sora) in sizes.items() if ngn == sora]
        if not matched:
            raise Untested("no task has equal ranks")
        parts = [ahead(evidence, matched, "sora", len(matched)), ahead(evidence, _TASKS, "adalora", 4)]
        scores = (
            "/".join(
                f"{evidence.cell(f'{rows}.{task}-{of}.score', None, stand_in):.1f}" for of in ("ngn", "sora", "adalora")
            )
            for task in _TASKS
        )
        listed = ", ".join(f"{task} {of_task}" for task, of_task in zip(_TASKS, scores, strict=True))
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
            for task in _TASKS:
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
        Claim(f"{key}{end}", f"{text}{beside}", places.get(key, where), predicate, _CHANGED)
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
        steps = []
        for ladder in _LADDERS:
            for column, sign in (("kept", 1), ("score", 1), ("forgetting", -1)):
                values = [cell(evidence, f"datathirteenbody.{ladder}-1e-{power}.{column}") for power in (2, 3, 4)]
                steps += [sign * (after - before) for before, after in pairwise(values)]
        rising, ties = sum(step > 0 for step in steps), steps.count(0)
        if ties == len(steps):
            raise Untested("every step is a tie")
        because = f"{rising} of {len(steps)} steps to a lower price, {ties} ties"
        part = Estimate("share of steps that are no ties", share(rising, len(steps) - ties), 0.9, spec=".0%")
        return Outcome([part], because)

    def frozen(evidence: Evidence) -> Outcome:
        safer = total = published = 0
        for target in ("heads", "ffn", "both"):
            for power in (2, 3, 4):
                names = [f"datathirteenbody.{target}-{kind}-1e-{power}.forgetting" for kind in ("frozen", "updated")]
                values = [cell(evidence, name) for name in names]
                printed = [evidence.published(name) for name in names]
                safer += values[0] <= values[1]
                published += printed[0] <= printed[1]
                total += 1
        return Outcome([Published("pairs with no more forgetting", safer, total, published, total)])

    def random(evidence: Evidence) -> Outcome:
        parts, kept = [], []
        for column, size in (("score", "kept"), ("mixed_score", "mixed_kept")):
            ngn, drop, wanda = (
                evidence.answers(f"datafourteenbody.{row}.{column}", None, stand_in)
                for row in ("ngn", "random", "wanda")
            )
            parts += [
                Estimate(f"{column}, NGN minus random", difference_of_shares(ngn, drop), 0.2, spec="+.1%"),
                Estimate(f"{column}, NGN minus Wanda", difference_of_shares(ngn, wanda), -0.1, 0.1, "+.1%"),
            ]
            kept.append(Estimate(f"{size}, %", exact(cell(evidence, f"datafourteenbody.ngn.{size}")), most=50))
        return Outcome(parts, premises=kept)

    return tuple(
        Claim(
            f"{key}{end}",
            f"{text}{beside}",
            where if stand_in is None else f"{where}, {SMALL_MODEL}",
            predicate,
            threshold,
        )
        for key, text, where, predicate, threshold in (
            (
                "prune_monotone",
                "A lower price keeps more, scores higher and forgets less (at least nine steps in ten).",
                "table 13",
                monotone,
                _CHANGED,
            ),
            (
                "prune_frozen",
                "Freezing the surviving weights forgets less than updating them, at every price.",
                "table 13",
                frozen,
                _CHANGED,
            ),
            (
                "prune_random",
                "Pruning by NGN is far above random removal (20 points) and within 10 points of Wanda, where at least "
                "half of the neurons are removed.",
                "table 14",
                random,
                "before results; premise since 2026-11-25, after results",
            ),
        )
    )


CLAIMS = (
    *_of(None),
    *_of(STAND_IN),
    *_pruning(None),
    *_pruning(PRUNING_STAND_IN),
)
