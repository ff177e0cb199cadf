"""Claims about LoRA rank, adapter width, and structured pruning of language models."""

from __future__ import annotations

from itertools import pairwise

from experiments.report.claims.evidence import Claim, Evidence, Outcome, claim

_TASKS = ("wikisql-easy", "wikisql-hard", "spider", "gsm8k", "squad")


@claim("peft_baselines", "table 11")
def _baselines(evidence: Evidence) -> Outcome:
    """NGN scores above SoRA at equal rank on three of three tasks, above AdaLoRA on four of five."""
    scores = {
        (task, method): evidence.cell(f"dataelevenbaselinesbody.{task}-{method}.score")
        for task in _TASKS
        for method in ("ngn", "sora", "adalora")
    }
    matched = [task for task in _TASKS if task not in ("spider", "gsm8k")]
    sora = sum(scores[task, "ngn"] > scores[task, "sora"] for task in matched)
    adalora = sum(scores[task, "ngn"] > scores[task, "adalora"] for task in _TASKS)
    because = f"above SoRA on {sora} of {len(matched)} tasks of equal rank, above AdaLoRA on {adalora} of {len(_TASKS)}"
    return Outcome(sora == len(matched) and adalora >= 4, because)


@claim("peft_middle", "limitations")
def _middle(evidence: Evidence) -> Outcome:
    """The learned LoRA ranks of both WikiSQL tasks concentrate in the middle third of the layers."""
    thirds = {
        task: [
            evidence.cell(f"dataelevenbody.lora-{task}.thirds", f"{part}.value") for part in ("early", "mid", "late")
        ]
        for task in ("wikisql-easy", "wikisql-hard")
    }
    because = ", ".join(f"{task} {'/'.join(f'{n:.0f}' for n in parts)}" for task, parts in thirds.items())
    return Outcome(all(parts[1] == max(parts) for parts in thirds.values()), because)


def _close(kind: str) -> Claim:
    def predicate(evidence: Evidence) -> Outcome:
        gaps = {}
        for task in _TASKS:
            name = f"dataeleven{kind}body.{task}.score"
            gaps[task] = evidence.cell(name, "truncated.value") - evidence.cell(name, "soft.value")
        because = "truncated minus soft, points: " + ", ".join(f"{task} {gap:+.1f}" for task, gap in gaps.items())
        return Outcome(all(abs(gap) <= 3 for gap in gaps.values()), because)

    name = {"lora": "LoRA rank", "adapter": "adapter width"}[kind]
    return Claim(
        f"{kind}_close", f"{name}: truncated scores are within three points of the soft ones.", "table 11", predicate
    )


_LADDERS = [f"{target}-{backbone}" for target in ("heads", "ffn", "both") for backbone in ("frozen", "updated")]


@claim("prune_monotone", "table 13")
def _monotone(evidence: Evidence) -> Outcome:
    """A lower price keeps more, scores higher and forgets less (at least nine steps in ten)."""
    steps = rising = 0
    for ladder in _LADDERS:
        for column, sign in (("kept", 1), ("score", 1), ("forgetting", -1)):
            values = [evidence.cell(f"datathirteenbody.{ladder}-1e-{power}.{column}") for power in (2, 3, 4)]
            rising += sum(sign * (after - before) > 0 for before, after in pairwise(values))
            steps += len(values) - 1
    return Outcome(rising >= 0.9 * steps, f"{rising} of {steps} steps to a lower price")


@claim("prune_frozen", "table 13")
def _frozen(evidence: Evidence) -> Outcome:
    """Freezing the surviving weights forgets less than updating them, at every price."""
    safer = total = 0
    for target in ("heads", "ffn", "both"):
        for power in (2, 3, 4):
            frozen, updated = (
                evidence.cell(f"datathirteenbody.{target}-{kind}-1e-{power}.forgetting")
                for kind in ("frozen", "updated")
            )
            safer += frozen < updated
            total += 1
    return Outcome(safer == total, f"less forgetting in {safer} of {total} pairs")


@claim("prune_random", "table 14")
def _random(evidence: Evidence) -> Outcome:
    """Pruning by NGN is far above random removal (20 points) and within 10 points of Wanda."""
    columns = ("score", "mixed_score")
    ngn, drop, wanda = (
        [evidence.cell(f"datafourteenbody.{row}.{column}") for column in columns] for row in ("ngn", "random", "wanda")
    )
    because = "; ".join(
        f"{column}: NGN {a:.1f}, random {b:.1f}, Wanda {c:.1f}"
        for column, a, b, c in zip(columns, ngn, drop, wanda, strict=True)
    )
    far = all(a >= b + 20 for a, b in zip(ngn, drop, strict=True))
    return Outcome(far and all(abs(a - c) <= 10 for a, c in zip(ngn, wanda, strict=True)), because)


CLAIMS = (
    _baselines,
    _middle,
    _close("lora"),
    _close("adapter"),
    _monotone,
    _frozen,
    _random,
)
