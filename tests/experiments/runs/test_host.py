"""The settings of a training process: numbers below 1.2e-38 are flushed to zero; its peak memory is its own."""

import subprocess
import sys

import pytest
import torch

from experiments.config import run_files
from experiments.config.compose import compose
from experiments.core.paths import ROOT
from experiments.runs import training
from experiments.runs.host import tuned_for_training
from experiments.runs.stack import Stack

flushes = pytest.mark.skipif(
    not (torch.set_flush_denormal(True) and torch.set_flush_denormal(False)), reason="this processor cannot flush them"
)


@flushes
def test_the_callers_denormal_setting_is_restored(tmp_path, monkeypatch):
    def is_zero():
        return float(torch.tensor(1e-40) * 0.5) == 0

    with tuned_for_training():
        assert is_zero()
        with tuned_for_training():
            pass
        assert is_zero()  # the inner context did not end the outer one's setting
    assert not is_zero()
    with pytest.raises(RuntimeError, match="on the way"), tuned_for_training():
        raise RuntimeError("on the way")
    assert not is_zero()
    monkeypatch.setattr(run_files, "SCRATCH", tmp_path / "scratch")
    config = compose({"task": "regression1d", "gate": "mlp", "profile": "smoke"}, {"results": str(tmp_path)})
    training.train_stack(Stack.of(config))
    assert not is_zero()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is getrusage's")
def test_peak_memory_excludes_the_parent_process():
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
