"""CONTRIBUTING.md is followed in a copy of the checkout: its commands work."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from walkthrough import COMMANDS, Reader

from experiments.core.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SHORT = {
    "make ": "make --dry-run ",  # it installs packages, and takes minutes
    ".ci/run": "test -x .ci/run && bash -n .ci/run",
    "python -m mypy": "python -m mypy --version",
    "python -m pytest -q": "python -m pytest -q -k wraps",  # the copy has no figures, which pages link to
    "python scripts/sweep.py run STUDY": "python scripts/sweep.py run smoke --dry-run",
    "python run.py ... ": "python run.py task=cora profile=smoke --cfg job ",
}
"""How a command begins → what is typed in its place, as it would take long."""


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    listed = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "--", ".", ":!results", ":!paper"]
    copy = tmp_path / "copy"
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return Reader(copy, copy)


@pytest.mark.checkout
@pytest.mark.slow(seconds=10)
def test_its_commands_do_what_it_says(reader: Reader) -> None:
    """The parts of a folder of one's own become parts of the suite, without the folder."""
    console = re.findall(r"^```console\n(.*?)^```$", TEXT, re.S | re.M)
    blocks = [*COMMANDS.findall(TEXT), *(block.replace("$ ", "") for block in console)]
    for line in "".join(blocks).splitlines():
        start = next((start for start in SHORT if line.startswith(start)), "")
        reader.type(f"{SHORT.get(start, '')}{line.removeprefix(start)}\n")
    assert "/sine-waves-urgent-s0-" in reader.run("python run.py task=sine method=urgent profile=smoke").stdout
