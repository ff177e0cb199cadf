"""A sample of ``bench_zoo.py``: models of transformers, and of torchvision and timm where they are installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import bench_zoo
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


def test_the_program_ends_with_a_status_that_says_whether_all_checks_hold(tmp_path, monkeypatch, capsys):
    rows = {"a": {"ngn": {"found": "yes"}}, "b": {"ngn": {"found": "yes", "equal": "another shape"}}}
    monkeypatch.setattr(bench_zoo, "missing", lambda package: False)
    monkeypatch.setattr(bench_zoo, "version", lambda package: "1")
    monkeypatch.setattr(bench_zoo, "COLLECTIONS", {"timm": lambda: rows})
    monkeypatch.setattr(
        bench_zoo, "unit", lambda kind, name, origin: {"torch_pruning": {}, "seconds": 1} | origin | rows[name]
    )
    bench_zoo.main(["--folder", str(tmp_path), "--collection", "timm", "--models", "a"])
    with pytest.raises(SystemExit) as end:
        bench_zoo.main(["--folder", str(tmp_path), "--collection", "timm"])
    assert (end.value.code, capsys.readouterr().err) == (1, "checks fail for timm-b\n")


def test_the_table_counts_what_holds_and_names_what_does_not():
    good = dict.fromkeys(table.CHECKS, "yes")
    good |= {"parameters": 10**6, "groups": 3, "kept": 3, "kept_share": 1.0, "left": 0.3, "difference": 1e-7}
    good |= {"pass_seconds": 0.1, "find_seconds": 0.2, "last": ["fc"]}
    rival = {"cut": "yes", "runs": "yes", "equal": "yes", "step": "yes", "left": 0.3}
    rows = [
        {"name": "a", "ngn": good, "torch_pruning": rival},
        {
            "name": "b",
            "ngn": good | {"equal": "differs by 1.0e-01"},
            "torch_pruning": rival | {"equal": "another shape"},
        },
        {"name": "c", "ngn": good, "torch_pruning": {"cut": "KeyError: x | y"}},
        {"name": "d", "not_run": "too many parameters"},
        {
            "name": "f",
            "ngn": {"groups": 0, "unknown": ["a norm over it"], "half": "ValueError: no size of", "last": []},
            "torch_pruning": {},
        },
    ]
    text = table.table([{"collection": "timm", **row} for row in rows], {"timm": [*"abcdef"]})
    assert "2 of 4 models of timm (Torch-Pruning: 1 of 3)" in text
    assert "NGN cuts 1 of all 4 models so that they compute something else, Torch-Pruning 1." in " ".join(text.split())
    assert "2.0 forward passes" in text
    assert "| b | comparing | `differs by 1.0e-01` |" in text
    assert "| c | Torch-Pruning | `KeyError: x / y` |" in text
    assert "| f | cutting | `no size is found. What fixes them: a norm over it` |" in text
    assert "d (too many parameters)" in text
    assert "Not run yet: e." in text
