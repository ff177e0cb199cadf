"""The commands and code of docs/tutorial.md run, in order, in a separate folder."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import programs
import pytest

from experiments.core.paths import ROOT

TEXT = (ROOT / "docs" / "tutorial.md").read_text()


def said(language: str, block: str, folder: Path) -> str:
    """What a block prints."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NGN_OUTPUT": str(folder / "output")}
    if language == "python":
        return printed(programs.run_code(block, cwd=folder, env=env))
    line = ["bash", "-e", "-c", block]
    shell = {**env, "PATH": programs.path()}
    return printed(subprocess.run(line, cwd=folder, env=shell, capture_output=True, text=True, check=False))


def printed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow(seconds=30)
def test_the_tutorial_runs(tmp_path: Path) -> None:
    for name in ("run.py", "scripts", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    blocks: list[list[str]] = []
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", TEXT, re.S | re.M):
        if "network()" in block and "def network" not in block:
            blocks[-1][1] += block  # it continues the block before
        else:
            blocks.append([language, block])
    first, record, sweep, table, study, own, task = (said(*block, tmp_path) for block in blocks)
    assert len(re.findall(r"grown t = ", first)) == 3
    assert len(re.findall(r"^step ", record, re.M)) == 5
    assert sweep.count("already in") == 3
    counts = [float(line.split()[3]) for line in table.splitlines()[1:4]]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    assert "6 of 6 runs done" in study
    t, units = map(float, re.findall(r"t = ([\d.]+): (\d+) of 64", own)[0])
    assert units == 4 * (int(t + 0.5) + 1) < 0.95 * 64
    whole, left = re.findall(r"^parameters: (\d+) -> (\d+) ", own, re.M)[0]
    assert int(left) < 0.95 * int(whole)
    shown = TEXT.split("It prints the report")[1].split("```")[1].splitlines()[1:]
    words = [re.sub(r"[-\d.,%]+(e-\d+)?", "0", line) for line in (*shown, *own.splitlines()[: len(shown)])]
    assert [line.split() for line in words[: len(shown)]] == [line.split() for line in words[len(shown) :]]
    assert float(re.findall(r"deployed (\S+)", own)[0]) < 1e-2
    assert 4 <= int(own.splitlines()[-1].split()[0]) < 0.95 * 64
    assert task.count("/sine-waves-ngn") == 2
    assert "factor: 2.0" in task
