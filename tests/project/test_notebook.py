"""The notebook runs unchanged in its small form; the committed one is complete and its outputs match its text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from PIL import Image

from experiments.core.paths import ROOT

PATH = ROOT / "examples" / "smaller_cnn.ipynb"
CELLS = [cell for cell in json.loads(PATH.read_text())["cells"] if cell["cell_type"] == "code"]


def _parameters(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"accuracy \S+, ([\d,]+) parameters", text)]


def test_it_was_executed_in_order_to_its_end() -> None:
    assert [cell["execution_count"] for cell in CELLS] == [*range(1, len(CELLS) + 1)]
    printed = "".join("".join(out.get("text", "")) for cell in CELLS for out in cell["outputs"])
    before, after = _parameters(printed)
    assert after <= 0.6 * before
    assert "60,000 images to train on" in printed
    assert any("image/png" in out.get("data", {}) for out in CELLS[-1]["outputs"])
    drawn = Image.open(PATH.with_suffix(".png")).text["Description"]  # type: ignore[attr-defined]
    assert drawn in printed, "the picture of the README is of the report that the notebook prints"
    sizes = [(int(whole), int(left)) for whole, left in re.findall(r"^\d +(\d+) -> +(\d+) channels", drawn, re.M)]
    assert [whole for whole, _ in sizes] == [24, 48]
    assert min(left / whole for whole, left in sizes) < 0.95
    assert f"parameters: {before:,} -> {after:,} (-40%)" in drawn


def test_its_cells_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setenv("NGN_SMOKE", "1")
    monkeypatch.chdir(tmp_path)  # the notebook writes no files next to itself
    names: dict[str, Any] = {}
    for cell in CELLS:
        exec(compile("".join(cell["source"]), PATH.name, "exec"), names)
    channels, parameters, errors = names["figure"].axes
    heights = [[bar.get_height() for bar in axes.patches] for axes in (channels, parameters, errors)]
    assert heights[0] == [24, 48, names["small"][0].out_channels, names["small"][4].out_channels]
    assert heights[1][1] <= 0.6 * heights[1][0], "the picture shows parameters before and after"
    assert heights[2] == [100 * (1 - names[name]) for name in ("before", "after", "as_long")]
    plt.close("all")
    before, after = _parameters(capsys.readouterr().out)
    assert after <= 0.6 * before
    assert names["small"][0].out_channels < 24 or names["small"][4].out_channels < 48
    assert not list(tmp_path.iterdir())
