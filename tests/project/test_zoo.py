"""A sample of ``bench_zoo.py``: models of transformers, and of torchvision and timm where they are installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from zoo import checks, table
from zoo.models import COLLECTIONS

SAMPLE = {
    "transformers": (("qwen3", 4), ("qwen3_moe", 4), ("gpt2", 4), ("t5", 7)),
    "torchvision": (("resnet18", 12), ("shufflenet_v2_x0_5", 20)),
    "timm": (("resnext26ts", 15),),
}


@pytest.mark.parametrize(
    ("collection", "name", "sizes"), [(kind, *each) for kind, those in SAMPLE.items() for each in those]
)
def test_all_checks_hold(collection, name, sizes, tmp_path):
    pytest.importorskip(collection)
    model, row = COLLECTIONS[collection]()[name](), {}
    checks.check(model, row, tmp_path)
    checks.check_loaded(model, row, tmp_path)
    assert table.failing(row) == []
    assert (row["groups"], row["kept"], row["failed_trial"]) == (sizes, sizes, [])


def test_a_wrong_cut_is_noticed(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(checks, "zeroed", lambda whole, learner: whole)
    row = {}
    checks.check(COLLECTIONS["transformers"]()["gpt2"](), row, tmp_path)
    assert table.failing(row) == ["comparing"]
    assert row["difference"] > checks.EQUAL
