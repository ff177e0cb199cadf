"""The comparison of NGN with rivals: every method keeps its budget, and a unit runs once."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from experiments.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_rivals
from rivals import figure, published, settings, table
from rivals.all import METHODS, TRAINED, WORKS
from rivals.clock import Clock
from rivals.images import mirrored, shifted
from rivals.methods import changed, largest, learner, seeded
from rivals.published import barrier, minitron, morphnet, wanda
from units import write_between_marks

OWN = [name for name in METHODS if not name.startswith("Torch-Pruning")]


def units(folder: Path, *more: str) -> list[table.Unit]:
    common = ["--scale", "tiny", "--seeds", "0", "--shares", "25", "--folder", str(folder)]
    bench_rivals.main([*common, *more])
    return table.read_results(folder)


@pytest.mark.parametrize("work", [name for name in WORKS if name not in [*TRAINED][1:]])  # tiny, they are one
def test_every_method_is_within_its_budget(work: str, tmp_path: Path) -> None:
    found = units(tmp_path, "--work", work, "--methods", *OWN)
    assert {unit["method"] for unit in found} == {*OWN} - {*WORKS[work]("tiny", tmp_path).meaningless}
    for unit in found:
        assert 0.15 * unit["share"] / 25 < unit["cost"] / unit["dense_cost"] <= unit["share"] / 100, unit["method"]
        assert unit["scored"] == "test"
        assert unit["latency"]["ratio"] > 0


def test_torch_pruning_is_within_its_budget(tmp_path: Path) -> None:
    pytest.importorskip("torch_pruning")
    methods = [name for name in METHODS if name.startswith("Torch-Pruning")]
    found = units(tmp_path, "--methods", *methods)
    assert {(unit["work"], unit["method"]) for unit in found} == {
        (work, method)
        for work, make in WORKS.items()
        for method in methods
        if method not in make("tiny", tmp_path).meaningless
    }
    for unit in found:
        assert 0.15 < unit["cost"] / unit["dense_cost"] <= 0.25


def test_every_method_has_a_look_of_its_own() -> None:
    assert len(set(figure.LOOKS)) == len(figure.LOOKS) >= len(METHODS)


def test_a_score_far_from_all_others_is_named_and_not_drawn() -> None:
    near = [made(method, 50, 0, score) for method, score in (("NGN", 3.0), ("magnitude", 3.1), ("even sizes", 3.2))]
    assert figure.without_far([*near, made("uniform width", 50, 0, 3.7)]) == (
        [*near, made("uniform width", 50, 0, 3.7)],
        "",
    )
    drawn, said = figure.without_far([*near, made("uniform width", 50, 0, 5.916)])
    assert drawn == near
    assert "uniform width, 5.92" in said
    assert figure.without_far([*near, made("NGN, sizes fixed early", 50, 0, 9.0)])[1] == ""


def test_what_has_a_file_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "transformer-dense-100-s0.json"
    file.write_text("{}")
    found = units(tmp_path, "--work", "transformer", "--methods", "dense", "NGN")
    assert file.read_text() == "{}"
    assert [unit.get("method") for unit in found] == ["NGN", None]
    assert "dense" not in capsys.readouterr().out


def test_a_method_that_is_not_installed_is_said_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rivals.all.NEEDS", {"dense": "no_such_package"})
    assert units(tmp_path, "--work", "transformer", "--methods", "dense") == []
    assert "no_such_package is not installed" in capsys.readouterr().out


def test_missing_data_are_named_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--scale", "small", "--work", "resnet20", "--folder", str(tmp_path), "--data-root", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        bench_rivals.main([*options, "--methods", "dense"])
    assert ended.value.code == 2
    assert "fetch_data.py cifar10" in capsys.readouterr().err


def test_settings_are_changed_on_validation_data_only(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        units(tmp_path, "--set", "lr=0.1")
    changed = ["--validation", "--set", "lr=0.1", "restart=True", "--work", "transformer", "--methods", "dense"]
    (unit,) = units(tmp_path, *changed)
    assert unit["scored"] == "validation"
    assert (unit["settings"]["lr"], unit["settings"]["restart"]) == (0.1, True)
    for make in WORKS.values():
        assert len(make("tiny", tmp_path, batch=3).batches(0).at(0)[0]) == 3


def test_sizes_of_the_transformer_part_on_validation_text(tmp_path: Path) -> None:
    work = changed(WORKS["transformer"]("tiny", tmp_path), steps=8)
    assert bool(learner(work, 0, work.cost(work.model(1.0)) // 2).confirmation.given)
    assert not bool(learner(replace(work, held_out=None), 0, work.cost(work.model(1.0)) // 2).confirmation.given)


def test_largest_part() -> None:
    assert largest(lambda part: int(1000 * part), 250) == 0.25
    assert largest(lambda part: int(1000 * part), 249) < 0.25
    assert largest(lambda part: 1000 if part < 0.3 else int(1000 * part), 400) == 205 / 512, "it grows again below"
    assert largest(lambda part: 10, 10) == 1.0


def test_images_keep_their_places() -> None:
    x = torch.arange(12.0).view(3, 1, 2, 2)
    before = x.clone()
    after = mirrored(x)
    assert torch.equal(after[::2], before[::2])
    assert torch.equal(after[1, 0], before[1, 0].flip(1))


def test_images_are_moved_by_at_most_four_pixels() -> None:
    pixels = torch.randint(1, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    after = shifted(pixels)
    assert after.dtype == torch.uint8
    padded = torch.zeros(40, 3, 16, 16, dtype=torch.uint8)
    padded[:, :, 4:12, 4:12] = pixels
    crops = padded.unfold(2, 8, 1).unfold(3, 8, 1)
    same = (crops == after[:, :, None, None]).all(-1).all(-1).all(1).flatten(1)
    assert same.sum(1).tolist() == [1] * 40
    assert len(same.int().argmax(1).unique()) > 20


def test_trained_weights_are_cut_where_they_are_trained() -> None:
    """All methods begin with the same weights, whatever the seed."""
    work = WORKS["trained20"]("tiny", Path())
    first, second = (seeded(work, seed).state_dict() for seed in (0, 1))
    for name, value in first.items():
        assert torch.equal(value, second[name])
    with pytest.raises(ValueError, match="whole width"):
        work.model(0.5)


def made(method: str, share: int, seed: int, score: float) -> table.Unit:
    fixed = {"work": "transformer", "unit": "bits", "better": -1, "dense": 200, "scale": "small"}
    machine = {"machine": {"cpu": "X"}}
    of_work = {"steps": 2, "batch": 2, "held": 9}
    own = {"method": method, "share": share, "seed": seed, "score": score, "parameters": 2 * share - 1}
    return fixed | own | machine | {"settings": of_work, "latency": {"ratio": 0.5}, "processor_seconds": 7.0}


def test_the_table_compares_by_seed_and_leaves_gaps_open(tmp_path: Path) -> None:
    early = "NGN, sizes fixed early"
    scores = {"NGN": (2.0, 2.5), "magnitude": (2.1, 2.4, 9.0), early: (1.9, 2.2, 8.8)}
    found = [made(name, 50, seed, score) for name, each in scores.items() for seed, score in enumerate(each)]
    text = table.table([*found, made("dense", 100, 0, 1.5)], [50])
    own = "| 50 % | NGN | 49.5 | 2.250 ± 3.177 | -- | +0.200 ± 1.271, cannot tell | 0.50, --, -- | 7 | -- | 2 |"
    assert own in text  # t of 1 degree: 12.7
    half = stats.t.ppf(0.975, 2) * np.std([2.1, 2.4, 9.0], ddof=1) / 3**0.5
    better = "+0.000 ± 1.271, cannot tell | +0.200 ± 0.000, ahead"
    assert f"| 50 % | magnitude | 49.5 | 4.500 ± {half:.3f} | {better} | 0.50, --, --" in text
    assert early not in table.table([unit for unit in found if unit["method"] != early], [50])
    assert "Torch-Pruning" not in text
    assert "scored, one thread of X\n\n" in text
    found[2]["machine"] = found[0]["machine"] = {"cpu": "Y"}
    assert "of X; of Y for some or all models of NGN at 50 %; magnitude at 50 %\n" in table.table(found, [50])
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- rivals small: begin --> x <!-- rivals small: end -->\nb\n")
    write_between_marks(page, "rivals small", text)
    assert page.read_text() == f"a\n<!-- rivals small: begin -->\n\n{text}\n\n<!-- rivals small: end -->\nb\n"
    with pytest.raises(ValueError, match="no marks"):
        write_between_marks(page, "rivals full", text)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak of memory")
def test_peaks_are_measured_once_for_each_method_and_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--work", "transformer", "--methods", "magnitude"]
    found = units(tmp_path, *options, "--seeds", "0", "1", "--shares", "50")
    again = ["--scale", "tiny", *options, "--folder", str(tmp_path), "--peaks"]
    bench_rivals.main(again)
    (peak,) = table.read_results(tmp_path / table.PEAKS)
    assert peak["peak_mib"] > 0
    assert f"| {peak['peak_mib']} | 2 |" in table.table(found, [50], [peak])
    capsys.readouterr()
    bench_rivals.main(again)
    assert not capsys.readouterr().out
    bench_rivals.main([*again, "--methods", "dense"])
    assert "no such unit of seed 0" in capsys.readouterr().out


def test_shared_work_counts_once_in_each_unit_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("rivals.clock.time.process_time", lambda: now[0])
    clock = Clock()

    @clock.shared
    def trained(seed: int) -> list[int]:
        now[0] += 5
        return [seed]

    results, seconds = [], []
    for seeds in ([0, 0], [0], [0, 1], []):
        clock.start()
        results.append([trained(seed) for seed in seeds])
        now[0] += 1
        seconds.append(clock.seconds())
    assert seconds == [6, 6, 11, 1]
    assert results[0][1] is results[1][0], "made once"


@pytest.mark.parametrize(
    ("better", "said"),
    [
        ([0.5, 0.6, 0.7], "ahead"),
        ([-0.5, -0.6, -0.7], "behind"),
        ([-0.01, 0.0, 0.01], "equal"),
        ([-1.0, 0.0, 1.0], "cannot tell"),
        ([1.0], ""),
    ],
)
def test_verdicts(better: list[float], said: str) -> None:
    assert table.verdict(better, 0.3) == said


def test_settings_are_those_of_the_best_validation_score(tmp_path: Path) -> None:
    for lr, score in ((0.1, 3.0), (0.2, 2.0), (0.3, 2.5)):
        unit = made("NGN", 50, 100, score) | {"changes": {"lr": lr}, "work": "trained20"}
        (tmp_path / f"{lr}.json").write_text(json.dumps(unit))
    longer = made("NGN", 50, 100, 1.0) | {"changes": {"lr": 0.1}, "work": "trained20", "settings": {"steps": 9}}
    (tmp_path / "longer.json").write_text(json.dumps(longer))
    assert settings.chosen(tmp_path, "trained56", "shrunk to even sizes") == {"lr": 0.2}
    assert settings.chosen(tmp_path, "trained20", "magnitude") == {}
    own = made("shrunk to even sizes", 50, 100, 3.5) | {"changes": {"lr": 0.4}, "work": "trained20"}
    (tmp_path / "own.json").write_text(json.dumps(own))
    assert settings.chosen(tmp_path, "trained56", "shrunk to even sizes") == {"lr": 0.4}


def test_equal_time_takes_more_steps_where_they_are_cheaper(tmp_path: Path) -> None:
    first = units(tmp_path, "--work", "transformer", "--methods", "dense", "magnitude", "uniform width")
    for unit in first:
        seconds = {"dense": 10.0, "magnitude": 5.0, "uniform width": 10.2}[unit["method"]]
        name = table.named("transformer", unit["method"], unit["share"])
        (tmp_path / f"{name}-s0.json").write_text(json.dumps(unit | {"processor_seconds": seconds}))
    again = units(tmp_path, "--work", "transformer", "--methods", "dense", "magnitude", "uniform width", "--equal-time")
    (timed,) = [unit for unit in again if unit["equal"] == "processor time"]
    assert (timed["method"], timed["settings"]["steps"]) == ("magnitude", 8)
    assert "the dense model's processor time" in table.table(again, [25])


def test_settings_of_trained_networks_are_not_chosen_on_images_they_know(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        bench_rivals.main(["--validation", "--work", "trained20", "--folder", str(tmp_path)])


def test_the_barrier_of_bar() -> None:
    assert barrier(0.3, 0.5, 0.5) == 0.0, "well within the budget"
    assert barrier(1.0, 0.5, 0.0) < barrier(1.0, 0.5, 0.5) == 1e10, "the limit of the moment has passed the cost"
    b = 0.5 * 1.01 + 0.5 * 0.5  # half-way, by symmetry
    a = 0.5 - 1.01e-4
    v = (0.6 - a) / (b - a)
    assert barrier(0.6, 0.5, 0.5) == pytest.approx(v**2 / (1 - v))


def test_morphnet_keeps_the_channels_of_large_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a gradient the scales decide alone: as many of a block as are alive, times one factor."""
    monkeypatch.setattr("rivals.published.train", lambda work, model, seed, **more: model)
    work = WORKS["trained20"]("tiny", Path())
    whole = seeded(work, 0)
    alive = {"layer1.0": [3, 5, 7, 11], "layer2.0": [0, 1], "layer3.0": [2]}
    for name, rows in alive.items():
        scale = whole.get_submodule(name).bn1.weight.data
        scale.fill_(1e-3)
        scale[rows] = 1.0
    monkeypatch.setattr("rivals.published.seeded", lambda work, seed: whole)
    small = morphnet(work, 0, work.cost(whole) // 2)
    kept = {name: small.get_submodule(name).bn1.weight for name in alive}
    assert [len(kept[name]) for name in alive] == [16, 8, 4] or len(kept["layer1.0"]) > len(kept["layer2.0"])
    for name, rows in alive.items():
        assert int((kept[name] == 1.0).sum()) == len(rows), "those alive stay"


@pytest.mark.parametrize("method", [minitron, wanda])
def test_orders_by_activations_keep_the_units_that_are_large(method, monkeypatch: pytest.MonkeyPatch) -> None:
    work = WORKS["smollm2"]("tiny", ROOT)
    whole = work.model(1.0)
    with torch.no_grad():
        for layer in whole.model.layers:  # the last twelve of 48 units
            layer.mlp.up_proj.weight[-12:] *= 100
    monkeypatch.setattr(published, "trained", lambda work, seed: whole)
    monkeypatch.setattr(published, "train", lambda work, model, seed, **_: model)
    small = method(work, 0, work.outside + (work.cost(whole) - work.outside) // 4)
    for layer, before in zip(small.model.layers, whole.model.layers, strict=True):
        kept, large = layer.mlp.up_proj.weight, before.mlp.up_proj.weight[-12:]
        assert {tuple(row) for row in kept.tolist()} == {tuple(row) for row in large.tolist()}


def test_a_layer_whose_gates_have_all_closed_keeps_one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(work, model, seed, **_):
        if hasattr(model, "axes"):
            model.axes[0].capacity.log_alpha.data.fill_(-4.0)
        return model

    monkeypatch.setattr(published, "train", closed)
    work = WORKS["trained20"]("tiny", Path())
    limit = work.cost(seeded(work, 0)) // 2
    small = published.bar(work, 0, limit)
    assert work.cost(small) <= limit
    assert min(p.shape[0] for name, p in small.named_parameters() if "conv1" in name) == 1


def test_committed_units_are_of_test_data_and_committed_code() -> None:
    with pytest.raises(SystemExit):
        bench_rivals.main(["--validation"])
    for folder in sorted((ROOT / "benchmarks" / "results" / "rivals").glob("*")):
        for path in folder.glob("*.json"):
            unit = json.loads(path.read_text())
            assert unit["scale"] == folder.name
            assert unit["scored"] == "test"
            assert unit["commit"]
            small, dense = (unit.get(new, unit[old]) for new, old in (("cost", "parameters"), ("dense_cost", "dense")))
            assert small <= dense * unit["share"] / 100
