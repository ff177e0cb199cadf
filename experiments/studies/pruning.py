"""Structured pruning of language models: the frontier of a small one (table 13) and a large one (table 14)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, product
from typing import Any

from experiments.analysis.claims import Claims, Estimate, Outcome, Published
from experiments.analysis.estimates import difference_of_shares, exact, share
from experiments.analysis.evidence import Evidence, Untested
from experiments.analysis.selection import PRUNED, Selection, base_of
from experiments.analysis.tables import Row, StandIn, Table, column, number, row
from experiments.studies.peft import CHANGED, LLAMA, SMALL, WIKITEXT2

_KEPT = r"<value:.1f>\%"
_SCORE = "<value:.1f>"
TARGETS = {"heads": "attention heads", "ffn": "FFN neurons", "both": "both"}
BACKBONES = ("frozen", "updated")
POWERS = (2, 3, 4)
"""Prices 10^-power."""
PYTHIA = {"model": "pythia_410m"}
SHORT = {"train.epochs": 1}
"""Choices and overrides of this project's runs: with ``budget=cpu``, one pass over the training tokens."""
REPLAY = 256
"""Tokens of general text in every step of a mixed training."""
PLAIN = {"train.autocast": "none", "train.optimizer": "adam", "model.gradient_checkpointing": False}
"""In place of what a large model needs on one card."""
STAND_IN = StandIn("SmolLM2-135M, budget=cpu, one epoch", {**SHORT, **PLAIN}, SMALL)


def pruned(
    target: str,
    backbone: str,
    power: int,
    choices: Mapping[str, str],
    overrides: Mapping[str, Any] | None = None,
    companions: Mapping[str, Any] | None = None,
) -> Selection:
    """Select the run that prunes ``target`` at the price 10^-power, with the base scores."""
    settings = {"gate.target": target, "gate.backbone": backbone, "schedule.lambda0": float(f"1e-{power}")}
    beside = {"base": base_of, **(companions or {})}
    all_choices = {"task": "wikisql_easy", "gate": "prune", **choices}
    return Selection.of(all_choices, {**settings, **(overrides or {})}, (0,), beside)


def ladder_row(key: str, runs: Selection, power: int | str = "", **rest: Any) -> Row:
    """Make the row of a pruned model. Its key is its target and backbone, and its price if no ``power`` is given."""
    target, backbone, *price = key.split("-")
    return row(key, TARGETS[target], backbone, f"$10^{{-{power or price[-1]}}}$", seeds=1, runs=runs, **rest)


def ladder(choices: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> dict[str, Selection]:
    """Return row key → run of table 13."""
    return {
        f"{target}-{backbone}-1e-{power}": pruned(target, backbone, power, choices, overrides)
        for target in TARGETS
        for backbone in BACKBONES
        for power in POWERS
    }


def _mixed(selection: Selection, seed: int, record: Mapping[str, Any]) -> Selection:
    """Select the same run with general text in its training data, and models pruned to its sizes."""
    overrides = {**dict(selection.overrides), "task.replay": REPLAY}
    return Selection.of(dict(selection.choices), overrides, (seed,), {"base": base_of, **PRUNED})


def against(choices: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Selection:
    """Select the run of table 14, with models pruned to its sizes and with the mixed training."""
    return pruned("ffn", "updated", 3, choices, overrides, {**PRUNED, "mixed": _mixed})


THIRTEEN = Table(
    "datathirteenbody",
    "Table 13: pruning frontier",
    (
        column("kept", "kept", "kept", _KEPT),
        column("thirds", "e/m/l (%)", "kept", "<kept_early.value:.1f>/<kept_middle.value:.1f>/<kept_late.value:.1f>"),
        column("score", "EM (trunc)", "score", _SCORE),
        column("forgetting", "Pile × base", "forgetting", "<value:.2f>"),
    ),
    tuple(ladder_row(key, runs, stand_ins=(STAND_IN, WIKITEXT2)) for key, runs in ladder(PYTHIA).items()),
)

_FORGETTING = "<value:short>"
_BY_THIRD = "<{0}blocks_early.value:.1f>/<{0}blocks_middle.value:.1f>/<{0}blocks_late.value:.1f>"

# On one card of 80 GB; docs/language.md has the sums.
LLAMA_PRUNED = against(LLAMA, {"train.optimizer": "adamw8bit", "model.gradient_checkpointing": True})


def _compared(key: str, label: str, companion: str) -> Row:
    """Make a row of table 14 for a companion of NGN's run, at the sizes of that run."""
    scores = {
        f"{prefix}{name}": f"{'mixed/' if prefix else ''}{companion}/{name}"
        for prefix in ("", "mixed_")
        for name in ("score", "forgetting")
    }
    quantities = scores if companion else {}
    return row(key, label, seeds=1, runs=LLAMA_PRUNED, quantities=quantities, stand_ins=(STAND_IN, WIKITEXT2))


FOURTEEN = Table(
    "datafourteenbody",
    "Table 14: direct FFN pruning",
    (
        column("kept", "kept", "blocks", _KEPT),
        column("thirds", "e/m/l (%)", "blocks", _BY_THIRD.format("")),
        column("score", "score", "score", _SCORE),
        column("forgetting", "ppl ×", "forgetting", _FORGETTING),
        column("mixed_kept", "kept, mixed", "mixed/blocks", _KEPT),
        column("mixed_thirds", "e/m/l, mixed (%)", "mixed/blocks", _BY_THIRD.format("mixed/")),
        column("mixed_score", "score, mixed", "mixed/score", _SCORE),
        column("mixed_forgetting", "ppl ×, mixed", "mixed/forgetting", _FORGETTING),
    ),
    (
        _compared("ngn", "NGN prune", ""),
        _compared("random", "random drop", "random0"),
        _compared("wanda", "Wanda (per-layer)", "wanda"),
    ),
)

_RATE = r"<rate:.0f>\%"
_NGN = row("number", "NGN prune", seeds=1, runs=LLAMA_PRUNED, stand_ins=(STAND_IN, WIKITEXT2))
NUMBERS = (
    number("datafourteenintrate", "Table 14: integer, task-only", _NGN, "integer", _RATE),
    number("datafourteenmixintrate", "Table 14: integer, mixed", _NGN, "mixed/integer", _RATE),
)

claim = Claims(1200)


@claim.twice("prune_monotone", "table 13", CHANGED, STAND_IN)
def _monotone(evidence: Evidence) -> Outcome:
    """A lower price keeps more, scores higher and forgets less (at least nine steps in ten)."""
    steps = []
    for target, backbone in product(TARGETS, BACKBONES):
        for number_of, sign in (("kept", 1), ("score", 1), ("forgetting", -1)):
            name = f"datathirteenbody.{target}-{backbone}-1e-{{}}.{number_of}"
            values = [evidence.cell(name.format(power)) for power in POWERS]
            steps += [sign * (after - before) for before, after in pairwise(values)]
    rising, ties = sum(step > 0 for step in steps), steps.count(0)
    if ties == len(steps):
        raise Untested("every step is a tie")
    because = f"{rising} of {len(steps)} steps to a lower price, {ties} ties"
    part = Estimate("share of steps that are no ties", share(rising, len(steps) - ties), 0.9, spec=".0%")
    return Outcome([part], because)


@claim.twice("prune_frozen", "table 13", CHANGED, STAND_IN)
def _frozen(evidence: Evidence) -> Outcome:
    """Freezing the surviving weights forgets less than updating them, at every price."""
    safer = total = published = 0
    for target, power in product(TARGETS, POWERS):
        names = [f"datathirteenbody.{target}-{kind}-1e-{power}.forgetting" for kind in BACKBONES]
        values = [evidence.cell(name) for name in names]
        printed = [evidence.published(name) for name in names]
        safer += values[0] <= values[1]
        published += printed[0] <= printed[1]
        total += 1
    return Outcome([Published("pairs with no more forgetting", safer, total, published, total)])


@claim.twice("prune_random", "table 14", "before results; premise since 2026-11-25, after results", STAND_IN)
def _random(evidence: Evidence) -> Outcome:
    """Pruning by NGN is far above random removal (20 points) and within 10 points of Wanda, where at least half of the
    neurons are removed."""
    parts, kept = [], []
    for scored, size in (("score", "kept"), ("mixed_score", "mixed_kept")):
        ngn, drop, wanda = (evidence.answers(f"datafourteenbody.{row.key}.{scored}") for row in FOURTEEN.rows)
        parts += [
            Estimate(f"{scored}, NGN minus random", difference_of_shares(ngn, drop), 0.2, spec="+.1%"),
            Estimate(f"{scored}, NGN minus Wanda", difference_of_shares(ngn, wanda), -0.1, 0.1, "+.1%"),
        ]
        kept.append(Estimate(f"{size}, %", exact(evidence.cell(f"datafourteenbody.ngn.{size}")), most=50))
    return Outcome(parts, premises=kept)
