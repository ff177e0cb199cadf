"""Two settings side by side: which runs stand for which, how the report counts them, and truncation both ways."""

import re

import pytest
import record_samples as samples

from experiments.analysis.collect import Reader
from experiments.analysis.compare import compare_all
from experiments.analysis.selection import selected_runs
from experiments.analysis.verdict import AGREES, DISAGREES, NOT_RUN
from experiments.report import pages
from experiments.report.alternatives import Pair, evidence, two_ways
from experiments.report.content import build_content
from experiments.store.records import Store
from experiments.studies import STUDIES, macros
from experiments.studies.learners import DECAY
from experiments.studies.manifold import FIFTEEN
from experiments.studies.schedules import FOUR
from experiments.studies.several import GATES_KEPT, INFERRED, inferred

ROWS = {f"{table.name}.{row.key}" for table in macros() for row in table.rows}
WITHOUT_ALPHA = DECAY.runs["learn_r"]
DECLARED = {name: study.alternative for name, study in STUDIES.items() if study.alternative is not None}


def of(store, study):
    (found,) = [both for both in build_content(Reader(store)).alternatives if both.study.name == study]
    return found


def test_declared_rows_exist():
    named = {name for one in DECLARED.values() for name in one.found_by | one.test if not name.startswith("figure ")}
    assert named
    assert named <= ROWS
    assert all(one.unmoved <= one.test for one in DECLARED.values())


def test_without_records_every_cell_of_an_alternative_is_a_dash(tmp_path):
    made = build_content(Reader(Store(tmp_path))).alternatives
    assert [both.study.name for both in made] == [name for name in STUDIES if name in DECLARED]
    for both in made:
        assert both.cells
        assert {pair.other.verdict.word for pair in both.cells} == {NOT_RUN}
        assert {pair.other.cell.text for pair in both.cells} == {"--"}
        assert both.facts == both.tested() == []
        assert both.missing > 0


def test_a_cell_stands_beside_that_of_the_stated_setting(tmp_path):
    """The same rule judges both. The row's published deviation is small against the distance of the first."""
    store = Store(tmp_path)
    runs = FOUR.runs["beta15"]
    for seed in range(10):
        samples.put(store, runs, seed, {"grown": samples.grown([9.0 + seed / 100], 1e-3, 1e-3)})
        samples.put(store, inferred(runs), seed, {"grown": samples.grown([2.0 + seed / 100], 1e-3, 1e-3)})
        for each in (WITHOUT_ALPHA, inferred(WITHOUT_ALPHA)):
            samples.put(store, each, seed, {"grown": samples.grown([31.0], 1e-3, 1e-3)})
    both = of(store, INFERRED.name)
    (pair,) = [pair for pair in both.cells if pair.stated.name == "datafourfullbody.beta15.t"]
    assert (pair.stated.verdict.word, pair.other.verdict.word) == (DISAGREES, AGREES)
    assert pair.other.verdict.calibrated, "the setting was found by this table"
    assert pair.other.cell.run_ids == tuple(run.id for run in selected_runs(inferred(runs)))
    (fact,) = [cells.stated.fact for cells, words in both.facts if words == Pair(DISAGREES, AGREES)]
    assert fact == pair.stated.fact
    assert both.tested() == [], "alpha moves nothing in the one row of the test"
    assert "`decayablationbody.learn_r.soft`" in both.tested(every=True)
    page = pages.PAGES["about_the_paper.md"](build_content(Reader(store)))
    assert re.search(r"^\| `datafourfullbody.beta15.t` \| 9.04 ± 0.03 ✗ \| 2.04 ± 0.03 \| 2.05 ", page, re.M)
    assert "`--`: no fact can be judged under both settings yet." in page, "of the other settings"


def test_a_cell_that_does_not_change_is_left_out(tmp_path):
    store = Store(tmp_path)
    runs = FOUR.runs["no_alpha"]
    samples.put(store, runs, 0, {"grown": {**samples.grown([4.0], 1e-3, 2e-3), "gates_kept": {"mse": 5e-3}}})
    shown = [pair for pair in of(store, GATES_KEPT.name).cells if pair.stated.name.startswith("datafourbody.no_alpha")]
    assert [pair.stated.column.key for pair in shown] == ["truncated"]
    assert [(pair.stated.cell.text, pair.other.cell.text) for pair in shown] == [("2.00e-03", "5.00e-03")]


@pytest.mark.parametrize(
    ("equation", "kept", "nearer"),
    [(0.9, 1.0, "gates kept"), (1.0, 1.2, "equation"), (0.9, 1.2, "equation"), (1.0, 1.005, "same")],
)
def test_a_published_ratio_is_compared_with_both_whatever_the_fit(tmp_path, equation, kept, nearer):
    """The published ratio of D = 1 is 1.000."""
    store, runs = Store(tmp_path), FIFTEEN.runs["1"]
    for seed in runs.seeds:
        soft = 1e-6 * (seed + 1)  # fits of other seeds are other, and the ratio is not
        phase = samples.grown([0.0], soft, equation * soft, "nmse")
        samples.put(store, runs, seed, {"grown": phase | {"gates_kept": {"nmse": kept * soft}}})
    reader = Reader(store)
    (way,) = two_ways(reader, compare_all(reader, [FIFTEEN]))
    assert way.item.name == "datafifteenbody.1.truncated"
    assert way.published == pytest.approx(1.0, rel=1e-3)
    assert (way.equation.low, way.equation.value, way.equation.high) == pytest.approx((equation,) * 3)
    assert way.kept.value == pytest.approx(kept)
    assert way.nearer == nearer
    assert f"In {int(nearer != 'same')} of 1 rows the two ways differ" in evidence([way])
