"""The benchmarks run, and a sample of ``bench_zoo.py``: models of transformers, torchvision and timm if installed."""

import dataclasses
import functools
import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import bench_zoo
from zoo import checks, comparing, table
from zoo.models import COLLECTIONS, Model

SAMPLE = {
    "transformers": (("qwen3_moe", 4), ("t5", 7)),
    "torchvision": (("resnet18", 12), ("shufflenet_v2_x0_5", 20)),
    "timm": (("resnext26ts", 15),),
}


@pytest.mark.slow(seconds=10)
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
    assert row["trained_left"] <= row["left"] < 0.9
    assert [*row["differences"]] == ["equal", "masked", "deployed", "loaded", "resumed"]
    assert all({*modes} == {*comparing.MODES} for modes in row["differences"].values())


class Branches(nn.Module):
    """Two branches that meet, a norm over the batch, dropout, and perhaps a head for the training."""

    def __init__(self, head):
        super().__init__()
        self.one, self.two, self.out = nn.Linear(4, 8), nn.Linear(4, 24), nn.Linear(32, 3)
        self.norm, self.drop = nn.BatchNorm1d(32), nn.Dropout(0.5)
        self.head = nn.Linear(8, 3) if head else None

    def forward(self, x):
        one = self.one(x).relu()
        out = self.out(self.drop(self.norm(torch.cat([one, self.two(x).relu()], 1))))
        return (out, self.head(one)) if self.training and self.head is not None else out


def checked(folder, head=False):
    model, row = Model(lambda: Branches(head), lambda: torch.randn(2, 4), lambda: torch.randn(5, 4)), {}
    checks.check(model, row, folder)
    if row.get("saved") == "yes":
        checks.check_loaded(model, row, folder)
    return row


@pytest.mark.parametrize("head", [False, True])
def test_all_checks_hold_for_branches_that_meet_and_a_head_for_the_training(head, tmp_path):
    row = checked(tmp_path, head)
    assert {check: row.get(check) for check in table.CHECKS} == dict.fromkeys(table.CHECKS, "yes")
    assert max(max(each.values()) for each in row["differences"].values()) < 1e-5


def test_what_is_wrong_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "zeroed", lambda whole, learner: whole)
    assert "comparing" in table.failing(checked(tmp_path))


def test_the_program_ends_with_a_status_that_says_whether_all_checks_hold(tmp_path, monkeypatch, capsys):
    rows = {"a": {"ngn": dict.fromkeys(table.CHECKS, "yes")}, "b": {"ngn": {"found": "yes", "half": "yes"}}}
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
    good |= {"parameters": 10**6, "groups": 3, "kept": 3, "kept_share": 1.0, "left": 0.3, "trained_left": 0.29}
    good |= {"differences": {"equal": {"eval": 1e-7, "train": 2e-7}, "masked": {"eval": 3e-7, "train": 1e-7}}}
    good |= {"pass_seconds": 0.1, "find_seconds": 0.2, "last": ["fc"]}
    rival = {"cut": "yes", "runs": "yes", "equal": "yes", "step": "yes", "left": 0.3}
    other = {"ngn": good | {"equal": "differs by 1.0e-01"}, "torch_pruning": rival | {"equal": "another shape"}}
    none = {"ngn": {"groups": 0, "unknown": ["a norm over it"], "half": "ValueError: no size of", "last": []}}
    rows = [
        {"name": "a", "ngn": good, "torch_pruning": rival},
        {"name": "b", **other},
        {"name": "c", "ngn": good, "torch_pruning": {"cut": "KeyError: x | y"}},
        {"name": "d", "not_run": "too many parameters"},
        {"name": "f", "torch_pruning": {}, **none},
    ]
    text = table.table([{"collection": "timm", **row} for row in rows], {"timm": [*"abcdef"]})
    assert "2 of 4 models of timm (Torch-Pruning: 1 of 3)" in text
    assert "NGN cuts 1 of all 4 models so that they compute something else, Torch-Pruning 1." in " ".join(text.split())
    assert "| a | 1.00 | 3 of 3 | 100% | 30% | 29% | 3e-07 | 2e-07 | 2.0 | yes | 30% | right |" in text
    assert "| b | comparing | `differs by 1.0e-01` |" in text
    assert "| c | Torch-Pruning | `KeyError: x / y` |" in text
    assert "| f | cutting | `no size is found. What fixes them: a norm over it` |" in text
    assert "d (too many parameters)" in text
    assert "Not run yet: e." in text


@pytest.mark.slow(seconds=10)
def test_each_kind_of_process(tmp_path):
    bench = importlib.import_module("bench_1d")
    course = bench.TimedSteps(steps=1000, start=20, stop=60, seconds=0.1)
    bench.prepare(tmp_path, course)
    for variant in (each for each in bench.VARIANTS[:4] if each.kind != "fused" or bench.fused()):
        found = bench.rate_of(dataclasses.replace(variant, processes=1), tmp_path, course)
        assert found["rate"] > 0
        assert found["peak_mib"] >= found["imported_mib"] > 10
        assert 1 <= found["active"] <= 32
    with pytest.raises(RuntimeError, match="ended with code 1"):
        bench.rate_of(bench.VARIANTS[1], tmp_path / "nowhere", course)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bench_models", "bench_kernels"])
def test_every_variant_of_every_group_runs(name, monkeypatch):
    module = importlib.import_module(name)
    for size, small in {"STEPS": 1, "BATCH": 2, "CONTEXT": 16}.items():
        monkeypatch.setattr(module, size, small, raising=False)
    # compiling for the processor takes minutes; one graph per step shows without it
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    ran = {title: len([run(1) for run, _ in make().values()]) for title, make in module.GROUPS.items()}
    assert all(count > 1 for title, count in ran.items() if "compiled kernel" not in title), ran
