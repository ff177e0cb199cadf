"""The benchmarks run and measure what they claim."""

import dataclasses
import functools
import importlib

import pytest
import torch

from experiments.core.paths import ROOT


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """The folder from which the benchmarks import each other, as they do as scripts."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


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
