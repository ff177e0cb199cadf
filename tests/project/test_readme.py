"""The example in the README runs as it stands, and does what it says."""

import re
import subprocess
import sys

import pytest

from experiments.paths import ROOT


@pytest.mark.slow
def test_the_library_example_learns_a_size(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len([line for line in block.splitlines() if line.strip()]) <= 20
    script = tmp_path / "example.py"
    script.write_text(block)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    t, kept, soft, deployed = re.search(
        r"t = ([\d.]+), kept (\d+) of 16 components\nsoft MSE (\S+), deployed MSE (\S+)", done.stdout
    ).groups()
    assert int(kept) == int(float(t) + 0.5) + 1
    assert 1 <= int(kept) < 16
    assert float(soft) < 0.05
    assert float(deployed) < 0.05


def test_files_that_the_readme_points_at_exist():
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target
