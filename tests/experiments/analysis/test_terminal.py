"""Tables in the terminal."""

import io

import record_samples as samples
from rich.console import Console

from experiments.store.records import Store
from experiments.studies.one_d import BASELINE
from experiments.studies.vision import EIGHT
from scripts.build_paper_data import main
from scripts.demo import show


def shown(store, overrides=None, seeds=range(10)):
    console = Console(file=io.StringIO(), width=110)
    show(store, overrides or {}, seeds, console)
    return console.file.getvalue()


def test_the_baseline_row_beside_the_published_one(tmp_path):
    store = Store(tmp_path)
    for seed in range(9):
        samples.put(store, BASELINE, seed, {"grown": samples.grown([6.0 + seed % 2], 1e-5, 3e-5)}, clean=False)
    text = shown(store)
    for expected in ("6.00", "100%", "1.00e-05", "3.00e-05", "1.31e-05", "9/10", "[6.00, 7.00]", "agrees (calibrated)"):
        assert expected in text
    assert text.count("disagrees (calibrated)") == 2
    assert text.count("missing: regression1d-mlp-ngn-s9-") == 1


def test_the_script_prints_a_task_with_its_stand_ins(tmp_path, capsys):
    store, row = Store(tmp_path), EIGHT.row("cifar10-conv")
    shorter = row.runs.with_overrides(row.stand_ins[0].overrides)
    samples.put(store, shorter, 0, {"grown": samples.grown([7.02], 63.21, 63.21, "accuracy")})
    assert main(["--results", str(tmp_path), "--table", "cifar10"]) == 0
    text = capsys.readouterr().out
    for expected in ("stand-in: 3 epochs", "63.21", "71.77", "1/10", "0/10"):
        assert expected in text
    assert "MNIST" not in text
    assert list(tmp_path.glob("*.tex")) == []


def test_text_of_records_is_no_markup(tmp_path):
    store = Store(tmp_path)
    text = "[bold]x[/bold]"
    data = {"name": text, "sha256": "0" * 64, "provenance": "made"}
    samples.put(store, BASELINE, 0, {"grown": samples.grown([6.0], 1e-5, 1e-5)}, data=data)
    assert text in shown(store, seeds=[0])
