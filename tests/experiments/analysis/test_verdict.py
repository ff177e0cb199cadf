"""Verdicts on published values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from experiments.analysis.collect import Problem, Reader
from experiments.analysis.compare import compare_all, words
from experiments.analysis.formats import parse_format
from experiments.analysis.reduce import Cell
from experiments.analysis.verdict import Verdict, by_chance, enough, interval, judge
from experiments.store.records import Store
from experiments.tables import MACROS, macro
from experiments.tables.one_d import BASELINE
from experiments.tables.transfer import EIGHT

PM = r"<mean:.2f>\,$\pm$\,<sd:.2f>"


def ours(numbers: Sequence[float], problems: tuple[Problem, ...] = ()) -> Cell:
    found = {"x": np.array([numbers], dtype=float)} if len(numbers) else {}
    return Cell({}, "", len(numbers), len(numbers), found, tuple(map(str, range(len(numbers)))), problems)


def verdict(numbers: Sequence[float], source: str, value: dict[str, Any], seeds: int = 10, **rest: Any) -> Verdict:
    return judge(ours(numbers), (parse_format(source), value), "x", seeds, **rest)


NORMAL = tuple(np.random.default_rng(0).normal(6.0, 1.0, size=50))


def test_a_value_inside_is_reproduced_and_a_far_one_differs() -> None:
    inside = verdict(NORMAL, "<mean:.2f>", {"mean": 6.1})
    assert inside.word == "reproduced"
    (part,) = inside.parts
    # the mean of ten of these has a standard error of a third
    assert part.low == pytest.approx(np.mean(NORMAL) - 1.96 * np.std(NORMAL) / np.sqrt(10), abs=0.06)
    assert part.high == pytest.approx(np.mean(NORMAL) + 1.96 * np.std(NORMAL) / np.sqrt(10), abs=0.06)
    assert verdict(NORMAL, "<mean:.2f>", {"mean": 7.5}).word == "differs"


def test_the_interval_is_for_the_published_number_of_seeds() -> None:
    narrow, wide = (interval("mean", np.array(NORMAL), seeds) for seeds in (50, 10))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    assert (wide[1] - wide[0]) / (narrow[1] - narrow[0]) == pytest.approx(np.sqrt(5), rel=0.08)


def test_every_number_of_a_cell_must_fit() -> None:
    assert verdict(NORMAL, PM, {"mean": 6.0, "sd": 1.0}).word == "reproduced"
    found = verdict(NORMAL, PM, {"mean": 6.0, "sd": 5.0})
    assert found.word == "differs"
    assert [(part.name, part.inside) for part in found.parts] == [("mean", True), ("sd", False)]


def test_a_printed_number_stands_for_all_that_round_to_it() -> None:
    assert verdict([7.9995] * 10, PM, {"mean": 8.0, "sd": 0.0}).word == "reproduced"
    assert verdict([7.99] * 10, PM, {"mean": 8.0, "sd": 0.0}).word == "differs"


def test_rates_and_counts() -> None:
    rate = r"<rate:.0f>\%"
    assert verdict([1.0] * 10, rate, {"rate": 100.0}).word == "reproduced"
    assert verdict([1.0] * 10, rate, {"rate": 90.0}).word == "differs"
    assert verdict([1.0] * 9 + [0.0], rate, {"rate": 100.0}).word == "reproduced"
    assert verdict([0.0, 1.0] * 5, rate, {"rate": 100.0}).word == "differs"
    counts = "<yes:d>/<partial:d>/<no:d>"
    assert verdict([2, 2, 2, 2, 2, 1, 1, 1, 1, 0], counts, {"yes": 5, "partial": 5, "no": 0}).word == "reproduced"
    assert verdict([2] * 10, counts, {"yes": 9, "partial": 1, "no": 0}).word == "differs"


@pytest.mark.parametrize(
    ("outcomes", "published", "word"),
    [
        ([2] * 10, 2, "reproduced"),
        ([2] * 10, 1, "differs"),
        ([2] * 9 + [1], 2, "reproduced"),  # a third of the draws has only yes
        ([2] * 5 + [0] * 5, 2, "differs"),
        ([2] * 5 + [0] * 5, 1, "reproduced"),
    ],
)
def test_outcomes(outcomes: list[int], published: int, word: str) -> None:
    assert verdict(outcomes, "<aggregate:word>", {"aggregate": published}).word == word


def test_lists_are_compared_gate_by_gate() -> None:
    two = Cell({}, "", 10, 10, {"x": np.array([[1.0] * 10, [2.0] * 10])}, ("r",) * 10, ())
    form = parse_format("<median:.2f*, >")
    assert judge(two, (form, {"median": [1.0, 2.0]}), "x", 10).word == "reproduced"
    found = judge(two, (form, {"median": [1.0, 3.0]}), "x", 10)
    assert [(part.name, part.inside) for part in found.parts] == [("median[0]", True), ("median[1]", False)]
    assert judge(two, (form, {"median": [1.0]}), "x", 10).word == "differs", "another number of gates"


def test_the_words_for_what_is_not_tested() -> None:
    value = {"mean": 6.0}
    assert verdict([], "<mean:.2f>", value).word == "not run"
    assert verdict(NORMAL[:4], "<mean:.2f>", value).word == "too few seeds"
    assert verdict(NORMAL[:10], "<value:.2f>", {"value": 6.0}, seeds=1).word == "single run"
    assert verdict(NORMAL, "<mean:.2f>", value, calibrated=True).word == "calibrated"
    assert verdict([], "<mean:.2f>", value, calibrated=True).word == "not run"
    assert judge(ours(NORMAL), None, "x", 10).word == "not published"


def test_untested_cells_still_have_their_interval() -> None:
    found = verdict(NORMAL, "<mean:.2f>", {"mean": 60.0}, calibrated=True)
    assert found.inside is False
    assert not found.tested
    assert verdict(NORMAL, "<value:.2f>", {"value": 6.0}, seeds=1).inside is True
    assert verdict(NORMAL[:1], "<value:.2f>", {"value": 6.0}, seeds=1).parts == ()


@pytest.mark.parametrize(
    ("count", "published", "is_enough"),
    [(4, 10, False), (5, 10, True), (24, 50, False), (25, 50, True), (4, 4, False), (5, 11, False), (6, 11, True)],
)
def test_at_least_five_seeds_and_half_the_published(count: int, published: int, is_enough: bool) -> None:
    assert enough(count, published) is is_enough


def test_a_diverged_seed_counts_against_the_method() -> None:
    fault = (Problem("diverged", "r", "diverged"),)
    value = (parse_format("<mean:.2f>"), {"mean": 6.0})
    assert judge(ours(NORMAL), value, "x", 10).word == "reproduced"
    assert judge(ours(NORMAL, fault), value, "x", 10).word == "differs"
    assert judge(ours([], fault * 10), value, "x", 10).word == "differs"
    assert judge(ours([], fault), value, "x", 10).word == "too few seeds"


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=20),
    st.sampled_from(["mean", "median", "sd"]),
    st.integers(5, 20),
)
def test_intervals_are_ordered_repeatable_and_within_reach(numbers: list[float], name: str, seeds: int) -> None:
    low, high = interval(name, np.array(numbers), seeds)
    assert (low, high) == interval(name, np.array(numbers), seeds)
    slack = 1e-6 * (1 + max(map(abs, numbers)))
    least, most = (0, np.ptp(numbers)) if name == "sd" else (min(numbers), max(numbers))
    assert least - slack <= low <= high <= most + slack


def test_the_share_that_fails_by_chance_is_as_computed() -> None:
    draw = np.random.default_rng(1)
    found = [
        verdict(draw.normal(size=10), "<mean:.9f>", {"mean": float(draw.normal(size=10).mean())}) for _ in range(300)
    ]
    chance = by_chance(found)
    assert chance.cells == chance.numbers == 300
    assert chance.expected == pytest.approx(15)
    assert chance.expected_with_our_sampling == pytest.approx(300 * 0.166, rel=0.01)
    # small samples have too small a spread, so a little more than the normal theory says
    assert 40 <= chance.numbers_differ <= 85
    known = [
        verdict(draw.normal(size=1000), "<mean:.9f>", {"mean": float(draw.normal(size=10).mean())}) for _ in range(200)
    ]
    assert by_chance(known).expected_with_our_sampling == pytest.approx(200 * 0.05, rel=0.1)
    assert 2 <= by_chance(known).numbers_differ <= 22


def test_comparison_of_all_cells(tmp_path: Path) -> None:
    from experiments.analysis import published

    store = Store(tmp_path)
    for seed in range(10):
        samples.put(store, BASELINE, seed, {"grown": samples.grown([6.0 + seed % 2], 1e-5, 1e-5)})
    row = EIGHT.row("cifar10-conv")
    shorter = row.runs.with_overrides(row.stand_ins[0].overrides)
    for seed in range(3):
        samples.put(store, shorter, seed, {"grown": samples.grown([7.0], 70.0, 70.0, "accuracy")})
    items = compare_all(Reader(store), published.load(), MACROS)
    by_name = {item.name: item for item in items if not item.stand_in}
    assert len(by_name) == 519
    assert by_name["datafourbody.baseline.t"].verdict.word == "calibrated"
    assert by_name["stdT.number.value"].verdict.word == "single run"
    assert by_name["decayablationbody.standard.t"].verdict.word == "single run"
    assert by_name["datasevenbody.ngn.t"].verdict.word == "too few seeds"
    assert by_name["dataeightbody.cifar10-conv.t"].verdict.word == "not run"
    assert sum(words(items).values()) == 519
    stand_ins = [item for item in items if item.stand_in]
    assert {item.stand_in for item in stand_ins} == {"3 epochs"}
    assert [item.cell.n for item in stand_ins if item.column.key == "t"] == [3, 3]
    only = compare_all(Reader(store), published.load(), MACROS, task="cora")
    assert {item.row.key for item in only} == {"cora-gcn"}


def test_only_tables_that_settings_were_chosen_by_are_calibrated() -> None:
    assert [table.name for table in MACROS if table.calibrated] == ["datafourbody", "datafourfullbody"]
    assert macro("datafourbody").rows[0].seeds == 10
