"""The benchmarks run and measure what they claim."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import programs
import pytest
import torch

from experiments.config.compose import compose
from experiments.core.paths import ROOT


def load(name: str) -> ModuleType:
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_scripts_with_paths_of_their_own_find_what_they_import(tmp_path: Path) -> None:
    """Import them from another folder, with only the installed packages, as users call them."""
    scripts = [path for path in ROOT.glob("benchmarks/*.py") if '"support"' in path.read_text()]
    assert len(scripts) == 2
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    code = "import os, runpy, sys; sys.path[0] = os.path.dirname(sys.argv[1]); runpy.run_path(sys.argv[1])"
    for script in scripts:
        done = programs.run_code(code, script, cwd=tmp_path, env=bare)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load("bench_1d")


def test_operations(bench: ModuleType) -> None:
    assert bench.flops(32) == pytest.approx(27.8e6, rel=2e-3)


@pytest.mark.slow(seconds=10)
def test_each_kind_of_process(bench: ModuleType, tmp_path: Path) -> None:
    course = bench.TimedSteps(steps=1000, start=20, stop=60, seconds=0.1)
    bench.prepare(tmp_path, course)
    for kind in ["loop", "torch", *(["fused"] if bench.fused() else [])]:
        found = bench.rate_of(kind, 1 if kind == "loop" else 3, 1, 1, tmp_path, course)
        assert found["rate"] > 0
        assert found["peak_mib"] >= found["imported_mib"] > 10
        assert 1 <= found["active"] <= 32
    with pytest.raises(RuntimeError, match="KeyError"):
        bench.rate_of("nothing", 1, 1, 1, tmp_path, course)


def test_the_table_has_every_row(bench: ModuleType) -> None:
    row = {"letter": "d", "name": "kernel", "processes": 1, "threads": 2, "rate": 12345.0, "ratio": 61.5}
    row |= {"active": 10.0, "of_matmul": 0.4, "peak_mib": 330.0, "imported_mib": 300.0}
    limit = {"letter": "e", "name": "matmul", "processes": 2, "threads": 1, "rate": 2e11}
    text = bench.table([row, limit], bench.FULL)
    assert "12,345" in text
    assert "61.5" in text
    assert "200.00 GFLOP/s" in text
    assert "27.8 MFLOP" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bench_models", "bench_kernels"])
def test_every_variant_of_every_group_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(name)
    for size, small in {"STEPS": 1, "BATCH": 2, "CONTEXT": 16}.items():
        monkeypatch.setattr(module, size, small, raising=False)
    # compiling for the processor takes minutes; one graph per step shows without it
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=False):  # set back behind a program that changes it
        ran = {title: len([run(1) for run, _ in make().values()]) for title, make in module.GROUPS.items()}
    assert all(count > 1 for title, count in ran.items() if "compiled kernel" not in title), ran


def test_the_gpu_benchmark_times_the_steps_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, where the training is the plain one, with a clock that is read twice."""
    gpu = load("bench_gpu")
    config = compose({"task": "regression1d", "gate": "mlp"}, {"gate.K": 4})
    line = gpu.Timed("two seeds", gpu.stack(config, 2), gpu.plainly)
    monkeypatch.setattr(gpu, "time", SimpleNamespace(perf_counter=iter([10.0, 16.0]).__next__))
    seconds, parameters = gpu.during(line, torch.device("cpu"), 2, 5)
    assert seconds == 2.0
    assert parameters == 2 * (4 * (16 + 16 + 16 * 16 + 16 + 16 + 1) + 1)
    with pytest.raises(ValueError, match="only 25000 steps"):
        gpu.during(line, torch.device("cpu"), 2, 25_000)


def test_the_gpu_benchmark_counts_the_operations_of_what_is_computed(bench: ModuleType) -> None:
    """Compiled steps count every component; the first layer with one input has no products."""
    gpu = load("bench_gpu")
    counted = {
        engine: gpu.operations(
            gpu.Timed("", gpu.stack(compose({"task": "regression1d", "gate": "mlp"}), 2), engine), torch.device("cpu")
        )
        for engine in (gpu.plainly, gpu.by_compiler)
    }
    outer = 32 * bench.SAMPLES * 2 * 2 * bench.H
    assert counted[gpu.by_compiler] == 2 * (bench.flops(32) - outer)
    assert 0 < counted[gpu.plainly] < counted[gpu.by_compiler]


def test_the_llama_benchmark_trains_and_asks_each_adaptation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a model of two tiny layers; deployment keeps half of the components."""
    llama = load("bench_llama")
    monkeypatch.setattr(llama, "SMALL", llama.SMALL | {"num_hidden_layers": 2, "vocab_size": 256})
    monkeypatch.setattr(llama, "ROWS", 8)
    monkeypatch.setattr(llama, "NEW", 2)
    assert llama.main(["--quick", "--device", "cpu"]) == 0
    table = capsys.readouterr().out
    for name, gate in llama.GATES.items():
        if gate.get("train.optimizer") == "adamw8bit" and importlib.util.find_spec("torchao") is None:
            assert f"{name:34} not measured: pip install" in table
            continue
        assert len(re.findall(rf"{re.escape(name)}  +[\d.]+ +[\d.]+ +[\d.]+\n", table)) == 1
        assert len(re.findall(rf"{re.escape(name)}, half of it deployed +[\d,]+ +[\d.]+\n", table)) == 1
    task = llama.Questions(llama.llama(llama.SMALL, torch.device("cpu")), torch.device("cpu"))
    for gate in llama.GATES.values():
        learner, _ = llama.learned(task, gate)
        K = torch.tensor([axis.K for axis in learner.axes])
        assert torch.equal(learner.count().cpu(), K)
        llama.set_boundaries(learner, 0.5)
        assert torch.equal(learner.count().cpu(), K // 2)


@pytest.mark.slow(seconds=10)
def test_whole_programs_are_timed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    timed = load("bench_programs")
    for trained, before in ((200, 0), (0, 200)):
        assert timed.main(["smoke", "--device", "cpu", "--results", str(tmp_path)]) == 0
        line = capfd.readouterr().out.splitlines()[-1].split()
        assert (line[0], *line[2:]) == ("smoke", str(trained), str(before))
    with pytest.raises(SystemExit, match="2"):
        timed.main(["smok"])
    assert "no study is called smok" in capfd.readouterr().err


def test_before_and_after_take_turns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The ratio is taken within a round, the checkouts alternate, and a slower command is reported."""
    paired = load("before_after")
    ran: list[str] = []

    def speed(checkout: Path, line: Any, data_root: str | None) -> float:
        ran.append(checkout.name)
        return {"before": 100.0, "after": 96.0}[checkout.name]

    monkeypatch.setattr(paired, "speed", speed)
    assert paired.main(["before", "after", "--rounds", "2", "--only", "launcher"]) == 1
    assert ran == ["before", "after", "after", "before"]
    assert "0.96" in capsys.readouterr().out
