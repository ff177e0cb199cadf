"""The report's page: what stands in it, and what must not."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import record_samples as samples
from markupsafe import escape
from page_samples import HOSTILE, HOSTILE_SEED, baseline_id, data_of

from experiments.analysis.collect import Reader
from experiments.config.identity import flatten, run_id
from experiments.config.schema import Seed
from experiments.page import render
from experiments.page.runs import CURVE_BYTES, CURVE_POINTS, RunTable, compact, rounded, thinned
from experiments.paths import ROOT
from experiments.report.content import Report, build
from experiments.store.records import Store
from experiments.tables.budgets import BUDGETS
from experiments.tables.commit import COMMITTED
from experiments.tables.one_d import BASELINE

Made = tuple[Report, Reader, str]


class Elements(HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_every_cell_stands_in_a_table_once_with_its_verdict(page_made: Made) -> None:
    report, _, page = page_made
    rows = [row for row in Elements(page).named("tr") if "data-cell" in row]
    assert [row["data-cell"] for row in rows] == [item.name for item in report.items]
    assert Counter(row["data-verdict"] for row in rows) == report.counts
    assert len(rows) == 519


def test_a_row_counts_its_seeds_whatever_it_has_no_numbers_of(tmp_path: Path) -> None:
    """Several boundaries in a run are one mean t; what a fixed model has no number of by design is no missing seed."""
    store = Store(tmp_path)
    several = {"grown": samples.grown([2.0, 4.0], 1e-3, 1e-3)}
    fixed = {"fixed": samples.fixed(4, 1.7, "bits_per_character")}
    for seed in range(3):
        samples.put(store, COMMITTED.runs["datanine_const-const"], seed, several)
    for seed in range(10):
        samples.put(store, BUDGETS.runs["stories_4_fixed"], seed, fixed)
    reader = Reader(store)
    page = render(build(reader), reader)
    rows = {
        row[0]: row[1:]
        for row in re.findall(r'<tr><th scope="row">([^<]*)</th><td class="right">(\d+/\d+)</td>(.*)', page)
    }
    assert rows["per-layer: const-λ, const-r"][0] == "3/10"
    assert "3.00 ± 0.00" in rows["per-layer: const-λ, const-r"][1]
    assert rows["TinyStories, fixed 4 + 4"][0] == "10/10"


def test_it_needs_no_other_file(page_made: Made) -> None:
    _, _, page = page_made
    elements = Elements(page)
    assert not [tag for tag, attributes in elements.found if "src" in attributes]
    assert [one["href"] for one in elements.named("link")] == ["data:,"]
    assert "@import" not in page
    assert "url(" not in page
    outside = [one["href"] for one in elements.named("a") if not one["href"].startswith("#")]
    report = page_made[0]
    licences = {licence["url"] for licence in report.licences if licence["url"]}
    assert licences < set(outside)
    beside = set(outside) - licences
    assert not [name for name in beside if not (ROOT / "paper" / name).exists()]


def test_equal_records_give_an_equal_page(page_made: Made) -> None:
    report, reader, page = page_made
    assert render(report, reader) == page


def test_a_cell_has_the_numbers_of_its_records(page_made: Made) -> None:
    data = data_of(page_made[2])
    cell = data["cells"]["datafourfullbody.baseline.t"]
    runs = [data["runs"][at] for at in cell["runs"]]
    assert [run["id"] for run in runs] == [baseline_id(seed) for seed in range(10)]
    ((quantity, (numbers,)),) = cell["samples"]
    assert numbers == pytest.approx([run["phases"]["grown"]["t"][0] for run in runs])
    assert [(step[0], step[1], step[-1]) for step in cell["arithmetic"]] == [
        ("mean", quantity, pytest.approx(np.mean(numbers))),
        ("sd", quantity, pytest.approx(np.std(numbers))),
    ]
    assert cell["ours"] == "6.00 ± 1.41"
    assert data["about"][runs[0]["code"]]["commit"] == "0" * 40


def test_configurations_are_whole_though_stored_once(page_made: Made) -> None:
    _, reader, page = page_made
    data = data_of(page)
    for run in data["runs"]:
        whole = {**data["bases"][run["base"]], **run["change"], "seed.value": run["seed"]}
        for key in run.get("gone", ()):
            del whole[key]
        record = reader.store.get(run["id"])
        assert record is not None
        assert whole == flatten(record["config"])


def test_records_that_do_not_count_are_named(page_made: Made) -> None:
    _, _, page = page_made
    (dirty,) = [run for run in data_of(page)["runs"] if "fault" in run]
    assert dirty["fault"].startswith("dirty: ")
    assert f'href="#run/{dirty["id"]}"' in page
    assert re.search(r"damaged: results/regression1d/&lt;img[^<]*unreadable", page)


def test_text_of_records_is_never_markup(page_made: Made) -> None:
    _, _, page = page_made
    elements = Elements(page)
    assert not elements.named("img")
    assert len(elements.named("script")) == 2
    data = data_of(page)
    (run,) = [run for run in data["runs"] if run["id"] == baseline_id(HOSTILE_SEED)]
    assert data["about"][run["data"]]["provenance"] == HOSTILE
    assert data["about"][run["packages"]] == {HOSTILE: HOSTILE}


def test_only_the_pages_own_script_may_run(page_made: Made) -> None:
    _, _, page = page_made
    (policy,) = [m["content"] for m in Elements(page).named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    code = page.rsplit("<script>", 1)[1].rsplit("</script>", 1)[0]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_what_differs_from_the_published_data_stands_at_every_use(page_made: Made) -> None:
    _, _, page = page_made
    text = f"Data differ from the published files: regression1d, {escape(HOSTILE)}."
    (figure,) = re.findall(r'<figure id="figure1".*?</figure>', page, re.S)
    (table,) = re.findall(r"<details class=.cells.(?:(?!</details>).)*datafourbody.baseline.t.*?</details>", page, re.S)
    assert str(escape(HOSTILE)) in figure
    assert text in table
    assert text in page.split('id="claims"')[0], "in the overview"


def test_points_of_figures_name_records(page_made: Made) -> None:
    data = data_of(page_made[2])
    figures = {figure["name"]: figure for figure in data["figures"]}
    curves = [one for panel in figures["figure1"]["panels"] for one in panel["series"] if "run" in one]
    assert {data["runs"][one["run"]]["id"] for one in curves} == {baseline_id(seed) for seed in range(3)}
    dots = [one for panel in figures["figure1"]["panels"] for one in panel["series"] if one["mark"] == "dots"]
    named = {data["runs"][at]["id"] for one in dots for runs in one["runs"] for at in runs}
    assert named == {baseline_id(seed) for seed in range(10)}


# size


def test_curves_are_thinned_to_their_ends(page_made: Made) -> None:
    assert list(thinned(3)) == [0, 1, 2]
    kept = thinned(300)
    assert (kept[0], kept[-1], len(kept)) == (0, 299, CURVE_POINTS)
    assert rounded([1.23456, 2.0, float("nan"), float("inf")]) == [1.235, 2, None, None]
    data = data_of(page_made[2])
    run = next(run for run in data["runs"] if run["id"] == baseline_id(1))
    (course,) = run["courses"]
    steps = data["steps"][course["steps"]]
    assert (course["phase"], course["of"], len(steps)) == ("grown", 200, CURVE_POINTS)
    assert course["lines"]["t"] == rounded(np.float64(samples.curves(200)["grown.t"][steps, 0]))


def test_curves_end_where_their_room_does(page_made: Made) -> None:
    _, reader, _ = page_made
    table = RunTable(reader)
    order = [table.at(baseline_id(seed)) for seed in (2, 1)]
    assert table.add_curves(order) == (3, 3)
    one = len(compact(table.runs[table.at(baseline_id(0))]["courses"]))
    table = RunTable(reader)
    assert table.add_curves(order, int(2.5 * one)) == (2, 3)
    with_curves = {run["id"] for run in table.runs if "courses" in run}
    assert with_curves == {baseline_id(1), baseline_id(2)}, "what stands behind a table comes first"


@pytest.mark.slow
def test_five_thousand_records_leave_room(tmp_path: Path) -> None:
    """Their block, the room of the curves, and what the page of ten records has already stay below 10 MiB."""
    config = BASELINE.config(0)
    (tmp_path / "regression1d").mkdir()
    phase = {**samples.grown([4.999987654], 1.23456789e-5, 1.23456789e-5), "norms": list(np.linspace(0.123456, 1, 28))}
    for seed in range(5000):
        other = config.model_copy(update={"seed": Seed(value=seed)})
        made = samples.record(other, {"grown": phase})
        (tmp_path / "regression1d" / f"{run_id(other)}.json").write_text(compact(made))
    table = RunTable(Reader(Store(tmp_path)))
    size = len(compact(table.payload()))
    assert len(table.runs) == 5000
    assert size + CURVE_BYTES < 8 * 2**20


def test_the_script_writes_the_page(page_made: Made, tmp_path: Path) -> None:
    from scripts.build_report import main

    _, reader, page = page_made
    (tmp_path / "data_generated.tex").touch()
    assert main(["--results", str(reader.store.root), "--output", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text() == page
