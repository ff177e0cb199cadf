"""Tables of any records, and the paper's tables in the terminal."""

import csv
import json

import numpy as np
import pytest
import record_samples as samples
from record_samples import fixed, grown, record, sealed
from scipy import stats

from experiments.analysis import overview
from experiments.analysis.frame import frame
from experiments.cli.pipes import print_line
from experiments.config.compose import compose
from experiments.core.blocks import ConfigError
from experiments.store.records import Store
from experiments.studies.one_d import BASELINE
from experiments.studies.vision import EIGHT
from scripts import table
from scripts.build_paper_data import main
from scripts.demo import show


def config(price, seed):
    return compose({}, {"schedule.lambda0": price, "seed.value": seed})


@pytest.fixture
def folder(tmp_path):
    """Write two prices with three seeds each: t is ten times the index of the price, plus the seed."""
    for place, price in enumerate((1e-3, 1e-4)):
        for seed in range(3):
            Store(tmp_path).write(record(config(price, seed), {"grown": grown([10.0 * place + seed], 0.1, 0.1)}))
    return tmp_path


def test_lines_are_medians_in_the_order_of_the_values(folder, capsys):
    rows = frame([folder])
    assert overview.varied(rows) == ["schedule.lambda0"]
    found = overview.grouped(rows, ["schedule.lambda0"], ["grown.t"])
    assert found == [
        {"schedule.lambda0": 1e-4, "runs": 3, "diverged": 0, "grown.t": 11.0},
        {"schedule.lambda0": 1e-3, "runs": 3, "diverged": 0, "grown.t": 1.0},
    ]
    print_line(overview.table_of(found, 99))
    assert capsys.readouterr().out.splitlines()[0].split() == ["schedule.lambda0", "runs", "grown.t"]
    assert len(overview.grouped(rows, ["seed.value", "schedule.lambda0"], ["grown.t"])) == 6


def test_the_script_prints_writes_and_draws(folder, tmp_path, capsys):
    out, picture = tmp_path / "runs.csv", tmp_path / "t.png"
    assert table.main([str(folder), "--by", "schedule.lambda0", "--csv", str(out), "--plot", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "0.0001     3" in printed
    assert printed.splitlines()[-2:] == [str(out), str(picture)]
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert sorted(float(row["grown.t"]) for row in rows) == [0, 1, 2, 10, 11, 12]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_nor_are_methods_profiles_and_data(folder, capsys):
    put = Store(folder).write
    choices = [{"method": "ste"}, {"profile": "smoke"}]
    for each in choices:
        put(record(compose(each, {"schedule.lambda0": 1e-4, "seed.value": 9}), {"grown": grown([90.0], 0.1, 0.1)}))
    for seed, digest in enumerate("ab"):
        data = {"name": "mnist", "sha256": digest * 64, "provenance": "official files, digests checked"}
        images = compose({"task": "mnist", "gate": "mlp"}, {"seed.value": seed})
        put(record(images, {"grown": grown([2.0], 9.0, 9.0, "accuracy")}, data=data))
    assert table.main([str(folder), "--by", "task.name"]) == 0
    out = capsys.readouterr().out
    head, *lines = (line.split() for line in out.splitlines())
    assert head[:5] == ["task.name", "method.name", "profile", "data", "runs"]
    assert [line[:5] for line in lines[:5]] == [
        ["mnist", "ngn", "full", "aaaaaaaaaa", "1"],
        ["mnist", "ngn", "full", "bbbbbbbbbb", "1"],
        ["regression1d", "ngn", "full", "--", "6"],
        ["regression1d", "ngn", "smoke", "--", "1"],
        ["regression1d", "ste", "full", "--", "1"],
    ]
    assert "runs of one line differ in schedule.lambda0: name them with --by" in out


def test_a_setting_that_older_records_lack_has_its_default(folder):
    older, *_ = sorted(folder.glob("regression1d/*.json"))
    content = json.loads(older.read_text())
    del content["config"]["train"]["matmul"], content["config"]["train"]["warmup"]
    older.write_text(json.dumps(sealed(content)))
    Store(folder).write(
        record(compose({"method": "l0"}, {"schedule.lambda0": 1e-4}), {"grown": grown([9.0], 0.1, 0.1)})
    )
    rows = frame([folder])
    assert {*rows["train.matmul"]} == {"highest"}
    assert {*rows["train.warmup"]} == {0.0}
    assert (rows["method.limit"].notna() == (rows["method.name"] == "l0")).all()
    assert "train.matmul" not in overview.varied(rows)


def test_settings_that_follow_from_the_method_are_named_and_have_no_column(folder):
    for price in (1e-3, 1e-4):
        other = compose({"method": "l0"}, {"schedule.lambda0": price})
        Store(folder).write(record(other, {"grown": grown([9.0], 0.1, 0.1)}))
    rows = frame([folder])
    assert overview.telling(rows) == ["method.name", "schedule.lambda0"]
    assert {*overview.varied(rows)} == {*overview.telling(rows), *overview.implied(rows)}
    line, *more = overview.notes(rows, overview.telling(rows)).splitlines()
    assert line.startswith("without a column, as they follow from method.name: method.")
    assert "method.limit" in line
    mixed = overview.notes(rows, ["schedule.lambda0"])  # where methods share a line it would not hold
    assert "without a column" not in mixed
    assert not more


def test_refusals_say_what_was_meant(folder, tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"no record has 'schedule\.lamda0'\. Did you mean 'schedule\.lambda0'\?"):
        overview.grouped(frame([folder]), ["schedule.lamda0"], [])
    assert table.main([str(tmp_path / "nothing")]) == 2
    assert "there are no records in" in capsys.readouterr().err


def test_headings_that_do_not_fit_have_a_line_for_each_part(capsys):
    rows = [{"run": "first", "grown.t": 1.0, "b\x1b": 2}, {"run": "second", "grown.t": 10.0, "b\x1b": 20}]
    print_line(overview.table_of(rows, 99), overview.table_of(rows, 24))
    wide, narrow = "run     grown.t  b<U+001B>", "        grown.\nrun          t  b<U+001B>"
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [wide, "first         1          2", "second       10         20"]
    assert lines[3:5] == narrow.splitlines(), "plain in a pipe"


def test_two_settings_are_compared_seed_by_seed_if_both_have_the_same(folder, capsys):
    words = [str(folder), "--compare", "schedule.lambda0=0.0001", "schedule.lambda0=0.001", "--columns", "t"]
    assert table.main(words) == 0
    head, line, *more = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[1:] == ["schedule.lambda0=0.0001", "schedule.lambda0=0.001", "difference", "low", "high", "runs"]
    assert line == ["t", "11", "1", "10", "10", "10", "3", "pairs"]
    assert not more
    Store(folder).write(record(config(1e-3, 9), {"grown": grown([1.0], 0.1, 0.1)}))
    assert table.main(words) == 0
    numbers = capsys.readouterr().out.splitlines()[1].split()
    one, other = np.array([10.0, 11.0, 12.0]), np.array([0.0, 1.0, 2.0, 1.0])
    low, high = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert [float(number) for number in numbers[3:6]] == pytest.approx([10, low, high], rel=1e-3)
    assert numbers[6:] == ["3,", "4"]


def test_a_comparison_of_methods_takes_the_first_phase_of_each_and_names_what_else_differs(folder, capsys):
    for count in (3, 4):
        plain = compose({"method": "fixed"}, {"method.count": count})
        Store(folder).write(record(plain, {"fixed": fixed(count, 0.3)}))
    assert table.main([str(folder), "--compare", "method=ngn", "method=fixed"]) == 0
    _, *lines, first, second = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["count", "7", "3.5", "3.5"], ["truncated.mse", "0.1", "0.3", "-0.2"]
    ]  # fmt: skip
    assert (first, second) == (
        "runs of method=ngn in one line also differ in schedule.lambda0",
        "runs of method=fixed in one line also differ in method.count",
    )
    assert table.main([str(folder), "--compare", "method=ngn", "method=other"]) == 2
    assert "no record has method=other; in these records method.name is one of fixed, ngn" in capsys.readouterr().err


def test_the_baseline_row_beside_the_published_one(tmp_path, capsys):
    store = Store(tmp_path)
    for seed in range(9):
        samples.put(store, BASELINE, seed, {"grown": samples.grown([6.0 + seed % 2], 1e-5, 3e-5)}, clean=False)
    seeds = [{"count": 7, "recorded count": 7, "truncated MSE": 0.1, "recorded truncated MSE": 0.1}] * 10
    show(store, {}, range(10), seeds)
    text = capsys.readouterr().out
    said = "10 of 10 seeds equal the records; of 4 numbers, 1 agrees with the paper, 2 disagree, 1 has too wide a"
    assert text.startswith(f"{said} spread\n")
    show(store, {}, range(10), [*seeds[1:], seeds[0] | {"truncated MSE": 0.2}])
    assert capsys.readouterr().out.startswith("10 of 10 seeds have the count of the records; of 4 numbers")
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


def test_text_of_records_is_no_markup(tmp_path, capsys):
    store = Store(tmp_path)
    text = "[bold]x[/bold]"
    data = {"name": text, "sha256": "0" * 64, "provenance": "made"}
    samples.put(store, BASELINE, 0, {"grown": samples.grown([6.0], 1e-5, 1e-5)}, data=data)
    show(store, {}, [0])
    assert text in capsys.readouterr().out
