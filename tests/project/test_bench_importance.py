"""The benchmark of orders of importance: its table, and what its committed records hold."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from experiments.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_importance
from bench_importance import LEARNED, ORDERS, WORKS, table


def test_the_table_has_means_and_the_mean_rank_of_the_cuts() -> None:
    units: list[dict[str, Any]] = [
        {"order": order, "seed": seed, "how": "cut to 50%", "loss": number + 10 * seed}
        for number, order in enumerate(ORDERS)
        for seed in (0, 1)
    ]
    units += [{"order": "none", "seed": 0, "how": "whole", "loss": 0.5}]
    units += [{"order": "none", "seed": 2, "how": "cut to 50%", "loss": 99.0}]  # a seed that is not whole
    lines = table([{"work": "mlp", "units": units}]).splitlines()
    assert "| MLP, MNIST | 2 | cut to 50% | 5.000 | 6.000 | 7.000 |" in lines[2]
    assert lines[3].startswith("| MLP, MNIST | 2 | whole | 0.500 |  |")
    assert "1.00 | 2.00 | 3.00 | 4.00 | 5.00 | 6.00 | 7.00 |" in lines[-1]


def test_the_committed_records_are_of_the_orders() -> None:
    with pytest.raises(SystemExit):
        bench_importance.main(["--few"])
    paths = [*(ROOT / "benchmarks" / "results" / "importance").glob("*.json")]
    assert {path.stem for path in paths} <= set(WORKS)
    for path in paths:
        kept = json.loads(path.read_text())
        assert kept["commit"]
        assert {unit["order"] for unit in kept["units"]} <= set(ORDERS)
        assert {unit["order"] for unit in kept["units"] if unit["how"] == "learned"} <= set(LEARNED)
