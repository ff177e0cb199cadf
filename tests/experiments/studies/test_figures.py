"""Figures: their data and captions, the script, and the files that it draws."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from xml.etree import ElementTree

import pytest
import record_samples as samples

from experiments.analysis.collect import Reader
from experiments.analysis.selection import Selection
from experiments.config.schema import branch_phase
from experiments.core.paths import ROOT
from experiments.store.records import Store
from experiments.studies import FIGURES
from experiments.studies.manifold import FIFTEEN
from experiments.studies.one_d import BASELINE
from experiments.studies.prices import CONTINUED
from experiments.studies.schedules import FOUR

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e '.[paper]'")

from matplotlib import rc_context

from experiments.report.drawing import style
from scripts import build_paper_data
from scripts.build_figures import main


@pytest.fixture
def store(tmp_path):
    return samples.baseline(tmp_path / "results")


def test_diverged_dirty_and_strange_seeds_are_counted_and_not_drawn(store):
    samples.put(store, BASELINE, 1, {"grown": samples.diverged()})
    samples.put_grown(store, BASELINE, 2, 6.0, 1e-5, clean=False)
    other = {"name": "regression1d", "sha256": "1" * 64, "provenance": "generated: by the tests"}
    samples.put_grown(store, BASELINE, 3, 6.0, 1e-5, data=other)
    samples.put_grown(store, BASELINE, 4, 6.0, 1e-5)
    found = samples.figure("figure1", store)
    assert found.notes[0] == "partial: 2 of 10 seeds (5 not run, 1 diverged, 2 refused)"
    assert "n = 1 run" in style.draw(FIGURES["figure1"], found).axes[0].get_title()


def test_panels_whose_curves_are_not_kept_say_so(tmp_path):
    store = Store(tmp_path)
    samples.put_grown(store, FOUR.row("beta4").runs, 0, 6.0, 1e-5)
    drawn = {"name": "manifold", "sha256": "0" * 64, "provenance": "generated: by the tests"}
    samples.put_grown(store, FIFTEEN.row("4").runs, 0, 3.0, 1e-5, data=drawn)
    branches = {branch_phase(factor): samples.grown([6.0], 1e-5, 1e-5) for factor in (0.1, 1.0, 10.0)}
    samples.put(store, CONTINUED, 0, {"grown": samples.grown([6.0], 1e-5, 1e-5), **branches})
    for name, said in (("schedule_courses", 4), ("manifold_courses", 2), ("figure6", 0)):
        found = samples.figure(name, store)
        assert found.notes[-1].startswith("these runs have no curve files; run them again"), name
        figure = style.draw(FIGURES[name], found)
        assert figure.axes[said].get_title().endswith("\ncurves not kept")
        assert [text.get_text() for text in figure.axes[said].texts] == ["curves not kept"]
        assert FIGURES[name].title in [text.get_text() for text in figure.texts]
    samples.put_grown(store, BASELINE, 0, 6.0, 1e-5, curves=samples.curves())
    found = samples.figure("schedule_courses", store)
    assert [found.lack(key) for key in ("beta4", "beta15")] == ["curves not kept", "not run"]


def test_data_and_weights_are_named_in_the_words_that_say_most(tmp_path):
    store, reader = Store(tmp_path), Reader(Store(tmp_path))
    runs = Selection.of({"task": "regression1d"}, seeds=range(3))
    for seed, (digest, how, weights) in enumerate(
        [
            ("0", "mirror; see its file", "4-bit GGUF"),
            ("0", "mirror: 3 images from JPEG", "4-bit GGUF"),
            ("1", "official files, digests checked", "somebody/tiny, revision 12ab"),
        ]
    ):
        own = {"name": "regression1d", "sha256": digest * 64, "provenance": how}
        base = {"name": "tiny", "sha256": digest * 64, "provenance": weights}
        samples.put_grown(store, runs, seed, 6.0, 1e-5, data=own, base=base)
    reader.collect(runs)
    beginning = "data differ from the published files: "
    said = [f"{beginning}regression1d, mirror: 3 images from JPEG", f"{beginning}tiny, 4-bit GGUF"]
    assert [*reader.data_notes(reader.seen)] == said


def test_without_records_it_says_so(tmp_path):
    for spec in FIGURES.values():
        found = spec.data(Reader(Store(tmp_path)))
        assert found.empty
        (axes,) = style.draw(spec, found).axes
        assert axes.get_title() == spec.title
        assert [text.get_text() for text in axes.texts] == ["not run"]


def test_stand_ins_are_named(store, tmp_path, capsys):
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


def test_a_figure_is_the_same_bytes_in_every_process_and_needs_no_torch(store, tmp_path):
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


def test_a_figure_is_small_and_its_text_is_text(store, tmp_path):
    assert main(["--results", str(store.root), "--only", "figure1", "--output", str(tmp_path)]) == 0
    picture = ElementTree.parse(tmp_path / "figure1.svg")
    words = {text for element in picture.iter("{http://www.w3.org/2000/svg}text") for text in element.itertext()}
    assert {FIGURES["figure1"].title, "training step"} <= words
    assert not re.search(r"\d\.\d{3}", "".join(e.get("d", "") for e in picture.iter())), "two decimals"
    committed = list((ROOT / "paper" / "figures").glob("*.svg"))
    assert {path.stem for path in committed} == set(FIGURES)
    assert all(path.stat().st_size < 200_000 for path in committed)


@pytest.mark.slow(seconds=40)
def test_the_committed_figures_and_the_papers_file_are_those_of_the_committed_records(tmp_path):
    """Byte by byte, so that no change of the code moves a number. Another matplotlib draws other bytes."""
    assert build_paper_data.main(["--output", str(tmp_path / "data_generated.tex")]) == 0
    assert (tmp_path / "data_generated.tex").read_bytes() == (ROOT / "paper" / "data_generated.tex").read_bytes()
    if f"matplotlib=={version('matplotlib')}\n" not in (ROOT / "constraints.txt").read_text():
        pytest.skip("the figures were drawn by the matplotlib of constraints.txt")
    assert main(["--output", str(tmp_path / "figures")]) == 0
    for name in FIGURES:
        drawn, committed = ((folder / "figures" / f"{name}.svg").read_bytes() for folder in (tmp_path, ROOT / "paper"))
        assert drawn == committed, name
