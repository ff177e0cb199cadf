"""The documentation site builds without a warning: every link, every docstring, every script of the gallery."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.core.paths import ROOT


@pytest.mark.slow(seconds=40)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx_gallery")
    for entry in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / entry, tmp_path)
    for folder in ("docs", "examples", "paper", "conf"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs" / "site", ".", "site"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for script in (ROOT / "examples" / "gallery").glob("*.py"):
        if script.name != "picture.py":
            page = (tmp_path / "site" / "build" / "gallery" / f"{script.stem}.html").read_text()
            assert f"sphx_glr_{script.stem}_001.png" in page, "t over training, and what is kept"
            text = html.unescape(page).replace(",", "")
            of_parameters = re.findall(r"^parameters: (\d+) -> (\d+)|(\d+) → (\d+) parameters", text, re.M)
            of_sizes = re.findall(r"^\S+ +(\d+) -> +(\d+) \w+", text, re.M)
            assert of_parameters, script.name
            assert of_sizes, script.name
            for whole, left in (filter(None, pair) for pair in [*of_parameters, *of_sizes]):
                assert int(left) < 0.95 * int(whole), f"{script.name} shows that something became smaller"
