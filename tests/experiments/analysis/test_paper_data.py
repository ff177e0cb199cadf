"""From records to ``data_generated.tex``: printed numbers, dashes and refusals."""

# ruff: noqa: F401, F811 (fixtures are imported, and then named as arguments)

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import record_samples as samples
from table_samples import build, cell, filled, store

from experiments.analysis import published
from experiments.analysis.build import comment, explain, find, reduce_all
from experiments.analysis.collect import Reader, unofficial_parts
from experiments.analysis.reduce import reduce_cell
from experiments.core.paths import ROOT
from experiments.store.records import Store
from experiments.studies import macro, macros
from experiments.studies.one_d import BASELINE
from experiments.studies.vision import EIGHT, EIGHT_FULL
from scripts import build_figures, build_paper_data, build_report
from scripts.build_paper_data import main

# what is printed


@pytest.mark.parametrize(
    ("outcomes", "word", "counts"),
    [
        (["yes"] * 10, "yes", "10/0/0"),
        (["no"] * 10, "no", "0/0/10"),
        (["partial"] * 10, "partial", "0/10/0"),
        (["yes"] * 9 + ["no"], "partial", "9/0/1"),
    ],
)
def test_the_row_has_an_outcome_only_if_every_seed_has_it(tmp_path, outcomes, word, counts):
    store, row = Store(tmp_path), EIGHT.row("mnist-mlp")
    for seed, outcome in enumerate(outcomes):
        phases = {"grown": samples.grown([8.0], 97, 97, "accuracy"), "from_high": samples.from_high(8.0, outcome)}
        samples.put(store, row.runs, seed, phases)
    assert reduce_cell(Reader(store), EIGHT, row, "prunes_back").printed == word
    assert f"Y/P/N={counts})" in reduce_cell(Reader(store), EIGHT_FULL, row, "prunes_back").printed


def test_every_row_that_has_runs_is_printed(store):
    printed = {name for name, one in reduce_all(Reader(store), macros()).items() if one.complete}
    sourced = [(t, r, c) for t in macros() for r in t.rows for c in t.columns if c.key not in r.dashes]
    assert printed == {f"{t.name}.{r.key}.{c.key}" for t, r, c in sourced}


def test_data_that_are_not_the_published_files_are_named_above_the_macros_that_they_enter(store):
    assert "data differ" not in build(store)[1]
    how = "mirror: 3 images decoded from JPEG"
    (store.root / "other").mkdir()
    mirror = {"name": "regression1d", "sha256": "0" * 64, "provenance": how}
    other = Store(store.root / "other")
    for seed in range(10):
        samples.put_grown(other, BASELINE, seed, 6.0, 1e-5, data=mirror)
    lines = build(other)[1].splitlines()
    noted = [after for line, after in itertools.pairwise(lines) if line.endswith(f"regression1d, {how}")]
    assert any(line.startswith(r"\newcommand{\stdT}") for line in noted)
    assert all(line.startswith(r"\newcommand") for line in noted)
    assert len(noted) < 22


@pytest.mark.parametrize(
    ("provenance", "published"),
    [
        ("official files, digests checked", True),
        ("official files, unpacked from cifar-10-binary.tar.gz (md5:c32a1d4ab5d03f1284b67883e8d87530)", True),
        ("official files, digests checked; XQuAD (English), 80/20 by paragraph, in place of SQuAD", False),
        ("official files, digests checked | forgetting on wikitext2: test part of WikiText-2", False),
        ("a slice of the corpus: 3.5 MB for training, 0.8 MB for validation", False),
    ],
)
def test_data_are_the_published_ones_only_where_nothing_else_is_among_them(provenance, published):
    assert (unofficial_parts(provenance) == []) is published


def test_no_text_of_a_record_reaches_the_macros(tmp_path):
    hostile = "\\end{document}\\input{/etc/passwd}"
    store = Store(tmp_path / "results")
    data = {"name": hostile, "sha256": "0" * 64, "provenance": hostile}
    for seed in range(10):
        samples.put(
            store, BASELINE, seed, {"grown": samples.grown([6.0], 1e-5, 1e-5)}, packages={hostile: ""}, data=data
        )
    text = build(store)[1]
    assert all(line.startswith("% data differ") for line in text.splitlines() if "passwd" in line)
    for end in "\n\r\x0b\x0c\x85\u2028\u2029\x1b":
        assert comment(f"data{end}\\input") == "% data \\input", "a note stays in its line whatever it holds"


# what is a dash


def test_without_records_every_number_is_a_dash_and_every_label_stands(tmp_path):
    status, text = build(Store(tmp_path))
    assert status == 0
    assert text.count(r"\newcommand") == 22
    assert r"\newcommand{\stdT}{--}" in text
    for table in macros():
        for row in table.rows:
            if not table.inline:
                assert " & ".join([*row.labels, *["--"] * len(table.columns)]) + r" \\" in text


def test_a_stand_in_never_enters_the_file(tmp_path):
    store, row = Store(tmp_path / "results"), EIGHT.row("cifar10-conv")
    (stand_in,) = row.stand_ins
    shorter = row.runs.with_overrides(stand_in.overrides)
    assert shorter.config(0).train.epochs == 3
    for seed in range(10):
        samples.put(store, shorter, seed, {"grown": samples.grown([7.0], 70.0, 70.0, "accuracy")})
    assert reduce_cell(Reader(store), EIGHT, row, "t", shorter).complete
    assert r"CIFAR-10 & conv branches & -- & -- & -- & -- & -- & -- \\" in build(store)[1]


def test_a_diverged_seed_makes_the_cell_a_dash(store):
    samples.put(store, BASELINE, 3, {"grown": samples.diverged(17)})
    found = cell(store, "datafourbody.baseline.soft")
    assert found.printed == "--"
    assert [p.kind for p in found.problems] == ["diverged"]
    assert "step 17" in str(found.problems[0])


# the script


@pytest.mark.parametrize("script", [build_paper_data, build_figures, build_report])
def test_a_misspelt_folder_of_records_is_refused(script, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        script.main(["--results", str(tmp_path / "rnus")])
    assert ended.value.code == 2
    assert "rnus: no such folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nor is rnus-paper made"


def test_strict_lists_what_is_missing_and_writes_nothing(store, capsys):
    store.path(samples.baseline_id(7)).unlink()
    status, text = build(store, "--strict")
    assert (status, text) == (1, "")
    listed = capsys.readouterr().err
    assert f"missing: {samples.baseline_id(7)}: not run [" in listed
    assert f"missing: {samples.baseline_id(6)}" not in listed


def test_explain_shows_records_and_arithmetic(store, capsys):
    assert main(["--results", str(store.root), "--explain", "datafourbody.baseline.t"]) == 0
    text = capsys.readouterr().out
    assert f"regression1d/{samples.baseline_id(2)}.json (commit 0000000000): grown.t = 6" in text
    assert "median of grown.t: (4, 5, 6, 7, 8, 4, 5, 6, 7, 8) = 6" in text
    assert "printed: 6.00" in text
    assert "no digest" not in text
    older = store.path(samples.baseline_id(2))
    told = json.loads(older.read_text())
    older.write_text(json.dumps({key: value for key, value in told.items() if key != "sha256"}))
    assert "no digest, so a change would not show: 1 of 10" in explain(
        Reader(store), *find("datafourbody.baseline.t", macro)[0]
    )
    store.path(samples.baseline_id(7)).unlink()
    text = explain(Reader(store), *find("datafourbody.baseline.t", macro)[0])
    assert f"missing: {samples.baseline_id(7)}" in text
    assert "printed: --" in text
    assert "a dash by design" in explain(Reader(store), *find("datasevenbody.ngn.fixed", macro)[0])


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "stdT"), ("datafourbody.x", "beta15"), ("datafourbody.beta4.x", "truncated"), ("a.b.c.d", "three")],
)
def test_a_wrong_name_lists_the_right_ones(capsys, name, message):
    assert main(["--explain", name]) == 2
    assert message in capsys.readouterr().err


def test_tables_need_neither_torch_nor_hydra_nor_matplotlib_and_our_file_no_published_value(store):
    code = (
        "import sys; from scripts.build_paper_data import main; "
        f"assert main({['--results', str(store.root), '--output', str(store.root / 'x.tex')]!r}) == 0; "
        "assert 'experiments.analysis.published' not in sys.modules; "
        f"assert main({['--results', str(store.root), '--table', 'cora']!r}) == 0; "
        "assert not {'torch', 'hydra', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_other_records_leave_the_papers_file_alone(store, capsys):
    before = (ROOT / "paper" / "data_generated.tex").read_bytes()
    assert main(["--results", str(store.root)]) == 0
    beside = store.root.with_name(f"{store.root.name}-paper") / "data_generated.tex"
    assert beside.read_text() == build(store)[1]
    assert str(beside) in capsys.readouterr().out
    assert (ROOT / "paper" / "data_generated.tex").read_bytes() == before
