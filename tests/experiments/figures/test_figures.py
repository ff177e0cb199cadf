"""Figures: the data behind them, what the pictures say, and when they are drawn again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_samples as samples

from experiments.analysis.collect import Reader
from experiments.analysis.reductions import init_sweep, plateaus
from experiments.analysis.selection import Selection
from experiments.config.schema import branch_phase
from experiments.figures import FIGURES, depth, figure2
from experiments.figures.model import Data
from experiments.paths import ROOT
from experiments.store.records import Store
from experiments.studies import study
from experiments.tables.one_d import BASELINE, CONTINUED, FOUR, SEVEN
from experiments.tables.transfer import NINE
from experiments.tables.vae import FIFTEEN

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e '.[paper]'")

from experiments.figures import manifest
from scripts import build_figures


def main(arguments: list[str]) -> int:
    """The script in this process alone: it is not one to fork. ``test_figures_need_no_torch`` draws in several."""
    return build_figures.main(["--jobs=1", *arguments])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three seeds of the baseline, one without curves."""
    made = Store(tmp_path / "results")
    for seed in range(3):
        phase = {**samples.grown([6.0], 1e-5, 1e-5), "norms": [1.0, 0.5, 0.25]}
        samples.put(made, BASELINE, seed, {"grown": phase}, curves=samples.curves() if seed < 2 else None)
    return made


@pytest.fixture
def few_prices(monkeypatch: pytest.MonkeyPatch) -> tuple[Selection, ...]:
    """The price sweep with 24 prices."""
    monkeypatch.setattr(figure2, "PRICES", plateaus.PRICES[:24])
    monkeypatch.setattr(figure2, "SWEEP", plateaus.SWEEP[:24])
    return plateaus.SWEEP[:24]


def put_grown(store: Store, selection: Selection, seed: int, t: float, truncated: float, **changes: Any) -> str:
    return samples.put(store, selection, seed, {"grown": samples.grown([t], truncated / 2, truncated)}, **changes)


def data(name: str, store: Store, overrides: Mapping[str, Any] | None = None) -> Data:
    found = FIGURES[name].data(Reader(store), overrides)
    stored = {path.name.removesuffix(".json") for path in store.root.rglob("*.json")}
    assert {run for point in found.points for run in point.runs} | {c.run for c in found.curves} <= stored
    assert stored & set(found.runs) or found.empty
    return found


def test_figure_1_shows_curves_and_norms_of_every_seed(store: Store) -> None:
    found = data("figure1", store)
    assert found.notes[0] == "partial: 3 of 10 seeds (7 not run)"
    figure = FIGURES["figure1"].draw(found)
    left, right, counts = figure.axes
    assert left.get_title() == "Training, n = 2 seeds"
    assert right.get_title() == "Norms of the functions, n = 3 seeds"
    assert (len(left.lines), len(counts.lines)) == (4, 2)
    assert list(counts.lines[0].get_ydata()) == pytest.approx(list(samples.curves()["grown.t"][:, 0]))
    assert [bar.get_height() for bar in right.patches] == [1.0, 0.5, 0.25]
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["total loss", "task MSE", "t (right)"]


def test_diverged_dirty_and_strange_seeds_are_counted_and_not_drawn(store: Store) -> None:
    samples.put(store, BASELINE, 1, {"grown": samples.diverged()})
    put_grown(store, BASELINE, 2, 6.0, 1e-5, clean=False)
    other = {"name": "regression1d", "sha256": "1" * 64, "provenance": "made by the tests"}
    put_grown(store, BASELINE, 3, 6.0, 1e-5, data=other)
    put_grown(store, BASELINE, 4, 6.0, 1e-5)
    found = data("figure1", store)
    assert found.notes[0] == "partial: 2 of 10 seeds (5 not run, 1 diverged, 2 refused)"
    assert "n = 1 seed" in FIGURES["figure1"].draw(found).axes[0].get_title()


def test_figure_2_has_the_staircase_its_plateaus_and_both_errors(
    tmp_path: Path, few_prices: tuple[Selection, ...]
) -> None:
    store = Store(tmp_path)
    for n, selection in enumerate(few_prices[:22]):
        put_grown(store, selection, 0, 5.4 if n == 3 else 5.0 if n < 6 else 4.0, 1e-5 * (n + 1))
    found = data("figure2", store)
    assert found.notes[0] == "partial: 22 of 24 prices (2 not run)"
    assert [p.y for p in found.of("count", figure2.LANDED)] == [6.0] * 5 + [5.0] * 16
    (between,) = found.of("count", figure2.BETWEEN)
    assert (between.x, between.y) == (plateaus.PRICES[3], 6.0)
    assert [p.y for p in found.of("mse", "truncated")] == pytest.approx([1e-5 * (n + 1) for n in range(22)])
    assert [p.y for p in found.of("mse", "soft")] == pytest.approx([5e-6 * (n + 1) for n in range(22)])
    steps = found.of("plateaus")
    assert [(p.y, len(p.runs), p.low, p.high) for p in steps] == [
        (6, 6, plateaus.PRICES[0], plateaus.PRICES[5]),
        (5, 16, plateaus.PRICES[6], plateaus.PRICES[21]),
    ]
    above, below = FIGURES["figure2"].draw(found).axes
    assert above.get_title() == "Seed 0, n = 1 seed at each of 22 prices"
    assert [t.get_text() for t in above.texts] == [f"×{(10 ** (4 * 15 / 499)):.1f}"]  # the other spans less than 1.3
    assert below.get_yscale() == "log"


def test_figure_3_pools_by_count_and_prints_n(tmp_path: Path) -> None:
    store = Store(tmp_path)
    frontier = study("fixed_frontier").make()
    for seed, mse in enumerate((1e-5, 1e-4, 1e-2)):
        samples.put(store, frontier[4], seed, {"fixed": samples.fixed(5, mse)})
    for place, t in ((12, 4.0), (13, 4.0), (14, 2.0)):
        put_grown(store, frontier[place], 7, t, 10.0**-place)
    found = data("figure3", store)
    (fixed,) = found.of("", "fixed")
    logs = np.array([-5.0, -4.0, -2.0])
    sd = np.sqrt(((logs - logs.mean()) ** 2).mean())
    assert (fixed.x, fixed.y) == (5, pytest.approx(10 ** logs.mean()))
    assert (fixed.low, fixed.high) == pytest.approx((10 ** (logs.mean() - sd), 10 ** (logs.mean() + sd)))
    small, pooled = found.of("", "grown")
    assert (small.x, small.y, len(small.runs)) == (3, pytest.approx(1e-14), 1)
    assert (pooled.x, pooled.y, len(pooled.runs)) == (5, pytest.approx(10**-12.5), 2)
    assert len(found.of("", "fixed (each run)")) == 3
    (axes,) = FIGURES["figure3"].draw(found).axes
    assert [text.get_text() for text in axes.texts] == ["3", "1", "2"]


def test_figure_5_has_the_mean_and_deviation_of_each_start(tmp_path: Path) -> None:
    store = Store(tmp_path)
    standard, uniform, _ = init_sweep.PANELS
    for seed, t in enumerate((4.0, 6.0, 8.0)):
        put_grown(store, standard.start(16), seed, t, 1e-5)
    put_grown(store, uniform.start(0), 0, 3.0, 1e-5)
    found = data("figure5", store)
    (mean,) = found.of("standard", "mean final t")
    sd = np.sqrt(8 / 3)
    assert (mean.x, mean.y, mean.low, mean.high) == (16, 6.0, pytest.approx(6 - sd), pytest.approx(6 + sd))
    assert found.notes[0] == "partial: 4 of 2550 runs (2546 not run)"
    titles = [axes.get_title().splitlines()[1] for axes in FIGURES["figure5"].draw(found).axes]
    assert titles == ["n = 3 seeds a start", "n = 1 seeds a start", "not run"]


def test_figure_6_joins_the_branches_to_the_end_of_the_shared_course(tmp_path: Path) -> None:
    store = Store(tmp_path)
    phases = {"grown": samples.grown([6.0], 1e-5, 1e-5)}
    phases["grown"]["steps"] = 1000
    curves = samples.curves()
    for factor in (0.1, 1.0, 10.0):
        name = branch_phase(factor)
        phases[name] = samples.grown([6.0 - factor / 5], 1e-5, 1e-5)
        curves.update({key.replace("grown", name): course for key, course in samples.curves().items()})
    run = samples.put(store, CONTINUED, 0, phases, curves=curves)
    found = data("figure6", store)
    assert {curve.series for curve in found.curves} == {"shared training", "0.1 × λ₀", "1 × λ₀", "10 × λ₀"}
    (branch,) = found.curves_of("t", "10 × λ₀")
    assert (branch.run, branch.x[0], branch.x[-1]) == (run, 1000, 1019)
    above, _ = FIGURES["figure6"].draw(found).axes
    assert above.get_title() == "Continued training, n = 1 seed"


def test_figure_7_names_the_methods_that_were_not_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = {row.key: row.runs for row in SEVEN.rows}
    for method in ("ngn", "ste"):
        put_grown(store, rows[method], 3, 6.0, 1e-4)
    found = data("figure7", store)
    assert [(p.series, p.x, p.y) for p in found.points] == [
        ("NGN", 7, 1e-4),
        ("STE (straight-through)", 7, 1e-4),
    ]
    (axes,) = FIGURES["figure7"].draw(found).axes
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts[0] == "NGN, n = 1 seed"
    assert texts[1].endswith("not run")


def test_a_frontier_counts_a_seed_of_a_fixed_count_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    learned = Selection.of({"task": "cora", "gate": "gcn"})
    for seed in range(2):
        phases = {
            "grown": samples.grown([1.0], 80.0, 79.0 + seed, "accuracy"),
            "fixed": samples.fixed(2, 81.0, "accuracy"),
            "from_high": samples.from_high(2.0, "partial", 82.0),
        }
        samples.put(store, learned, seed, phases)
    alone = Selection.of({"task": "cora", "gate": "gcn", "method": "fixed"}, {"method.count": 2})
    run = samples.put(store, alone, 0, {"fixed": samples.fixed(2, 83.0, "accuracy")})
    found = data("frontier_cora_gcn", store)
    (fixed,) = found.of("", "fixed")
    assert (fixed.x, fixed.y, fixed.low, fixed.high) == (2, 82.0, 81.0, 83.0)
    assert run in fixed.runs
    assert [(p.x, p.y) for p in found.of("", "learned from low")] == [(2, 79.0), (2, 80.0)]
    assert [(p.x, p.y) for p in found.of("", "learned from high")] == [(3, 82.0), (3, 82.0)]
    assert found.found == 3
    (axes,) = FIGURES["frontier_cora_gcn"].draw(found).axes
    assert axes.get_legend().get_texts()[0].get_text() == "fixed, 2 trainings"


def test_the_courses_of_the_schedules_have_a_panel_each(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put_grown(store, FOUR.row("beta4").runs, 0, 6.0, 1e-5, curves=samples.curves())
    figure = FIGURES["schedule_courses"].draw(data("schedule_courses", store))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[4] == "β = 4 constant, n = 1 seed"
    assert titles[0] == "baseline, not run"


def test_stand_ins_are_named(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shorter = {"train.steps": 2000}
    phase = {**samples.grown([6.0], 1e-5, 1e-5), "norms": [1.0]}
    samples.put(store, BASELINE.with_overrides(shorter), 0, {"grown": phase}, curves=samples.curves())
    found = data("figure1", store, shorter)
    assert found.notes == ("partial: 1 of 10 seeds (9 not run)", "stand-in: train.steps=2000")
    figure = FIGURES["figure1"].draw(found)
    assert "stand-in: train.steps=2000" in figure.get_supxlabel()
    options = ["--results", str(store.root), "--output", str(tmp_path / "out"), "--stand-in"]
    assert main([*options, "train.steps=2000", "--only", "figure1"]) == 0
    assert main([*options, "train.steps=2000", "--only", "frontier_mnist_mlp"]) == 2
    assert "frontier_mnist_mlp: not drawn" in capsys.readouterr().err
    assert main([*options, "train.step=2000"]) == 2
    assert "Did you mean 'train.steps'" in capsys.readouterr().err
    assert main([*options, "train.steps"]) == 2
    assert "KEY=VALUE" in capsys.readouterr().err


def test_without_records_it_says_so(tmp_path: Path) -> None:
    for spec in FIGURES.values():
        found = spec.data(Reader(Store(tmp_path)))
        assert found.empty
        (axes,) = spec.draw(found).axes
        assert axes.get_title() == spec.title
        assert [text.get_text() for text in axes.texts] == ["not run"]


def test_files_are_vectors_with_embedded_fonts_and_do_not_change(store: Store, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        options = ["--results", str(store.root), "--output", str(tmp_path / folder), "--only", "figure1"]
        assert main(options) == 0
    pdf = (tmp_path / "a" / "figure1.pdf").read_bytes()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert pdf == (tmp_path / "b" / "figure1.pdf").read_bytes()
    assert (tmp_path / "a" / "figure1.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_a_figure_is_drawn_again_only_when_its_records_its_files_or_the_code_changed(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["figure1", "figure13", "schedule_courses", "frontier_cora_gcn"]
    options = ["--results", str(store.root), "--output", str(tmp_path / "out")]

    def drawn(*more: str) -> list[str]:
        assert main([*options, *more, "--only", *names]) == 0
        return [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if ": drawn" in line]

    assert drawn() == names
    assert drawn() == []
    put_grown(store, FOUR.row("beta4").runs, 0, 6.0, 1e-5, curves=samples.curves())  # only the courses have this run
    assert drawn() == ["schedule_courses"]
    put_grown(store, BASELINE, 0, 5.0, 1e-5, curves=samples.curves())  # a run of two figures changes
    assert drawn() == ["figure1", "schedule_courses"]
    store.curves_path(Reader(store).collect(BASELINE).runs[0].run_id).unlink()
    assert drawn() == ["figure1", "schedule_courses"]
    (tmp_path / "out" / "figure13.pdf").write_bytes(b"")
    (tmp_path / "out" / "figure1.png").unlink()
    assert drawn() == ["figure1", "figure13"]
    (tmp_path / "out" / manifest.NAME).write_text("{")
    assert drawn() == names
    assert drawn("--dirty") == names
    monkeypatch.setattr(manifest, "drawing_code", lambda: "other code")
    assert drawn("--dirty") == names
    assert drawn("--dirty") == []
    assert drawn("--dirty", "--force") == names


def test_a_wrong_name_gives_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "figure99"]) == 2
    assert "figure1" in capsys.readouterr().err


def test_help_lists_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown and spec.title in shown for name, spec in FIGURES.items())


def test_boundaries_of_each_dimension_with_the_line_where_it_is_met(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for row in FIFTEEN.rows:
        for seed in range({"4": 2, "8": 1}.get(row.key, 0)):
            phase = samples.grown([3.0], 1e-5, 1e-5, "nmse")
            points = {"name": "manifold", "sha256": row.key * 64, "provenance": "every dimension has points of its own"}
            samples.put(store, row.runs, seed, {"grown": phase}, data=points, curves=samples.curves())
    found = data("manifold_courses", store)
    assert found.notes[0] == "partial: 3 of 50 runs (47 not run)"
    assert [(curve.panel, curve.seed) for curve in found.curves] == [("4", 0), ("4", 1), ("8", 0)]
    axes = FIGURES["manifold_courses"].draw(found).axes
    assert [a.get_title() for a in axes] == [
        "D = 1\nnot run",
        "D = 2\nnot run",
        "D = 4\nn = 2 seeds",
        "D = 6\nnot run",
        "D = 8\nn = 1 seed",
    ]
    line, *courses = axes[2].lines
    assert set(line.get_ydata()) == {3}
    assert len(courses) == 3


def test_what_layers_keep_leaves_out_the_identity_which_the_last_layer_does_not_have(tmp_path: Path) -> None:
    store = Store(tmp_path)
    falling = [1, 1, 1, 1, 4, 7, 9, 10, 10, 10], [1, 1, 1, 2, 4, 7, 9, 10, 10, 8]
    for seed, counts in enumerate(falling):
        phase = {**samples.grown([0.0] * 10, 1e-4, 1e-3), "count": counts, "depth": 6 + seed}
        samples.put(store, NINE.row("dec-inc").runs, seed, {"grown": phase})
    found = data("depth_layers", store)
    assert found.notes[0] == "partial: 2 of 40 runs (38 not run)"
    assert [p.y for p in found.of("dec-inc", depth.EACH) if p.runs[0].split("-")[3] == "s0"] == [
        0, 0, 0, 0, 3, 6, 8, 9, 9, 10,
    ]  # fmt: skip
    assert [p.y for p in found.of("dec-inc", depth.MEDIAN)] == [0, 0, 0, 0.5, 3, 6, 8, 9, 9, 9]
    assert depth.depths(found, "dec-inc") == [6, 7]
    titles = [axes.get_title() for axes in FIGURES["depth_layers"].draw(found).axes]
    assert titles[0].endswith("not run")
    assert titles[3] == "λ falling, r rising\ndepth 6 to 7\nn = 2 seeds"


def test_figures_need_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from scripts.build_figures import main; "
        f"assert main(['--results', {str(tmp_path)!r}, '--output', {str(tmp_path / 'figures')!r}, "
        "'--only', 'figure1', 'figure13']) == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
