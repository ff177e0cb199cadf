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
from experiments.runs.host import denormals_flushed
from experiments.runs.stack import Stack

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
