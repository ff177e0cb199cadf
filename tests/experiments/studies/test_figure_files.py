"""Figure files: the script, redrawing, stand-ins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest
import record_samples as samples

from experiments.core.paths import ROOT
from experiments.store.records import Store
from experiments.studies import FIGURES
from experiments.studies.one_d import BASELINE

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e '.[paper]'")

from matplotlib import rc_context

from experiments.report.drawing import style
from scripts import build_paper_data
from scripts.build_figures import main


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return samples.baseline(tmp_path / "results")


def test_stand_ins_are_named(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shorter = {"train.steps": 2000}
    phase = {**samples.grown([6.0], 1e-5, 1e-5), "norms": [1.0]}
    samples.put(store, BASELINE.with_overrides(shorter), 0, {"grown": phase}, curves=samples.curves())
    found = samples.figure("figure1", store, shorter)
    assert found.notes == ("partial: 1 of 10 seeds (9 not run)", "stand-in: train.steps=2000")
    figure = style.draw(FIGURES["figure1"], found)
    assert "stand-in: train.steps=2000" in figure.get_supxlabel()
    options = ["--results", str(store.root), "--output", str(tmp_path / "out"), "--stand-in"]
    assert main([*options, "train.steps=2000", "--only", "figure1"]) == 0
    assert main([*options, "train.steps=2000", "--only", "frontier_mnist_mlp"]) == 2
    assert "frontier_mnist_mlp: not drawn" in capsys.readouterr().err
    assert main([*options, "train.step=2000"]) == 2
    assert "Did you mean 'train.steps'" in capsys.readouterr().err
    assert main([*options, "train.steps"]) == 2
    assert "KEY=VALUE" in capsys.readouterr().err


def test_a_figure_is_the_same_bytes_in_every_process_and_needs_no_torch(store: Store, tmp_path: Path) -> None:
    options = ["--results", str(store.root), "--only", "figure1", "--output"]
    with rc_context({"font.size": 12, "figure.dpi": 72}):  # of a user's matplotlibrc
        assert main([*options, str(tmp_path / "here")]) == 0
    code = (
        "import sys; from scripts.build_figures import main; "
        f"assert main({[*options, str(tmp_path / 'there')]!r}) == 0; assert 'torch' not in sys.modules"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": seed}
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, env=environment)
        assert (tmp_path / "there" / "figure1.svg").read_bytes() == (tmp_path / "here" / "figure1.svg").read_bytes()
        (tmp_path / "there" / "figure1.svg").unlink()
    assert [path.name for path in (tmp_path / "here").glob("[!.]*")] == ["figure1.svg"]


def test_a_figure_is_small_and_its_text_is_text(store: Store, tmp_path: Path) -> None:
    assert main(["--results", str(store.root), "--only", "figure1", "--output", str(tmp_path)]) == 0
    picture = ElementTree.parse(tmp_path / "figure1.svg")
    words = {text for element in picture.iter("{http://www.w3.org/2000/svg}text") for text in element.itertext()}
    assert {FIGURES["figure1"].title, "training step"} <= words
    assert not re.search(r"\d\.\d{3}", "".join(e.get("d", "") for e in picture.iter())), "two decimals"
    committed = list((ROOT / "paper" / "figures").glob("*.svg"))
    assert {path.stem for path in committed} == set(FIGURES)
    assert all(path.stat().st_size < 200_000 for path in committed)


@pytest.mark.slow(seconds=40)
def test_the_committed_figures_and_the_papers_file_are_those_of_the_committed_records(tmp_path: Path) -> None:
    """Byte by byte, so that no change of the code moves a number. Another matplotlib draws other bytes."""
    assert build_paper_data.main(["--output", str(tmp_path / "data_generated.tex")]) == 0
    assert (tmp_path / "data_generated.tex").read_bytes() == (ROOT / "paper" / "data_generated.tex").read_bytes()
    if f"matplotlib=={version('matplotlib')}\n" not in (ROOT / "constraints.txt").read_text():
        pytest.skip("the figures were drawn by the matplotlib of constraints.txt")
    assert main(["--output", str(tmp_path / "figures")]) == 0
    for name in FIGURES:
        drawn, committed = ((folder / "figures" / f"{name}.svg").read_bytes() for folder in (tmp_path, ROOT / "paper"))
        assert drawn == committed, name


def test_a_wrong_name_gives_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "figure99"]) == 2
    assert "figure1" in capsys.readouterr().err
