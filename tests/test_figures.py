"""Figures from records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import record_samples as samples

from experiments.collect import Reader
from experiments.tables.one_d import BASELINE
from ngn.records import Store

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e '.[paper]'")

from experiments.figures import FIGURES, figure1
from scripts.build_figures import main

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three seeds of the baseline, one without curves."""
    made = Store(tmp_path / "results")
    for seed in range(3):
        phase = {**samples.grown([6.0], 1e-5, 1e-5), "norms": [1.0, 0.5, 0.25]}
        samples.put(made, BASELINE, seed, {"grown": phase}, curves=samples.curves() if seed < 2 else None)
    return made


def test_figure_1_shows_curves_and_norms_of_every_seed(store: Store) -> None:
    figure = figure1.draw(Reader(store))
    left, right, counts = figure.axes
    assert left.get_title() == "Training, n = 2 seeds"
    assert right.get_title() == "Norms of the functions, n = 3 seeds"
    assert (len(left.lines), len(counts.lines)) == (4, 2)
    assert list(counts.lines[0].get_ydata()) == pytest.approx(list(samples.curves()["grown.t"][:, 0]))
    assert [bar.get_height() for bar in right.patches] == [1.0, 0.5, 0.25]
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["total loss", "task MSE", "t (right)"]


def test_diverged_and_dirty_seeds_are_not_drawn(store: Store) -> None:
    samples.put(store, BASELINE, 1, {"grown": samples.diverged()})
    samples.put(store, BASELINE, 2, {"grown": samples.grown([6.0], 1e-5, 1e-5)}, clean=False)
    assert "n = 1 seed" in figure1.draw(Reader(store)).axes[0].get_title()


def test_stand_ins_are_named(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shorter = {"train.steps": 2000}
    phase = {**samples.grown([6.0], 1e-5, 1e-5), "norms": [1.0]}
    samples.put(store, BASELINE.with_overrides(shorter), 0, {"grown": phase}, curves=samples.curves())
    figure = figure1.draw(Reader(store), shorter)
    assert figure.get_supxlabel() == "stand-in: train.steps=2000"
    assert figure.axes[0].get_title() == "Training, n = 1 seed"
    options = ["--results", str(store.root), "--output", str(tmp_path / "out"), "--stand-in"]
    assert main([*options, "train.steps=2000"]) == 0
    assert main([*options, "train.step=2000"]) == 2
    assert "Did you mean 'train.steps'" in capsys.readouterr().err
    assert main([*options, "train.steps"]) == 2
    assert "KEY=VALUE" in capsys.readouterr().err


def test_without_records_it_says_so(tmp_path: Path) -> None:
    for draw in FIGURES.values():
        (axes,) = draw(Reader(Store(tmp_path)), {}).axes
        assert [text.get_text() for text in axes.texts] == ["not run"]


def test_files_are_vectors_with_embedded_fonts_and_do_not_change(store: Store, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        assert main(["--results", str(store.root), "--output", str(tmp_path / folder)]) == 0
    pdf = (tmp_path / "a" / "figure1.pdf").read_bytes()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert pdf == (tmp_path / "b" / "figure1.pdf").read_bytes()
    assert (tmp_path / "a" / "figure1.png").read_bytes()[:4] == b"\x89PNG"


def test_a_wrong_name_lists_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure99"]) == 2
    assert "figure1" in capsys.readouterr().err


def test_figures_need_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from scripts.build_figures import main; "
        f"assert main(['--results', {str(tmp_path)!r}, '--output', {str(tmp_path / 'figures')!r}]) == 0; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
