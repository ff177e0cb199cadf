"""The documentation site builds without a warning: every link, every docstring, every script of the gallery."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

import ngn
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


def test_the_picture_of_a_page_shows_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "gallery")
    import picture

    x = torch.linspace(-1, 1, 16).unsqueeze(-1)
    net = torch.nn.Sequential(torch.nn.Linear(1, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
    learner = ngn.learn_sizes(net, example=x, budget=ngn.Budget(parameters="50%"))
    plan = ngn.TrainPlan(steps=5)
    history = ngn.fit(learner, x, x.sin(), torch.nn.functional.mse_loss, plan, progress="never")
    picture.draw(history, learner)
    _, components, parameters, _ = plt.gcf().axes
    whole, left = (bar.get_width() for bar in components.patches)
    assert (whole, left) == (12, learner.count().item())
    assert [text.get_text() for text in components.texts] == [f"12 → {left}"]
    assert [bar.get_height() for bar in parameters.patches] == [37, 3 * left + 1]
    plt.close("all")
