"""Verdicts on published values."""

from collections import Counter

import numpy as np
import pytest
import record_samples as samples
from scipy import stats

from experiments.analysis import statistics
from experiments.analysis.collect import Problem, Reader, RecordedRun
from experiments.analysis.compare import compare_all, totals, verdict_counts
from experiments.analysis.reduce import Cell
from experiments.analysis.statistics import NO, PARTIAL, YES
from experiments.analysis.tables import parse_format
from experiments.analysis.verdict import FACTOR, LIMITS, SHARE, judge_cell, seeds_that_tell, shares_are_near
from experiments.store.records import Store
from experiments.studies import macros
from experiments.studies.one_d import BASELINE
from experiments.studies.vision import EIGHT

PM = r"<mean:.2f>\,$\pm$\,<sd:.2f>"
COUNTS = "<yes:d>/<partial:d>/<no:d>"


def ours(numbers, problems=()):
    return of_quantity("t", np.array([numbers], dtype=float), problems)


def of_quantity(quantity, gates, problems=()):
    n = gates.shape[1]
    runs = tuple(RecordedRun(seed, str(seed), {}) for seed in range(n))
    return Cell(runs, {quantity: gates} if n else {}, problems, {}, "", n)


def verdict(numbers, source, value, seeds=10, **rest):
    return judge_cell(ours(numbers), (parse_format(source), value), "t", seeds, **rest)


TEN = tuple(np.random.default_rng(0).normal(6.0, 0.5, size=10))


def test_exact_tests_are_scipys():
    for a, b in ((10, 9), (6, 10), (5, 10), (0, 4)):
        table = [[a, 10 - a], [b, 10 - b]]
        assert statistics.exact_test(*table) == pytest.approx(stats.fisher_exact(table).pvalue)
    assert statistics.exact_test((0, 0, 10), (5, 4, 1)) == pytest.approx(1.3e-4, rel=0.1)
    assert statistics.exact_test((10, 0, 0), (10, 0, 0)) == 1
    assert statistics.count_interval(10, 10, 10, 0.05) == (6, 10)
    assert statistics.count_interval(10, 10, 10, 0.01) == (4, 10)


def test_ranks():
    assert statistics.rank_interval(np.arange(10.0), 0.05) == (0, 9, False)
    assert statistics.rank_interval(np.arange(39.0), 0.05) == (0, 38, True)
    assert statistics.rank_interval(np.arange(99.0), 0.05) == (1, 97, True)
    assert statistics.median_interval(np.arange(10.0), 10, 0.05) == (0, 9)
    assert statistics.median_interval(np.arange(50.0), 50, 0.05) == (14, 35)
    assert statistics.median_interval(np.arange(3.0), 10, 0.05) is None


def test_the_interval_of_a_mean_is_welchs_with_a_pooled_variance():
    draw = np.random.default_rng(1)
    for n in (30, 10):
        mine, theirs = draw.normal(6, 1, n), draw.normal(6, 1, 10)
        low, high = statistics.mean_interval(mine, float(theirs.std()), 10, 0.05)
        pooled = np.sqrt((((n - 1) * mine.var(ddof=1) + 9 * theirs.var(ddof=1)) / (n + 8)) * (1 / n + 1 / 10))
        welch = stats.ttest_ind(mine, theirs, equal_var=False)
        assert (low + high) / 2 == pytest.approx(mine.mean())
        assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, welch.df) * pooled)
    assert (welch.pvalue > 0.05) == (low <= theirs.mean() <= high), "equal sizes: the test itself"
    assert statistics.mean_interval(np.ones(30), 0.0, 10, 0.05) == (1, 1)


TRIALS = 400
NOISE = 0.033
"""Three standard deviations of a share of 5 % among 400."""


def _mixed(share, low, high, sigma):
    return lambda draw, shape: np.where(draw.random(shape) < share, low, high) * draw.lognormal(0, sigma, shape)


SHAPES = {
    "normal": ("t", lambda draw, shape: draw.normal(6, 0.5, shape)),
    "wide": ("t", lambda draw, shape: draw.normal(6, 1, shape)),
    "log-normal": ("mse", lambda draw, shape: draw.lognormal(0, 1, shape)),
    "two modes": ("mse", _mixed(0.5, 1.0, 10.0, 0.1)),
    "one bad in ten": ("mse", _mixed(0.1, 99.0, 1.0, 0.3)),
}
"""Distributions of a number over seeds, as sizes and errors have them."""
PAIRS = ((10, 10), (20, 10), (50, 10), (10, 50), (50, 50), (39, 3))
SIZES = {"mean": PAIRS, "median": PAIRS, "value": ((10, 1), (39, 1), (50, 1))}
"""What the paper prints → (our seeds, published seeds)."""
PRINTED = {
    "mean": lambda runs: {"mean": float(runs.mean()), "sd": float(runs.std())},
    "median": lambda runs: {"median": float(np.median(runs))},
    "value": lambda runs: {"value": float(runs[0])},
}
FORMS = {"mean": "<mean:.9e> <sd:.9e>", "median": "<median:.9e>", "value": "<value:.9e>"}


def said(statistic, sizes, shape, trials, apart=0.0):
    """Word → share of pairs of samples, the published ones ``apart`` times the limit from ours, up and down in turn."""
    mine, theirs = sizes
    quantity, drawn = SHAPES[shape]
    draw = np.random.default_rng([mine, theirs])
    first, second = drawn(draw, (trials, mine)), drawn(draw, (trials, theirs))
    turns = apart * np.where(np.arange(trials) % 2, 1.0, -1.0)[:, None]
    second = second + LIMITS["t"] * turns if quantity == "t" else second * FACTOR**turns
    form, printed = parse_format(FORMS[statistic]), PRINTED[statistic]
    pairs = ((of_quantity(quantity, x[None]), (form, printed(y))) for x, y in zip(first, second, strict=True))
    words = Counter(judge_cell(cell, published, quantity, theirs).word for cell, published in pairs)
    return {word: words[word] / trials for word in ("agrees", "disagrees")}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("statistic", "sizes"), [(name, sizes) for name, each in SIZES.items() for sizes in each])
def test_false_rates_of_means_medians_and_single_runs(statistic, sizes, shape):
    """The table of docs/verdicts.md, with fewer trials: no difference, and one as large as the limit."""
    assert said(statistic, sizes, shape, TRIALS)["disagrees"] <= 0.05 + NOISE
    assert said(statistic, sizes, shape, TRIALS, 1.0)["agrees"] <= 0.05 + NOISE


def test_so_many_seeds_would_tell():
    enough = int(seeds_that_tell(1.0, 0.0, LIMITS["t"], 50))
    assert enough == 11
    assert 0.7 < said("mean", (enough, 50), "wide", TRIALS)["agrees"] < 0.9
    assert seeds_that_tell(1.0, 0.0, LIMITS["t"], 9) == np.inf, "the published seeds alone leave too much open"
    unsure = verdict(np.resize((4.0, 8.0), 10), PM, {"mean": 6.3, "sd": 1.0}, 50)
    assert (unsure.word, unsure.advice) == ("cannot tell", "about 63 of our seeds would tell")
    assert "no number of our seeds" in verdict([0.0, 1.0] * 5, r"<rate:.0f>\%", {"rate": 50.0}).advice


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
@pytest.mark.parametrize(("mine", "theirs"), [(10, 10), (50, 50), (10, 50)])
def test_false_rates_of_rates(rate, mine, theirs):
    """Exact over all samples, not simulated."""
    of_mine, of_theirs = (stats.binom.pmf(np.arange(n + 1), n, rate) for n in (mine, theirs))
    rejected = 0.0
    for count, weight in enumerate(of_mine):
        low, high = statistics.count_interval(count, mine, theirs, 0.05)
        rejected += weight * (of_theirs[:low].sum() + of_theirs[high + 1 :].sum())
    assert rejected <= 0.05
    near = [[shares_are_near(a, mine, b, theirs) for b in range(theirs + 1)] for a in range(mine + 1)]
    for apart in (SHARE, -SHARE):
        if 0 <= rate + apart <= 1:
            assert of_mine @ near @ stats.binom.pmf(np.arange(theirs + 1), theirs, rate + apart) <= 0.05


def test_three_words():
    assert verdict(TEN, PM, {"mean": 6.1, "sd": 0.5}).word == "agrees"
    assert verdict(TEN, PM, {"mean": 7.5, "sd": 0.5}).word == "disagrees"
    wide = verdict(TEN, PM, {"mean": 7.5, "sd": 5.0})
    assert wide.word == "cannot tell"
    (part,) = wide.parts  # the deviation is not judged
    assert (part.name, part.inside, part.near) == ("mean", True, False)


def test_a_mean_takes_its_deviation_from_the_table_that_prints_it():
    assert verdict(TEN, "<mean:.2f>", {"mean": 6.0}).word == "cannot tell"
    assert verdict(TEN, "<mean:.2f>", {"mean": 6.0}, others={"mean": 6.0, "sd": 0.5}).word == "agrees"
    assert verdict([YES] * 10, "<aggregate:word>", {"aggregate": 1}).word == "cannot tell"
    counts = {"yes": 5, "partial": 5, "no": 0}
    assert verdict([YES] * 10, "<aggregate:word>", {"aggregate": 1}, others=counts).word == "disagrees"


def test_a_printed_number_stands_for_all_that_round_to_it():
    assert verdict([7.9951] * 10, PM, {"mean": 8.0, "sd": 0.0}).word == "agrees"
    assert verdict([7.98] * 10, PM, {"mean": 8.0, "sd": 0.0}).word == "disagrees"


def test_rates_and_outcomes():
    rate = r"<rate:.0f>\%"
    assert verdict([1.0] * 10, rate, {"rate": 100.0}).word == "agrees"
    assert verdict([1.0] * 10, rate, {"rate": 80.0}).word == "cannot tell"
    assert verdict([1.0] * 10, rate, {"rate": 50.0}).word == "disagrees"
    assert verdict([0.0, 1.0] * 5, rate, {"rate": 50.0}).word == "cannot tell", "five of ten say nothing"
    some = [YES] * 5 + [PARTIAL] * 4 + [NO]
    assert verdict([NO] * 10, COUNTS, {"yes": 5, "partial": 4, "no": 1}).word == "disagrees"
    assert verdict([NO] * 10, COUNTS, {"yes": 0, "partial": 0, "no": 10}).word == "agrees"
    assert verdict(some, COUNTS, {"yes": 5, "partial": 5, "no": 0}).word == "cannot tell"


def test_two_numbers_of_a_cell_share_the_level():
    both = rf"<aggregate:word> (<mean:.2f> <sd:.2f>; {COUNTS})"
    value = {"aggregate": 0, "mean": 0.0, "sd": 0.0, "yes": 0, "partial": 5, "no": 5}
    found = verdict([0.0] * 10, both, value)
    # 10/0 against 5/5 has p = 3.3 %, which alone would reject
    assert {part.name: part.inside for part in found.parts} == {"mean": True, "yes": True, "partial": True, "no": True}


def test_a_single_published_run_is_placed_among_our_seeds():
    many = ours(np.arange(50.0))
    form = parse_format("<value:.2f>")
    inside = judge_cell(many, (form, {"value": 20.0}), "t", 1)
    assert (inside.word, inside.decisive, inside.seeds) == ("cannot tell", True, 50)
    assert judge_cell(many, (form, {"value": 70.0}), "t", 1).word == "disagrees"
    few = judge_cell(ours(np.arange(10.0)), (form, {"value": 70.0}), "t", 1)
    assert (few.word, few.decisive, few.parts[0].inside) == ("cannot tell", False, False)
    assert judge_cell(ours([4.0]), (form, {"value": 70.0}), "t", 1).parts == (), "one run has no range"
    layers = judge_cell(many, (parse_format("<value:.0f*,>"), {"value": [1, 2]}), "t", 1)
    assert (layers.word, layers.parts) == ("cannot tell", ())


def test_what_is_not_judged():
    value = {"mean": 6.0, "sd": 1.0}
    assert verdict([], PM, value).word == "not run"
    assert verdict(TEN[:2], PM, value).parts == (), "two runs are too few for a mean"
    assert judge_cell(ours(TEN), None, "t", 10).word == "not published"
    setting = of_quantity("config.gate.r", np.full((1, 10), 0.5))
    assert judge_cell(setting, (parse_format("<value:.2f>"), {"value": 0.5}), "config.gate.r", 10).word == "setting"
    two = of_quantity("t", np.ones((2, 10)))
    assert judge_cell(two, (parse_format("<median:.2f*, >"), {"median": [1.0]}), "t", 10).word == "cannot tell"


def test_diverged_seeds_are_compared_with_none():
    fault = (Problem("diverged", "r", "diverged"),)
    value = (parse_format(PM), {"mean": 6.0, "sd": 0.5})
    assert judge_cell(ours(TEN, fault), value, "t", 10).word == "cannot tell"
    assert judge_cell(ours([], fault * 10), value, "t", 10).word == "disagrees"


def test_comparison_of_all_cells(tmp_path):
    store = Store(tmp_path)
    for seed in range(10):
        samples.put(store, BASELINE, seed, {"grown": samples.grown([6.0 + seed % 2], 1e-5, 1e-5)})
    row = EIGHT.row("cifar10-conv")
    shorter = row.runs.with_overrides(row.stand_ins[0].overrides)
    for seed in range(3):
        samples.put(store, shorter, seed, {"grown": samples.grown([7.0], 70.0, 70.0, "accuracy")})
    items = compare_all(Reader(store), macros())
    by_name = {item.name: item for item in items if not item.stand_in}
    assert len(by_name) == 519
    assert by_name["datafourbody.baseline.integer"].verdict.text == "agrees (calibrated)"
    assert by_name["stdT.number.value"].verdict.text == "cannot tell (calibrated)"
    assert by_name["stdT.number.value"].verdict.seeds == 10
    assert by_name["decayablationbody.standard.r"].verdict.word == "setting"
    # ten of ours beside fifty published ones
    assert [part.name for part in by_name["datasevenfullbody.ngn.t"].verdict.parts] == ["mean"]
    assert by_name["dataeightbody.cifar10-conv.t"].verdict.word == "not run"
    assert sum(verdict_counts(items).values()) == 519
    stand_ins = [item for item in items if item.stand_in]
    assert {item.stand_in for item in stand_ins} == {"3 epochs"}
    assert [item.cell.n for item in stand_ins if item.column.key == "t"] == [3, 3]
    only = compare_all(Reader(store), macros(), task="cora")
    assert {item.row.key for item in only} == {"cora-gcn"}
    found = totals(items)
    # t, integer, soft and truncated error of table 4's baseline, of table 7's, and of the standard run, each once
    assert (found.facts.total(), found.calibrated.total()) == (0, 4 + 3 + 3)
    assert found.said.startswith("Of 0 facts, each counted once, 0 agree, 0 disagree, 0 cannot be told. 10 more chose")
    assert found.tests == 4 + 3 + 3, "medians and means can reject; a rank among ten cannot"
    assert "facts" in str(found)


def test_all_our_seeds_judge_and_the_rows_own_are_printed(tmp_path):
    store = Store(tmp_path)
    for seed in range(39):
        t = 6.0 if seed < 10 else 9.0
        samples.put(store, BASELINE, seed, {"grown": samples.grown([t], 1e-5, 1e-5)})
    items = compare_all(Reader(store), macros(), task="regression1d")
    by_name = {item.name: item for item in items}
    row = by_name["datafourfullbody.baseline.t"]
    assert (row.cell.n, row.cell.value["mean"], row.verdict.seeds) == (10, 6.0, 39)
    assert row.verdict.word == "disagrees"
    (part,) = row.verdict.parts
    assert (part.low + part.high) / 2 == pytest.approx((10 * 6 + 29 * 9) / 39)
    single = by_name["stdT.number.value"]
    assert (single.cell.n, single.verdict.seeds, single.verdict.decisive) == (1, 39, True)


def test_rows_of_one_configuration_are_calibrated_alike():
    marks = {}
    for row in (row for table in macros() for row in table.rows):
        marks.setdefault((row.runs.choices, row.runs.overrides, row.runs.about), set()).add(bool(row.calibrated))
    assert all(len(mark) == 1 for mark in marks.values())
    assert sum(mark == {True} for mark in marks.values()) == 6 + 1, "table 4 and MNIST"
    assert EIGHT.row("mnist-mlp").calibrated == {"t"}
