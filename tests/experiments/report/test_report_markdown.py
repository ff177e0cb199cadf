"""The documentation's pages that are made from the report, its settings, and the origin beside every value in conf/."""

import json
import re

import page_samples
import pytest
import yaml

from experiments.analysis.collect import Reader
from experiments.analysis.selection import Selection
from experiments.analysis.verdict import DISAGREES
from experiments.core.paths import CONF, ROOT
from experiments.methods import METHODS
from experiments.report import pages
from experiments.report.content import TEXTS, build_content, settings_of
from experiments.report.disagreements import reasons
from experiments.report.pages import methods
from experiments.store.records import Store
from experiments.studies import macros


def test_every_macro_stands_in_one_section():
    placed = [name for entry in TEXTS["sections"] for name in entry["macros"]]
    assert sorted(placed) == sorted(table.name for table in macros())


def test_our_own_tables_show_what_was_run_and_name_the_rest():
    for own in page_samples.own_report().own:
        assert bool(own.absent) == (len(own.rows) > len(own.ran))


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


def test_the_readme_counts_the_images_that_the_records_say_were_encoded_again():
    path = next((ROOT / "results" / "cifar10").glob("*.json"))
    provenance = json.loads(path.read_text())["data"]["provenance"]
    images = sum(int(number) for number in re.findall(r"(\d+) (?:training|test)", provenance))
    assert f"{images} of its 60,000 images" in (ROOT / "README.md").read_text()


def test_the_pages_of_no_records_say_so(tmp_path):
    report = build_content(Reader(Store(tmp_path)))
    made = {name: render(report) for name, render in pages.PAGES.items()}
    lines = made["results.md"].splitlines()
    assert [line for line in lines if line.startswith("| all |")] == ["| all |  |  |  |  | 519 | 519 |"]
    for table in macros():
        assert made["results.md"].count(f"- {table.title}:") == 1, table.title
    assert "| `inferred` | as the text says | -- | -- | -- |" in made["about_the_paper.md"]
    assert "**" not in made["about_the_paper.md"], "nothing is shown or inferred"
    assert "| `datafourfullbody.beta15.t` | -- | 2.05" in made["disagreements.md"]


@pytest.mark.slow
@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_is_that_of_the_records(name):
    page = (ROOT / "docs" / name).read_text()
    assert page == pages.PAGES[name](page_samples.own_report())
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert not [link for link in links if not (ROOT / "docs" / link.partition("#")[0]).exists()]


def test_every_method_of_the_papers_tables_has_a_source_and_its_cells(tmp_path):
    sources = {name: method.source for name, method in METHODS.items() if method.source is not None}
    rows = [row.runs for table in macros() for row in table.rows if row.runs is not None]
    assert {dict(runs.choices).get("method", "ngn") for runs in rows} - {"base"} <= sources.keys()
    report = build_content(Reader(Store(tmp_path)))
    cells = {name: counted for name, _, counted in methods(report)}
    assert cells.keys() == sources.keys()
    assert cells["awnn"] == {"not run": 2 * 4}, "four columns in each of tables 7 and 7-full"
    assert cells["ngn"]["not run"] > cells["awnn"]["not run"] > cells["fixed"]["not run"] == 0


MARK = re.compile(r"# (not from the )?paper(: .|;|$)")
GROUPS = ("task", "gate", "setting", "method")
"""The groups whose files hold scientific values."""


def keys(path):
    """``block.key`` of every value of a file → whether a comment behind it, above it or behind its block is a mark."""
    found = {}
    block, of_block, above = "", False, False
    for line in path.read_text().splitlines():
        marked = MARK.search(line) is not None
        if (entry := re.match(r"(  )?(\w+):( *[^ #].*)?", line)) is None:
            above = marked
            continue
        indent, key, value = entry.groups()
        if indent is None and value is None:
            block, of_block = f"{key}.", marked
        else:
            found[f"{block if indent else ''}{key}"] = marked or above or (indent is not None and of_block)
        above = False
    return found


def test_every_value_has_an_origin_beside_it_or_in_a_file_that_is_merged_before():
    shared = {key for key, marked in keys(CONF / "config.yaml").items() if marked}
    per_file = {path: keys(path) for group in GROUPS for path in (CONF / group).glob("*.yaml")}
    assert len(per_file) > 50
    bare = {
        f"{path.parent.name}/{path.name}: {key}"
        for path, found in per_file.items()
        for key, marked in found.items()
        if not marked
        and key not in shared
        and not any(other.get(key) for place, other in per_file.items() if place.parent != path.parent)
    }
    named = {name for name in bare if not re.search(r": (defaults|\w+\.(name|component))$", name)}
    assert not named, "write '# paper: where' or '# not from the paper: how' beside each"


def test_settings_are_the_composed_values_with_their_files():
    standard = {"task": "regression1d", "gate": "mlp"}
    price = Selection.of(standard, {"schedule.lambda0": 1e-6}, range(2))
    one, other = settings_of([Selection.of(standard), price, Selection.of({"task": "mnist", "gate": "conv"})])
    assert (one.task, one.gate, other.task, other.gate) == ("regression1d", "mlp", "mnist", "conv")
    values = yaml.safe_load(one.values)
    assert (values["gate.K"], values["schedule.lambda0"]) == (32, 1e-4), "those of the setting, not of a study"
    assert [path.name for path in other.files] == [
        "config.yaml", "mnist.yaml", "conv.yaml", "none.yaml", "mnist-conv.yaml", "ngn.yaml"
    ]  # fmt: skip
