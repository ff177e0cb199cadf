"""Reductions beyond the tables, on made-up records with known results; and which runs keep their curve file."""

from contextlib import suppress

import numpy as np
import pytest
import record_samples as samples

from experiments.analysis.build import reduce_all
from experiments.analysis.claims import judge_claim
from experiments.analysis.collect import Reader
from experiments.analysis.selection import fixed_of_learned_count
from experiments.config.identity import run_id
from experiments.core.paths import RESULTS
from experiments.report import content
from experiments.store.records import CURVES, Store
from experiments.studies import CLAIMS, FIGURES, OWN, STUDIES
from experiments.studies.depth import DEPTH
from experiments.studies.learners import DECAY
from experiments.studies.model import Study
from experiments.studies.one_d import BASELINE, SENSITIVITY
from experiments.studies.orders import ORDERED
from experiments.studies.prices import PRICES, SWEEP, Price, plateaus, staircase, width
from experiments.studies.schedules import FOUR


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def steps(*counts):
    """Make prices 1, 2, 4, ... with these counts."""
    return [Price(n, 2.0**n, count, f"run{n}") for n, count in enumerate(counts)]


def test_plateaus_are_stretches_of_one_count():
    found = plateaus(steps(9, 7, 7, 7, 6, 7, 7, 2, 2, 2, 2), least=3)
    assert [(p[0].count, p[0].price, width(p), len(p)) for p in found] == [(7, 2, 4, 3), (2, 128, 8, 4)]
    assert [len(p) for p in plateaus(steps(9, 7, 7), least=1)] == [1, 2]
    assert plateaus([]) == []
    gap = steps(3, 3, 3, 3, 3, 3, 3)
    assert [(p[0].price, p[-1].price) for p in plateaus([*gap[:3], *gap[4:]], least=3)] == [(1, 4), (16, 64)]


def test_the_staircase_has_the_prices_that_have_a_record(store):
    for n, t in ((3, 6.0), (1, 7.0), (40, 0.0)):
        samples.put(store, SWEEP[n], 0, {"grown": samples.grown([t], 1e-5, 1e-5 * 2.0**-n)})
    samples.put(store, SWEEP[5], 0, {"grown": samples.diverged()})
    samples.put(store, SWEEP[6], 0, {"grown": samples.grown([3.0], 1e-5, 1e-5)}, clean=False)
    found = [*staircase(Reader(store))]
    assert [(p.place, p.price, p.count) for p in found] == [(1, PRICES[1], 8), (3, PRICES[3], 7), (40, PRICES[40], 1)]
    assert found[0].run == run_id(SWEEP[1].config(0))


def test_our_own_tables_hold_what_seeds_there_are(store):
    even, depth = SENSITIVITY.row("even"), DEPTH.row("const-inc")
    for seed, (t, soft) in enumerate(((4.0, 1e-5), (5.5, 4e-5), (7.0, 3e-5))):
        samples.put(store, even.runs, seed, {"grown": samples.grown([t], soft, 2 * soft)})
        samples.put(store, depth.runs, seed, {"grown": samples.grown([t, t], soft, soft) | {"depth": 8 + seed % 2}})
    cells = reduce_all(Reader(store), OWN.values())
    cell = cells["sensitivity.even.t"]
    assert (cell.n, cell.wanted, len(cell.run_ids)) == (3, 10, 3)
    assert cell.value == pytest.approx({"mean": 5.5, "sd": np.sqrt(1.5)})
    assert cells["sensitivity.even.integer"].value == pytest.approx({"rate": 200 / 3})
    assert cells["sensitivity.even.truncated"].value == pytest.approx({"median": 6e-5})
    assert (cells["sensitivity.baseline.t"].n, cells["sensitivity.baseline.t"].run_ids) == (0, ())
    spread = {"mean": 25 / 3, "sd": np.sqrt(2) / 3, "min": 8.0, "max": 9.0}
    assert cells["depth.const-inc.depth"].value == pytest.approx(spread)


def test_the_first_half_is_a_prefix_that_the_record_holds(store):
    for seed, (t, scores) in enumerate(((4.0, [0.4, 0.3, 0.2, 0.1]), (0.0, []), (1.0, [0.5]))):
        samples.put(
            store, ORDERED.runs["one_d_8_half"], seed, {"grown": samples.grown([t], 0.05, 0.06) | {"prefixes": scores}}
        )
    samples.put(store, ORDERED.runs["one_d_8_half"], 3, {"grown": samples.grown([4.0], 0.05, 0.06)})
    cells = reduce_all(Reader(store), [ORDERED])
    assert cells["orders.one_d_8_half.half"].value == pytest.approx({"median": 0.3}), "of 0.3, 0.06 and 0.5"
    assert cells["orders.one_d_8_half.half"].n == 3, "a record without prefixes does not count"
    assert cells["orders.one_d_4_half.half"].text == "--"


def test_what_was_spent(store):
    """Records count once, by hardware, companions included; untrained phases do not count."""
    phases = {"grown": {**samples.grown([4.0], 1e-5, 1e-5), "steps": 100}}
    hardware = {"cpu": "Some CPU", "cores": 2}
    spent = {"hardware": hardware, "time": {"started": "2026-01-01T00:00:00+00:00", "seconds": 1800.0}}
    samples.put(store, BASELINE, 0, phases, **spent)
    diverged = {**samples.diverged(), "steps": 100}
    samples.put(store, BASELINE, 1, {"grown": diverged, "fixed": diverged}, **spent)
    gpu = {"device": "Some GPU", "engine": "torch", "replicas": 1, "threads": 1}
    samples.put(store, BASELINE, 2, phases, **spent, execution=gpu)
    runs = DECAY.row("learn_r_and_t").runs
    samples.put(store, runs, 0, phases, **spent)
    alone = fixed_of_learned_count(runs, 0, store.get(run_id(runs.config(0))))
    samples.put(store, alone, 0, {"fixed": {**samples.fixed(5, 1e-5), "steps": 50}}, **spent)
    cpu = "Some CPU, 2 cores"
    reader = Reader(store)
    studies = {name: STUDIES[name].make() for name in ("baseline", "decay", "vision")}
    assert content.costs(reader, studies) == [
        ("baseline", cpu, 2, 200, 1.0),
        ("baseline", "Some GPU", 1, 100, 0.5),
        ("decay", cpu, 3, 250, 1.5),
        ("", cpu, 4, 350, 2.0),
        ("", "Some GPU", 1, 100, 0.5),
    ]


def test_a_row_names_kernels_that_are_gone_and_several_processors(store):
    by = {"device": "cpu", "engine": "fused-step", "replicas": 1, "threads": 1}
    for seed, cpu in enumerate(("A", "B", "A")):
        samples.put_grown(store, BASELINE, seed, 6.0, 1e-5, hardware={"cpu": cpu}, execution=by)
    assert Reader(store).origin_note(BASELINE) == "kernel that is gone (fused-step), seeds by processor: 2 A, 1 B"


def _with_curves(store):
    return sorted(path.name.removesuffix(CURVES) for path in store.root.glob(f"*/*{CURVES}"))


class Noting(Store):
    """A store that notes whose curves were asked for."""

    def __init__(self, root):
        super().__init__(root)
        self.asked = set()

    def curves(self, run_id):
        self.asked.add(run_id)
        return super().curves(run_id)


def test_every_curve_file_among_the_records_is_kept_by_a_study():
    store = Store(RESULTS)
    stored = _with_curves(store)
    assert stored
    kept = set().union(*(each.with_curves(store) for each in STUDIES.values()))
    dropped = [str(store.curves_path(name).relative_to(RESULTS)) for name in stored if name not in kept]
    assert not dropped, "a study keeps the curves of its first seeds alone (curves=N): remove the others from results/"


def test_figures_and_claims_find_the_curves_that_they_read():
    store = Noting(RESULTS)
    reader = Reader(store)
    for spec in FIGURES.values():
        assert not spec.data(reader).without_curves, spec.name
    for claim in CLAIMS.values():
        with suppress(KeyError):  # there are no cells, so claims on runs alone are judged
            judge_claim(claim, reader, [])
    assert len(store.asked) >= 120
    assert sorted(store.asked - set(_with_curves(store))) == []


def test_a_study_keeps_the_first_seeds_of_each_selection_and_what_follows_from_them(tmp_path):
    store = Store(tmp_path)
    assert Study("none", "", lambda: [FOUR.runs["beta4"]]).with_curves(store) == set()
    two = Study("two", "", lambda: [FOUR.runs["beta4"], DECAY.runs["learn_r"]], curves=2)
    assert sorted(name.split("-")[3] for name in two.with_curves(store)) == ["s0", "s0", "s1", "s1"]
    samples.put(store, DECAY.runs["learn_r"], 1, {"grown": samples.grown([4.0], 1e-5, 1e-5)})
    (fixed,) = two.with_curves(store) - Study("two", "", two.make, curves=2).with_curves(Store(tmp_path / "none"))
    assert "-fixed5-s1-" in fixed
