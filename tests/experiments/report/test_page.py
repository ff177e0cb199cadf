"""What the report's page contains, and what it must not contain; and the pages of the documentation that it makes."""

import base64
import hashlib
import json
import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser

import page_samples
import pytest
import record_samples as samples
from markupsafe import escape
from page_samples import HOSTILE

from experiments.analysis.collect import Problem, Reader
from experiments.analysis.compare import verdict_counts
from experiments.analysis.reduce import Cell
from experiments.analysis.tables import DASH
from experiments.analysis.verdict import DISAGREES
from experiments.core.paths import ROOT
from experiments.methods import METHODS
from experiments.report import pages
from experiments.report.content import TEXTS, OwnContent, build_content, reasons
from experiments.report.pages import headline, methods, prose, render
from experiments.store.records import Store
from experiments.studies import OWN, macros
from experiments.studies.budgets import BUDGETS
from experiments.studies.commit import COMMITTED


class Elements(HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def named(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_every_cell_is_in_one_table_with_its_verdict(page_made):
    report, _, page = page_made
    rows = [row for row in Elements(page).named("tr") if "data-cell" in row]
    assert [row["data-cell"] for row in rows] == [item.name for item in report.items]
    assert Counter(row["data-verdict"] for row in rows) == report.counts
    assert len(rows) == 519


def test_a_row_counts_its_seeds_also_without_some_quantities(tmp_path):
    """Several boundaries of a run give one mean t. A quantity that a fixed model never has is no missing seed."""
    store = Store(tmp_path)
    several = {"grown": samples.grown([2.0, 4.0], 1e-3, 1e-3)}
    fixed = {"fixed": samples.fixed(4, 1.7, "bits_per_character")}
    for seed in range(3):
        samples.put(store, COMMITTED.runs["datanine_const-const"], seed, several)
    for seed in range(10):
        samples.put(store, BUDGETS.runs["stories_4_fixed"], seed, fixed)
    reader = Reader(store)
    page = render(build_content(reader), reader)
    rows = {
        row[0]: row[1:]
        for row in re.findall(r'<tr><th scope="row">([^<]*)</th><td class="right">(\d+/\d+)</td>(.*)', page)
    }
    assert rows["per-layer: const-λ, const-r"][0] == "3/10"
    assert "3.00 ± 0.00" in rows["per-layer: const-λ, const-r"][1]
    assert rows["TinyStories, fixed 4 + 4"][0] == "10/10"


def test_the_page_needs_no_other_file(page_made):
    report, _, page = page_made
    elements = Elements(page)
    pictures = [attributes["src"] for _, attributes in elements.found if "src" in attributes]
    assert pictures
    assert all(source.startswith("data:image/svg+xml;base64,") for source in pictures)
    assert [one["href"] for one in elements.named("link")] == ["data:,"]
    text = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "@import" not in text
    assert "url(" not in text
    outside = [one["href"] for one in elements.named("a") if not one["href"].startswith("#")]
    licences = {licence["url"] for licence in report.licences if licence["url"]}
    assert licences < set(outside)
    assert not [name for name in {*outside} - licences if not (ROOT / "paper" / name).exists()]


def test_a_row_has_the_numbers_of_its_runs_and_the_arithmetic(page_made):
    _, _, page = page_made
    (row,) = re.findall(r"<tbody data-row>(?:(?!</tbody>).)*datafourfullbody.baseline.t.*?</details>", page, re.S)
    text = " ".join(re.sub("<[^>]*>", " ", row).split())
    for seed in range(10):
        t, _ = samples.values(seed)
        assert f"{samples.baseline_id(seed)}.json (commit 0000000000): grown.t = {t:.10g}" in text
    assert re.search(r"mean of grown.t: \(.*?\) = 6 sd of grown.t: \(.*?\) = 1.414213562", text)
    assert "6.00 ± 1.41" in text


def test_records_that_do_not_count_are_named(page_made):
    left_out = page_made[2].split('id="records"')[1]
    assert "dirty: " in left_out
    assert re.search(r"damaged: results/regression1d/&lt;img[^<]*unreadable", left_out)


def test_text_of_records_is_never_markup(page_made):
    elements = Elements(page := page_made[2])
    assert all(picture["src"].startswith("data:") for picture in elements.named("img"))
    assert len(elements.named("script")) == 1
    assert str(escape(HOSTILE)) in page


def test_only_the_pages_own_script_may_run(page_made):
    _, _, page = page_made
    (policy,) = [m["content"] for m in Elements(page).named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(pages.script().encode()).digest()).decode()
    assert f"<script>{pages.script()}</script>" in page
    assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_differences_from_the_published_data_are_stated_at_every_use(page_made):
    _, _, page = page_made
    text = f"Data differ from the published files: regression1d, {escape(HOSTILE)}."
    (figure,) = re.findall(r'<figure id="figure1".*?</figure>', page, re.S)
    (table,) = re.findall(r"<details class=.cells.(?:(?!</details>).)*datafourbody.baseline.t.*?</details>", page, re.S)
    assert str(escape(HOSTILE)) in figure
    picture = base64.b64decode(re.findall(r'base64,(.*?)"', figure)[0]).decode()
    assert "<text" in picture
    assert "<img" not in picture
    assert text in table
    assert text in page.split('id="claims"')[0], "in the overview"


def test_the_answer_comes_first(page_made):
    report, _, page = page_made
    first = page.split("<main>")[1].split("</section>")[0]
    text = " ".join(unescape(re.sub("<[^>]*>", " ", first)).split())
    assert " ".join(headline(report)) in text
    for word, count in report.totals.facts.items():
        assert f"{word} {count}" in text
    for group in report.disagreements:
        for one in group["explanations"]:
            assert (str(prose(one["line"])) in first) == one["differs"] or not one["line"]
    order = [
        page.index(f'<section id="{name}"') for name in ("answer", "claims", "figures", "tables", "one_d", "settings")
    ]
    assert order == sorted(order)


def test_the_script_writes_the_page(page_made, tmp_path):
    from scripts.build_report import main

    _, reader, page = page_made
    assert main(["--results", str(reader.store.root), "--output", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text() == page


def test_the_documentation_refuses_records_of_uncommitted_code(tmp_path):
    from scripts.build_report import main

    with pytest.raises(SystemExit):
        main(["--dirty", "--docs", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_refused_records_of_our_own_rows_are_not_called_not_run():
    table = next(iter(OWN.values()))
    refused = Problem("dirty", "a run", "was made by uncommitted code")
    none = Cell((), {}, (refused,), None, DASH, 2)
    content = OwnContent(table, ((table.rows[0], (none,) * len(table.columns)),))
    assert content.absent == f"No usable record: {', '.join(table.rows[0].labels)}."


def test_every_macro_stands_in_one_section():
    placed = [name for entry in TEXTS["sections"] for name in entry["macros"]]
    assert sorted(placed) == sorted(table.name for table in macros())


def test_our_own_tables_show_what_was_run_and_name_the_rest():
    for own in page_samples.own_report().own:
        assert bool(own.absent) == (len(own.rows) > len(own.ran))


def test_the_readme_says_what_the_records_say():
    path = next((ROOT / "results" / "cifar10").glob("*.json"))
    provenance = json.loads(path.read_text())["data"]["provenance"]
    images = sum(int(number) for number in re.findall(r"(\d+) (?:training|test)", provenance))
    readme, results = ((ROOT / page).read_text() for page in ("README.md", "docs/results.md"))
    assert f"{images} of its 60,000 images" in readme
    assert re.search(r"^We ran .* again\. .*$", results, re.M)[0] in readme


def test_the_pages_of_no_records_say_so(tmp_path):
    report = build_content(Reader(Store(tmp_path)))
    made = {name: render(report) for name, render in pages.PAGES.items()}
    lines = made["results.md"].splitlines()
    assert [line for line in lines if line.startswith("| all |")] == ["| all |  |  |  | 519 | 519 |"]
    assert "| `inferred` | as the text says | -- | -- | -- |" in made["about_the_paper.md"]
    assert "**" not in made["about_the_paper.md"], "nothing is shown or inferred"
    assert "| `datafourfullbody.beta15.t` | -- | 2.05" in made["disagreements.md"]


@pytest.mark.slow
@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_is_that_of_the_records(name):
    page = (ROOT / "docs" / name).read_text()
    assert page == pages.PAGES[name](page_samples.own_report())


def test_every_method_of_the_papers_tables_has_a_source_and_its_cells(tmp_path):
    sources = {name: method.source for name, method in METHODS.items() if method.source is not None}
    rows = [row.runs for table in macros() for row in table.rows]
    assert {dict(runs.choices).get("method", "ngn") for runs in rows} - {"base"} <= sources.keys()
    report = build_content(Reader(Store(tmp_path)))
    cells = {name: verdict_counts(items) for name, _, items in methods(report)}
    assert cells.keys() == sources.keys()
    assert cells["awnn"] == {"not run": 2 * 4}, "four columns in each of tables 7 and 7-full"
    assert cells["ngn"]["not run"] > cells["awnn"]["not run"] > cells["fixed"]["not run"] == 0


def test_whatever_disagrees_stands_there_once_and_is_explained():
    report = page_samples.own_report()
    apart = {
        item.fact
        for item in report.items
        if item.verdict.word == DISAGREES or (item.row.seeds == 1 and any(not p.inside for p in item.verdict.parts))
    }
    shown = [item.fact for group in report.disagreements for item in group["cells"]]
    assert len(shown) == len({*shown})
    assert {*shown} == apart
    assert {claim.key for claim in report.claims if claim.word == DISAGREES} <= reasons(report.claims).keys()
