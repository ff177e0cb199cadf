"""Every claim on made-up evidence: agrees, disagrees, cannot tell, holds by construction, untested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import record_samples as samples
from claim_samples import OF_CELLS, OF_RUNS, PUBLISHED, WIDE, Case, Memory, adapted, beside_random, cell, two_learners

from experiments.analysis import published
from experiments.analysis.claims import BY_CONSTRUCTION, UNTESTED, Judged, judge_claim
from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison, compare_all
from experiments.analysis.evidence import Evidence, sufficient
from experiments.analysis.tables import Table
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, Verdict
from experiments.store.records import Store
from experiments.studies import CLAIMS
from experiments.studies.peft import ADAPTER, BASELINES, DIAGNOSTICS, LORA, SMALL, TASKS, learned
from experiments.studies.pruning import FOURTEEN, NUMBERS, THIRTEEN
from experiments.studies.pruning_small import LADDER_RUNS, MIXED, TASK_ONLY

BY_KEY = {claim.name: claim for claim in CLAIMS}
PEFT, PRUNING = (LORA, ADAPTER, DIAGNOSTICS, BASELINES), (THIRTEEN, FOURTEEN, *NUMBERS)
L0 = PUBLISHED | dict([cell("datasevenfullbody.l0.truncated", 0)])


def judged(key: str, store: Store, items: Mapping[str, Comparison] = L0) -> Judged:
    return judge_claim(BY_KEY[key], Evidence(Reader(store), items))


@pytest.mark.parametrize("key", OF_CELLS)
def test_claims_on_cells(key: str) -> None:
    cases: tuple[Case, Case] = OF_CELLS[key]
    for items, word in cases:
        found = judged(key, Memory(), items)
        assert found.word == word, found.interval
        assert found.runs == ("run",)
        name = list(items)[-1]
        lacking = judged(key, Memory(), {**items, name: cell(name, 0)[1]})
        assert (lacking.word, lacking.runs, lacking.findings) == (UNTESTED, (), ())
        assert name in lacking.because


@pytest.mark.parametrize("key", OF_RUNS)
def test_claims_on_runs(key: str) -> None:
    holds, fails = OF_RUNS[key]
    good = BY_CONSTRUCTION if BY_KEY[key].by_construction else AGREES
    # ten runs without one do not prove that there is none
    bad = CANNOT_TELL if key == "overshoot" else DISAGREES
    for fill, word in ((holds, good), (fails, bad)):
        store = Memory()
        fill(store)
        found = judged(key, store)
        assert found.word == word, found.interval
        assert set(found.runs) <= set(store.records)
        assert found.runs
        assert found.findings
    lacking = judged(key, Memory())
    assert (lacking.word, lacking.runs) == (UNTESTED, ())
    assert " of " in lacking.because


def test_a_claim_on_curves_says_that_they_are_not_kept() -> None:
    store = Memory()
    holds, _ = OF_RUNS["overshoot"]
    holds(store)
    store.courses.clear()
    found = judged("overshoot", store)
    assert found.word == UNTESTED
    assert "these runs have no curve files; run them again" in found.because


def small(store: Store, **changes: float) -> None:
    """Records of learned ranks and widths, and of their rivals."""
    adapted((learned(task, gate, choices=SMALL) for gate in ("lora", "adapter") for task in TASKS.values()), **changes)(
        store
    )


def pruned(store: Store, sign: int = 1, frozen: float = 10.0, ngn: float = 72.0) -> None:
    """Records of the pruned models: lower prices keep and score more for ``sign`` 1, a frozen one's perplexity is less
    by ``frozen``, and ``ngn`` is the score beside rivals."""
    for key, runs in LADDER_RUNS.items():
        _, backbone, _, power = key.split("-")
        gate, of = runs.config(0).gate, sign * int(power)
        forgotten = 25.0 - of - (frozen if backbone == "frozen" else 0.0)
        phase = samples.answers([2 + sign * (int(power) - 3)] * gate.groups, gate, 50.0 + of, forgotten)
        samples.put(store, runs, 0, {"grown": {**phase, "t": [1.0] * gate.groups, "integer": [True] * gate.groups}})
    samples.adapt(store, TASK_ONLY, score=ngn, rival=70.0)
    for runs in (TASK_ONLY, MIXED):
        beside_random(store, runs, 17.0)
    (base,) = (find for name, find in TASK_ONLY.companions if name == "base")
    gate = base(TASK_ONLY, 0, {}).config(0).gate
    samples.put(store, base(TASK_ONLY, 0, {}), 0, {"fixed": samples.answers([0] * gate.groups, gate, 0.0, 20.0)})


Fill = Callable[..., None]
OF_STAND_INS: dict[str, tuple[tuple[Table, ...], Fill, tuple[dict[str, float], ...]]] = {
    "peft_baselines_small": (PEFT, small, ({"score": 80.0}, {"score": 51.0}, {"score": 20.0})),
    "peft_middle_small": (PEFT, small, ({}, {"third": 2})),
    "lora_close_small": (PEFT, small, ({"questions": 20_000}, {}, {"soft": 40.0})),
    "adapter_close_small": (PEFT, small, ({"questions": 20_000}, {}, {"soft": -40.0})),
    "prune_monotone_small": (PRUNING, pruned, ({"ngn": 53.0}, {"sign": -1})),
    "prune_frozen_small": (PRUNING, pruned, ({}, {"frozen": -10.0})),
    "prune_random_small": (PRUNING, pruned, ({"ngn": 70.0}, {"ngn": 60.0}, {"ngn": 30.0})),
}
"""A claim on the model that stands in for the paper's → its tables, and what is in records that agree with it, that
cannot tell (where there are three), and that disagree."""


@pytest.mark.parametrize("key", OF_STAND_INS)
def test_claims_on_the_model_that_stands_in(key: str) -> None:
    tables, fill, cases = OF_STAND_INS[key]
    words = (AGREES, CANNOT_TELL, DISAGREES) if len(cases) == 3 else (AGREES, DISAGREES)
    for changes, word in zip(cases, words, strict=True):
        store = Memory()
        fill(store, **changes)
        compared = compare_all(Reader(store), published.load_published(), tables)
        items = {item.name: item for item in compared if not item.stand_in}
        found = judged(key, store, items)
        assert found.word == word, found.interval
        assert "SmolLM2-135M" in found.text
        assert found.runs
        assert judged(key.removesuffix("_small"), store, items).word == UNTESTED


def test_ties_are_no_losses() -> None:
    store = Memory()
    small(store, score=50.0)
    compared = compare_all(Reader(store), published.load_published(), PEFT)
    found = judged("peft_baselines_small", store, {item.name: item for item in compared if not item.stand_in})
    assert found.word == CANNOT_TELL
    assert [finding.value for finding in found.findings] == [5, 5]


def test_little_removed_is_no_evidence_on_random_removal() -> None:
    store = Memory()
    pruned(store, ngn=30.0)
    compared = compare_all(Reader(store), published.load_published(), PRUNING)
    items = {item.name: item for item in compared if not item.stand_in}
    evidence = Evidence(Reader(store), items)
    outcome = BY_KEY["prune_random_small"].predicate(evidence)
    assert outcome.judge()[0] == DISAGREES
    little = [replace(premise, most=1.0) for premise in outcome.premises]
    word, findings = replace(outcome, premises=little).judge()
    assert word == CANNOT_TELL
    assert findings[0].text.startswith("premise: ")


def test_a_learner_unlike_the_published_one_is_no_evidence_about_it() -> None:
    store = Memory()
    two_learners("l0", WIDE, WIDE, 1e-4)(store)
    name, item = "datasevenfullbody.l0.truncated", L0["datasevenfullbody.l0.truncated"]
    found = judged("l0", store, {name: replace(item, verdict=Verdict(DISAGREES))})
    assert (found.word, found.runs) == (UNTESTED, ())
    assert "no evidence" in found.because


def test_every_claim_is_tested_here() -> None:
    on_the_papers_models = {key.removesuffix("_small") for key in OF_STAND_INS}
    assert set(BY_KEY) == {*OF_CELLS, *OF_RUNS, *OF_STAND_INS, *on_the_papers_models}
    assert len(BY_KEY) == len(CLAIMS)


def test_half_of_the_runs_have_to_be_there() -> None:
    assert [n for n in range(11) if sufficient(n, 10)] == list(range(5, 11))
    assert [n for n in (24, 25) if sufficient(n, 50)] == [25]
    assert sufficient(1, 1)
    assert not sufficient(2, 3)
