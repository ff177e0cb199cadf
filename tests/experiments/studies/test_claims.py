"""Every claim on made-up evidence: agrees, disagrees, cannot tell, holds by construction, untested."""

from dataclasses import replace

import pytest
from claim_runs import CHECKED, FOUR, OF_CELLS, OF_RUNS, PUBLISHED, WIDE, Memory, baseline, cell, grown, two_learners
from claim_standins import OF_STAND_INS, ON_THE_PAPERS_MODELS, PEFT, PRUNING, adapted, pruned

from experiments.analysis.claims import BY_CONSTRUCTION, UNTESTED, judge_claim
from experiments.analysis.collect import Reader
from experiments.analysis.compare import compare_all
from experiments.analysis.evidence import Evidence, sufficient
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, Verdict
from experiments.store.records import Store
from experiments.studies import CLAIMS as BY_KEY


def judged(key, store, items=PUBLISHED):
    return judge_claim(BY_KEY[key], Reader(store), items)


@pytest.mark.parametrize("key", OF_CELLS)
def test_claims_on_cells(key):
    cases = OF_CELLS[key]
    for items, word in cases:
        found = judged(key, Memory(), items)
        assert found.word == word, found.interval
        assert found.runs == ("run",)
        name = items[-1].name
        lacking = judged(key, Memory(), [*items, cell(name, 0)])
        assert (lacking.word, lacking.runs, lacking.findings) == (UNTESTED, (), ())
        assert name in lacking.because


@pytest.mark.parametrize("key", OF_RUNS)
def test_claims_on_runs(key):
    good = BY_CONSTRUCTION if BY_KEY[key].by_construction else AGREES
    for made, word in zip(OF_RUNS[key], (good, DISAGREES), strict=True):
        store = Memory(made)
        found = judged(key, store)
        assert found.word == word, found.interval
        assert set(found.runs) <= set(store.records)
        assert found.runs
        assert found.findings
    lacking = judged(key, Memory())
    assert (lacking.word, lacking.runs) == (UNTESTED, ())
    assert " of " in lacking.because


def test_a_claim_on_curves():
    made = baseline(lambda seed: 6.0)
    over, under = ({"grown.t": [[0.0], [highest], [6.0]]} for highest in (8.0, 6.1))
    assert judged("overshoot", Memory(made, over)).word == AGREES
    assert judged("overshoot", Memory(made, under)).word == CANNOT_TELL, "ten runs do not prove that none does"


def test_a_claim_on_two_curves_of_a_run():
    slow, quick = [4.0, 3.0, 2.0, 1.0], [4.0, 1.0, 1.0, 1.0]
    for first, other, word in ((slow, quick, AGREES), (quick, slow, DISAGREES)):
        steps = {f"{phase}.step": [0, 1, 2, 3] for phase in ("grown", "fixed")}
        found = judged("steps", Memory(CHECKED, {**steps, "grown.task": first, "fixed.task": other}))
        assert found.word == word, found.interval
        assert "of 17 runs" in found.interval
    found = judged("steps", Memory(CHECKED))
    assert found.word == UNTESTED
    assert "these runs have no curve files; run them again" in found.because


@pytest.mark.parametrize("key", OF_STAND_INS)
def test_claims_on_the_model_that_stands_in(key, tmp_path):
    tables, fill, cases = OF_STAND_INS[key]
    words = (AGREES, CANNOT_TELL, DISAGREES) if len(cases) == 3 else (AGREES, DISAGREES)
    for changes, word in zip(cases, words, strict=True):
        store = Store(tmp_path / word)
        fill(store, **changes)
        items = compare_all(Reader(store), tables)
        found = judged(key, store, items)
        assert found.word == word, found.interval
        assert found.runs
        if tables:
            assert "SmolLM2-135M" in found.text
            assert judged(key.removesuffix("_small"), store, items).word == UNTESTED
    lacking = judged(key, Memory(), compare_all(Reader(Memory()), tables))
    assert (lacking.word, lacking.runs) == (UNTESTED, ())
    assert ("is not run" if tables else " of ") in lacking.because


def test_ties_are_no_losses(tmp_path):
    store = Store(tmp_path)
    adapted(store, score=50.0)
    found = judged("peft_baselines_small", store, compare_all(Reader(store), PEFT))
    assert found.word == CANNOT_TELL
    assert [finding.value for finding in found.findings] == [5, 5]


def test_little_removed_is_no_evidence_on_random_removal(tmp_path):
    store = Store(tmp_path)
    pruned(store, ngn=30.0)
    claim = BY_KEY["prune_random_small"]
    outcome = claim.predicate(Evidence(Reader(store), compare_all(Reader(store), PRUNING), claim.stand_in))
    assert outcome.judge()[0] == DISAGREES
    little = [replace(premise, most=1.0) for premise in outcome.premises]
    word, findings = replace(outcome, premises=little).judge()
    assert word == CANNOT_TELL
    assert findings[0].text.startswith("premise: ")


@pytest.mark.parametrize("key", ["l0", "awnn_spread", "awnn_fit", "ste"])
@pytest.mark.parametrize("column", ["t", "truncated"])
def test_a_learner_unlike_the_published_one_is_no_evidence_about_it(key, column):
    learner = key.partition("_")[0]
    store, unlike = Memory(two_learners(learner, WIDE, 1e-5, WIDE, 1e-4)), f"datasevenfullbody.{learner}.{column}"
    items = [replace(item, verdict=Verdict(DISAGREES)) if item.name == unlike else item for item in PUBLISHED]
    found = judged(key, store, items)
    assert (found.word, found.runs) == (UNTESTED, ())
    assert "no evidence" in found.because


def test_a_statement_uses_every_seed_that_a_row_has():
    store = Memory([(FOUR.runs["baseline"].with_seeds(range(50)), lambda seed: grown(6.0, 1e-5, 1e-5))])
    assert len(judged("truncation_free", store).runs) == 50


def test_every_claim_is_tested_here():
    assert set(BY_KEY) == {*OF_CELLS, *OF_RUNS, *OF_STAND_INS, *ON_THE_PAPERS_MODELS, "overshoot", "steps"}


def test_half_of_the_runs_have_to_be_there():
    assert [n for n in range(11) if sufficient(n, 10)] == list(range(5, 11))
    assert [n for n in (24, 25) if sufficient(n, 50)] == [25]
    assert sufficient(1, 1)
    assert not sufficient(2, 3)
