"""The settings of a training process: it keeps freed memory and flushes numbers below 1.2e-38 to zero.

The tests count page faults and compare bits, which do not depend on the speed or load of the machine.
"""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from experiments.config import run_files
from experiments.config.compose import compose
from experiments.core.paths import ROOT
from experiments.runs import training
from experiments.runs.errors import StorageError
from experiments.runs.host import denormals_flushed
from experiments.runs.phases import learner_of, plan_of, trainer_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task

TINY = torch.finfo(torch.float32).tiny
NEARLY_ZERO = 1e-30
PROGRAM = """
import ctypes, resource
from experiments.runs.host import keep_freed_memory

libc, block = ctypes.CDLL(None), ctypes.c_void_p()
size = 36 * 2**20  # above every threshold that glibc moves to by itself

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):  # as torch's allocator asks for a tensor
        libc.posix_memalign(ctypes.byref(block), ctypes.c_size_t(64), ctypes.c_size_t(size))
        ctypes.memset(block, 1, size)
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(1)
without = faults(1)
assert keep_freed_memory()
faults(10)  # splinters of aligned blocks fill a small cache first
print(without, faults(2))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_freed_memory_is_reused_without_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, check=True, capture_output=True, text=True)
    before, kept = map(int, done.stdout.split())
    assert before > 100  # otherwise neither the setting nor this test has a purpose
    assert kept < 100


flushes = pytest.mark.skipif(
    not (torch.set_flush_denormal(True) and torch.set_flush_denormal(False)), reason="this processor cannot flush them"
)


@flushes
def test_the_callers_denormal_setting_is_restored(tmp_path, monkeypatch) -> None:
    def is_zero() -> bool:
        return float(torch.tensor(1e-40) * 0.5) == 0

    with denormals_flushed():
        assert is_zero()
        with denormals_flushed():
            pass
        assert is_zero()  # the inner context did not end the outer one's setting
    assert not is_zero()
    with pytest.raises(RuntimeError, match="on the way"), denormals_flushed():
        raise RuntimeError("on the way")
    assert not is_zero()
    monkeypatch.setattr(run_files, "SCRATCH", tmp_path / "scratch")
    config = compose({"task": "regression1d", "gate": "mlp", "profile": "smoke"}, {"results": str(tmp_path)})
    training.train_stack(Stack.of(config))
    assert not is_zero()


THREADS = """
import torch
from experiments.runs.host import denormals_flushed

torch.set_num_threads(4)
with denormals_flushed():
    print(int((torch.full((1_000_000,), 1e-40) * 0.5).count_nonzero()))
"""


@flushes
def test_threads_started_inside_also_flush() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], cwd=ROOT, check=True, capture_output=True, text=True)
    assert int(done.stdout) == 0


CASES = {
    "regression1d": ("mlp", {"gate.t0": 9.0, "gate.K": 32, "train.steps": 40}),
    "mnist": ("mlp", {"gate.t0": 5.0, "gate.K": 16, "train.steps": 5}),
    "twist": ("layers", {"gate.t0": 5.0, "gate.K": 10, "train.steps": 10}),
    "manifold": ("latent", {"train.steps": 10}),
}


@flushes
@pytest.mark.parametrize("engine", ["torch", "auto"])
@pytest.mark.parametrize("name", CASES)
def test_flushing_changes_no_bit_of_losses_and_boundaries(name, engine) -> None:
    """Parameters may change by less than 1e-25, which no sum notices."""
    gate, keys = CASES[name]
    config = compose({"task": name, "gate": gate, "profile": "smoke"}, keys)

    def trained():
        task = make_task(config, torch.device("cpu"))
        learner = learner_of(Stack.of(config), task)
        if name == "regression1d":
            with torch.no_grad():  # like the last maps of far components, which are still close to zero
                learner.axes[0].bank.W3.fill_(NEARLY_ZERO)
        batches, plan = task.batches(config.train, 0), plan_of(Stack.of(config), task.samples(config.train))
        kind = trainer_of(config.model_copy(update={"engine": engine}), learner, batches, task, plan)
        history = kind(learner, batches, task.loss, plan, progress="never").fit()
        return history.curves, learner

    curves, learner = trained()
    if name == "regression1d":  # otherwise there would be nothing to flush
        back = learner.axes[0].capacity.coefficients("soft").float() * NEARLY_ZERO
        assert bool(((back != 0) & (back < TINY)).any())
    with denormals_flushed():
        flushed_curves, flushed = trained()
    for key, values in curves.items():
        assert (flushed_curves[key] == values).all(), key
    for (key, p), q in zip(learner.named_parameters(), flushed.parameters(), strict=True):
        assert (p.detach().double() - q.detach().double()).abs().max() < 1e-25, key


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is getrusage's")
def test_peak_memory_excludes_the_parent_process() -> None:
    """The child of a 700 MiB process reports its own memory: less at first, about 100 MiB more afterwards."""
    child = (
        "from experiments.runs.host import peak_mib; before = peak_mib(); much = bytearray(100 * 2**20); "
        "print(before, peak_mib())"
    )
    parent = f"import subprocess, sys; much = bytearray(700 * 2**20); subprocess.run([sys.executable, '-c', {child!r}])"
    done = subprocess.run([sys.executable, "-c", parent], cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert 10 < before < 700
    assert 90 < after - before < 200


@pytest.mark.parametrize(("setting", "convolutions"), [("highest", False), ("high", True)])
def test_products_have_the_precision_of_the_setting_during_a_run_only(monkeypatch, setting, convolutions):
    seen, before = [], (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)

    def made(config, device):
        seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        raise InterruptedError

    monkeypatch.setattr(training, "make_task", made)
    with pytest.raises(StorageError):
        training.train_stack(Stack.of(compose({}, {"train.matmul": setting})))
    assert seen == [(setting, convolutions)]
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
