"""docs/disagreements.md against the verdicts of the committed records."""

from __future__ import annotations

import functools
import re

import own_records

from experiments.analysis.compare import Comparison, compare_all, totals
from experiments.analysis.terminal import tex_to_text
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, LEVEL
from experiments.core.paths import ROOT
from experiments.studies import judge_all, macros

PAGE = (ROOT / "docs" / "disagreements.md").read_text()
TEXT = " ".join(PAGE.split())


@functools.cache
def items() -> tuple[Comparison, ...]:
    return compare_all(own_records.reader(), macros())


def test_every_disagreement_stands_there_once_with_its_numbers() -> None:
    apart = {}
    for item in items():
        outside = item.row.seeds == 1 and not all(part.inside for part in item.verdict.parts)
        if not item.stand_in and (item.verdict.word == DISAGREES or outside):
            apart.setdefault(item.fact, []).append(item)
    lines = re.findall(r"^\| `(\w+\.[\w-]+\.\w+)` \| (.*) \| (.*) \|$", PAGE, flags=re.M)
    by_name = {item.name: item for found in apart.values() for item in found}
    wrong = [
        name
        for name, ours, theirs in lines
        if name not in by_name
        or (ours, theirs) != (tex_to_text(by_name[name].cell.text), tex_to_text(by_name[name].published_text))
    ]
    assert not wrong, "no longer so"
    facts = [by_name[name].fact for name, *_ in lines]
    assert len(facts) == len(set(facts))
    missing = [found[-1].name for fact, found in apart.items() if fact not in facts]
    assert not missing


def test_the_totals_are_those_of_the_verdicts() -> None:
    found = totals(items())
    assert (
        f"Of {found.facts.total()} facts that can be judged {found.facts[DISAGREES]} disagree, "
        f"{found.facts[AGREES]} agree and {found.facts[CANNOT_TELL]} cannot be told; chance alone gives at most "
        f"{LEVEL * found.tests:.1f} rejections among the {found.tests} distinct tests"
    ) in TEXT
    outside = f"{found.outside} of {found.placed} such numbers lie outside"
    assert f"{outside}, and chance alone puts {found.expected_outside:.1f}" in TEXT


def test_statements_that_disagree_are_explained() -> None:
    judged = judge_all(own_records.reader(), items())
    words = {claim.key: claim.word for claim in judged}
    listed = dict(re.findall(r"^\| `(\w+)` \| ([a-z ]+) \|", PAGE, flags=re.M))
    assert listed == {key: words[key] for key in listed}
    assert set(listed.values()) <= {DISAGREES, CANNOT_TELL}
    assert {key for key, word in words.items() if word == DISAGREES} <= set(listed)
