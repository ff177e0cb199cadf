"""Reductions beyond the tables, on made-up records with known results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import record_samples as samples

from experiments.analysis.build import reduce_all
from experiments.analysis.collect import Reader
from experiments.analysis.reductions import compute, cost, init_sweep, plateaus
from experiments.analysis.reductions.plateaus import PRICES, SWEEP, Price
from experiments.analysis.selection import fixed_of_learned_count
from experiments.config.identity import run_id
from experiments.paths import ROOT
from experiments.store.records import RecordError, Store
from experiments.tables import OWN
from experiments.tables.depth import DEPTH
from experiments.tables.one_d import BASELINE, DECAY
from experiments.tables.orders import ORDERED
from experiments.tables.sensitivity import SENSITIVITY
from experiments.tables.transfer import EIGHT


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def steps(*counts: int) -> list[Price]:
    """Make prices 1, 2, 4, ... with these counts."""
    return [Price(n, 2.0**n, count, f"run{n}") for n, count in enumerate(counts)]


def test_plateaus_are_stretches_of_one_count() -> None:
    found = plateaus.plateaus(steps(9, 7, 7, 7, 6, 7, 7, 2, 2, 2, 2), least=3)
    assert [(p.count, p.low, p.high, p.width, p.prices) for p in found] == [(7, 2, 8, 4, 3), (2, 128, 1024, 8, 4)]
    assert found[0].runs == ("run1", "run2", "run3")
    assert [p.prices for p in plateaus.plateaus(steps(9, 7, 7), least=1)] == [1, 2]
    assert plateaus.plateaus([]) == ()
    gap = steps(3, 3, 3, 3, 3, 3, 3)
    assert [(p.low, p.high) for p in plateaus.plateaus([*gap[:3], *gap[4:]], least=3)] == [(1, 4), (16, 64)]


def test_the_staircase_has_the_prices_that_have_a_record(store: Store) -> None:
    for n, t in ((3, 6.0), (1, 7.0), (40, 0.0)):
        samples.put(store, SWEEP[n], 0, {"grown": samples.grown([t], 1e-5, 1e-5 * 2.0**-n)})
    samples.put(store, SWEEP[5], 0, {"grown": samples.diverged()})
    samples.put(store, SWEEP[6], 0, {"grown": samples.grown([3.0], 1e-5, 1e-5)}, clean=False)
    found = [*plateaus.staircase(Reader(store))]
    assert [(p.place, p.price, p.count) for p in found] == [(1, PRICES[1], 8), (3, PRICES[3], 7), (40, PRICES[40], 1)]
    assert found[0].run == run_id(SWEEP[1].config(0))


def test_the_usual_start_is_the_baseline_itself() -> None:
    standard, uniform, _ = init_sweep.PANELS
    assert standard.start(0) == BASELINE
    assert uniform.start(16).config(0).gate.t0 == 16


def test_our_own_tables_hold_what_seeds_there_are(store: Store) -> None:
    even, depth = SENSITIVITY.row("even"), DEPTH.row("const-inc")
    assert even.runs is not None
    assert depth.runs is not None
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


def test_the_first_half_is_a_prefix_that_the_record_holds(store: Store) -> None:
    for seed, (t, scores) in enumerate(((4.0, [0.4, 0.3, 0.2, 0.1]), (0.0, []), (1.0, [0.5]))):
        samples.put(
            store, ORDERED.runs["one_d_8_half"], seed, {"grown": samples.grown([t], 0.05, 0.06) | {"prefixes": scores}}
        )
    samples.put(store, ORDERED.runs["one_d_8_half"], 3, {"grown": samples.grown([4.0], 0.05, 0.06)})
    cells = reduce_all(Reader(store), [ORDERED])
    assert cells["orders.one_d_8_half.half"].value == pytest.approx({"median": 0.3}), "of 0.3, 0.06 and 0.5"
    assert cells["orders.one_d_8_half.half"].n == 3, "a record without prefixes does not count"
    assert cells["orders.one_d_4_half.half"].text == "--"


def test_what_trained_models_cost(store: Store) -> None:
    """Medians per kind of model and multiply-adds per sample; a record without them does not count."""
    runs = EIGHT.row("cora-gcn").runs
    assert runs is not None
    timed = []
    for seed, (size, time) in enumerate(((10, 3.0), (30, 1.0), (20, 2.0))):
        grown = samples.grown([2.0], 80.0 + seed, 79.0 + seed, "accuracy")
        parts = {"candidate": 100 * size, "deployed": size}
        forward = {"samples": 4, "multiply_adds": {name: 8 * n for name, n in parts.items()}}
        grown |= {"parameters": parts, "cost": {**forward, "milliseconds": dict.fromkeys(parts, 99.0)}}
        samples.put(store, runs, seed, {"grown": grown})
        model = {"run": run_id(runs.config(seed)), "phase": "grown", "count": [3], "samples": 5, "milliseconds": time}
        timed += [{**model, "part": "deployed"}, {**model, "part": "candidate", "count": [3 if seed else 4]}]
    samples.put(store, runs, 3, {"grown": samples.grown([2.0], 1.0, 1.0, "accuracy")})
    untimed = {(row.key, row.model): row for row in cost.cost_table(Reader(store))}
    assert len(untimed) == 4 * len(cost.MODELS)
    row = untimed["cora-gcn", "grown, truncated"]
    assert (row.n, row.wanted, len(row.runs)) == (3, 10, 3)
    assert (row.accuracy, row.parameters, row.multiply_adds) == (80.0, 20.0, 40.0)
    assert (row.milliseconds, row.samples, row.hardware) == (None, None, "")
    assert untimed["cora-gcn", "grown, all candidates"].multiply_adds == 4000.0
    assert untimed["cora-gcn", "fixed at that count"].n == 0

    (store.root / "latency.json").write_text(json.dumps(samples.latencies(timed)))
    rows = {(row.key, row.model): row for row in cost.cost_table(Reader(store))}
    row = rows["cora-gcn", "grown, truncated"]
    assert (row.milliseconds, row.samples, row.hardware) == (2.0, 5, "Some CPU, 2 cores, 1 thread")
    stale = rows["cora-gcn", "grown, all candidates"]
    assert (stale.n, stale.milliseconds) == (3, None), "one of three was timed with another count than its record's"


def test_a_damaged_file_of_times_is_named(store: Store) -> None:
    store.root.mkdir()
    file = store.root / "latency.json"
    for text in ("{", json.dumps({**samples.latencies([]), "rounds": 0}), json.dumps({"schema": 2})):
        file.write_text(text)
        with pytest.raises(RecordError, match=r"latency\.json"):
            cost.cost_table(Reader(store))


def test_what_was_spent(store: Store) -> None:
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
    assert compute.costs_by_study(reader, ["baseline", "decay", "vision"]) == (
        compute.StudyCost("baseline", cpu, 2, 200, 1.0),
        compute.StudyCost("baseline", "Some GPU", 1, 100, 0.5),
        compute.StudyCost("decay", cpu, 3, 250, 1.5),
    )
    assert compute.total_costs(reader, ["baseline", "decay"]) == (
        compute.StudyCost("", cpu, 4, 350, 2.0),
        compute.StudyCost("", "Some GPU", 1, 100, 0.5),
    )
    with pytest.raises(KeyError, match="Did you mean 'baseline'"):
        compute.total_costs(reader, ["basline"])


def test_reductions_need_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys; from experiments.analysis.reductions import compute, cost, init_sweep, plateaus; "
        "assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    root = ROOT
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True)
