"""The report's page in a real browser."""

import json
import re
import shutil

import explorer
import pytest

from experiments.core.paths import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
CELL = "datafourfullbody.baseline.t"
PATIENCE = 120_000
"""Milliseconds. Only a failing page needs as many."""


@pytest.fixture(scope="module")
def address(page_made, tmp_path_factory):
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(page_made[2])
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        started = tool.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS, timeout=PATIENCE)
        yield started
        started.close()


@pytest.fixture
def page(browser, address):
    """The page in its own window. It must log no error or warning, and request nothing else."""
    made = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    made.set_default_timeout(PATIENCE)
    faults = []
    made.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: faults.append(str(error)))
    made.on("request", lambda request: faults.append(request.url) if request.url.startswith("http") else None)
    made.goto(address)
    yield made
    assert faults == []
    assert made.evaluate("window.hurt") is None
    made.close()


def shown(page):
    """The visible cells."""
    script = "rows => rows.filter(row => row.checkVisibility()).map(row => row.dataset.cell)"
    return page.eval_on_selector_all("tr[data-cell]", script)


def paper(page):
    """The colour of the page's background."""
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_filter_selects_rows(page):
    ran = shown(page)
    assert 0 < len(ran) < 519, "tables without a run are closed"
    page.select_option("#filter-verdict", "disagrees")
    disagreeing = shown(page)
    assert 0 < len(disagreeing) < 519
    page.fill("#filter-text", "datafourbody.baseline")
    assert shown(page) == [name for name in disagreeing if name.startswith("datafourbody.baseline.")]
    page.click("#filters button[type=reset]")
    page.fill("#filter-text", "datafourbody.baseline.t")
    assert shown(page) == ["datafourbody.baseline.t", "datafourbody.baseline.truncated"]
    assert page.inner_text("#filter-status") == "2 of 519 rows shown"
    page.select_option("#filter-verdict", "not run")
    assert shown(page) == []
    page.click("#filters button[type=reset]")
    # waiting for a JavaScript expression would need eval, which the page forbids
    page.locator("#filter-status").filter(has_text=re.compile(r"^\s*519 rows\s*$")).wait_for()
    assert shown(page) == ran


def test_the_page_works_by_keyboard(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#answer') !== null"), "what follows the skip link"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is visible"
    order = page.evaluate("[...document.querySelectorAll('[tabindex]')].map(one => one.tabIndex)")
    assert set(order) <= {0, -1}, "focus follows the order of the text"


def test_colours_follow_the_choice_and_the_system(browser, page, address):
    light = paper(page)
    page.click("#theme")
    dark = paper(page)
    assert dark != light
    assert page.inner_text("#theme") == "Light colours"
    page.reload()
    assert paper(page) == dark, "the choice is kept"
    asked = browser.new_page(color_scheme="dark")
    asked.set_default_timeout(PATIENCE)
    asked.goto(address)
    assert paper(asked) == dark, "the system's setting is followed"
    asked.close()


def test_without_scripts_texts_and_tables_can_be_read(browser, address):
    page = browser.new_page(java_script_enabled=False)
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    assert page.locator("tr[data-cell]").count() == 519
    assert page.locator("#filters").is_hidden()
    page.locator(f"tbody:has(tr[data-cell='{CELL}']) summary").click()
    assert "mean of grown.t: (" in page.inner_text(f"tbody:has(tr[data-cell='{CELL}'])")
    assert page.locator("noscript").count() > 0


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_the_slider_moves_along_the_front_of_the_records(browser, tmp_path, width, scheme):
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{explorer.page()}")
    page, steps = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme), {}
    members = json.loads(explorer.TIMES.read_text())["front20"]["one training, teacher"]
    measured, times = [f"{sorted(member['times'])[1]:.2f}" for member in members], {}
    page.goto((tmp_path / "page.html").as_uri())
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text()
    trainings = page.locator("label:has([type=radio])").all_inner_texts()
    for number, training in enumerate(trainings):
        for pressed in ("ArrowDown" if number else "Tab", "Tab", "Home"):
            page.keyboard.press(pressed)
        while (budget := (training, page.inner_text("#budget-is"))) not in steps:
            steps[budget] = [float(text.split()[0]) for text in page.locator("td.count").all_inner_texts()]
            assert f"| {page.inner_text('#score').split(': ')[1]} |" in benchmarks
            times.setdefault(training, []).append(page.inner_text("#time"))
            page.keyboard.press("ArrowRight")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Shift+Tab")
    assert times[trainings[0]] == [f"Time of a batch: {time} of the whole model's" for time in measured]
    assert len(steps) == 6 * len(trainings) >= 12
    assert steps[trainings[0], "25 % of the multiply-adds"] < steps[trainings[0], "50 % of the multiply-adds"]
    assert steps[trainings[-1], "100 % of the parameters"] == [256, 4, 256, 4]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
