"""The report's page in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from page_samples import HOSTILE, HOSTILE_SEED, baseline_id

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FLAGS = (
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CELL = "datafourfullbody.baseline.t"
PATIENCE = 120_000
"""Milliseconds; only a fault reaches it."""


@pytest.fixture(scope="module")
def address(page_made: tuple[Any, Any, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(page_made[2])
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        started = tool.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS), timeout=PATIENCE)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page in a window of its own; nothing may be logged as an error and nothing else be asked for."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light")
    made = context.new_page()
    made.set_default_timeout(PATIENCE)
    faults: list[str] = []
    made.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: faults.append(str(error)))
    made.on("request", lambda request: faults.append(request.url) if request.url.startswith("http") else None)
    made.goto(address)
    yield made
    assert faults == []
    assert made.evaluate("window.hurt") is None
    context.close()


def shown(page: Any) -> list[str]:
    """The cells that one can see."""
    script = "rows => rows.filter(row => row.checkVisibility()).map(row => row.dataset.cell)"
    found: list[str] = page.eval_on_selector_all("tr[data-cell]", script)
    return found


def title(page: Any) -> str:
    """The heading of the open panel."""
    page.wait_for_selector("dialog[open]")
    return str(page.inner_text("#panel-title"))


def test_filters(page: Any) -> None:
    ran = shown(page)
    assert 0 < len(ran) < 519, "tables of which nothing was run are closed"
    page.click("#filters button[data-verdict='disagrees']")
    disagreeing = shown(page)
    assert 0 < len(disagreeing) < 519
    page.fill("#filter-text", "datafourbody.baseline")
    assert shown(page) == [name for name in disagreeing if name.startswith("datafourbody.baseline.")]
    page.click("#filters button[type=reset]")
    page.fill("#filter-text", "datafourbody.baseline.t")
    assert shown(page) == ["datafourbody.baseline.t", "datafourbody.baseline.truncated"]
    assert page.inner_text("#filter-status") == "2 of 519 cells shown"
    page.click("#filters button[type=reset]")
    assert shown(page) == ran
    page.click("#filters button[data-verdict='not run']")
    assert len(shown(page)) > 312, "a filter opens them"
    page.click("#filters button[type=reset]")
    page.select_option("#filter-section", "transfer")
    assert {name.split(".")[0] for name in shown(page)} == {"dataeightbody", "dataeightfullbody"}
    page.fill("#filter-text", "nothing has this text")
    assert shown(page) == []
    page.click("#filter-none button")
    assert shown(page) == ran
    assert not page.is_visible("#filter-none")


def test_a_count_of_the_overview_leads_to_its_cells(page: Any) -> None:
    button = page.locator(".matrix button[data-of='transfer']").first
    count = int(button.inner_text())
    button.click()
    assert len(shown(page)) == count
    assert page.input_value("#filter-section") == "transfer"


def test_a_cell_leads_to_its_records_and_back(page: Any) -> None:
    page.click(f"tr[data-cell='{CELL}'] td:nth-child(2)")
    assert title(page) == "baseline: t"
    text = page.inner_text("#panel-body")
    assert "mean of grown.t: (4, 5, 6, 7, 8, 4, 5, 6, 7, 8) = 6" in text
    assert "0000000000" in text, "the commit"
    page.click(f"#panel-body a:text-is('{baseline_id(1)}')")
    page.wait_for_selector(f"#panel-title:text-is('{baseline_id(1)}')")
    assert page.locator("#panel-body .plot").count() == 2, "losses and t"
    assert f"results/regression1d/{baseline_id(1)}.json" in page.inner_text("#panel-body")
    page.click("#panel-back")
    page.wait_for_selector("#panel-title:text-is('baseline: t')")
    page.click("#panel-close")
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert "#" not in page.url


def test_a_point_leads_to_its_record(page: Any) -> None:
    plot = page.locator("#figure1 .plot").last
    plot.scroll_into_view_if_needed()
    canvas = plot.locator("svg[role=application]")
    canvas.focus()
    canvas.press("ArrowRight")
    named = plot.locator(".tip").inner_text()
    assert "record regression1d-mlp-ngn-s" in named
    place = plot.locator(".ring").bounding_box()
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    assert title(page) in named


def test_zoom_and_its_reset(page: Any) -> None:
    plot = page.locator("#figure1 .plot").first
    plot.scroll_into_view_if_needed()
    canvas = plot.locator("svg[role=application]")
    ticks = "svg => [...svg.querySelectorAll('text')].map(one => one.textContent).join(' ')"
    before = canvas.evaluate(ticks)
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"], steps=3)
    page.mouse.up()
    assert canvas.evaluate(ticks) != before
    assert page.locator("dialog[open]").count() == 0, "a dragged box opens nothing"
    plot.get_by_text("reset").click()
    assert canvas.evaluate(ticks) == before


def test_by_keyboard_alone(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    link = f"tr[data-cell='{CELL}'] a"
    page.focus(link)
    assert page.eval_on_selector(link, "link => getComputedStyle(link).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert title(page) == "baseline: t"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href') ?? ''").startswith("#run/"):
            break
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel-kind:text-is('record')")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert page.evaluate(f"document.activeElement === document.querySelector(`{link}`)"), "the focus is where it was"


def test_a_plot_by_keyboard(page: Any) -> None:
    canvas = page.locator("#figure1 .plot").last.locator("svg[role=application]")
    canvas.focus()
    canvas.press("ArrowRight")
    canvas.press("ArrowRight")
    canvas.press("Enter")
    assert title(page).startswith("regression1d-mlp-ngn-s")


@pytest.mark.parametrize("kind", ["dots", "dots mean"])
def test_marks_of_every_look_can_be_seen(page: Any, kind: str) -> None:
    """A cross is nothing but strokes, so that it must not have the outline of the others."""
    colours = page.evaluate(
        """(kind) => {
          const svg = document.body.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
          return [0, 1, 2, 3, 4, 5].map((look) => {
            const path = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "path"));
            path.setAttribute("class", `${kind} look${look}`);
            const { fill, stroke } = getComputedStyle(path);
            return look === 3 ? stroke : fill;
          }).concat(getComputedStyle(document.body).backgroundColor);
        }""",
        kind,
    )
    *marks, paper = colours
    assert paper not in marks
    assert len(set(marks)) == 6


def test_light_and_dark(browser: Any, page: Any, address: str) -> None:
    def paper(of: Any) -> str:
        return str(of.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = paper(page)
    page.click("#theme")
    dark = paper(page)
    assert dark != light
    assert page.inner_text("#theme") == "Light colours"
    page.reload()
    assert paper(page) == dark, "the choice is kept"
    context = browser.new_context(color_scheme="dark")
    asked = context.new_page()
    asked.goto(address)
    assert paper(asked) == dark, "the system's wish is followed"
    context.close()


def test_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == 360
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate(wide) == 360
    scrolls = "all => all.some(one => one.scrollWidth > one.clientWidth && getComputedStyle(one).overflowX === 'auto')"
    assert page.eval_on_selector_all(".scroll", scrolls)
    page.evaluate(f"location.hash = 'cell/{CELL}'")
    assert title(page) == "baseline: t"
    fits = "panel => panel.scrollWidth <= panel.clientWidth && panel.clientWidth <= 360"
    assert page.eval_on_selector("dialog", fits)


def test_hostile_text_is_only_text(page: Any, address: str) -> None:
    page.goto(f"{address}#run/{baseline_id(HOSTILE_SEED)}")
    assert title(page) == baseline_id(HOSTILE_SEED)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert HOSTILE in page.inner_text("#panel-body")
    page.goto(f"{address}#run/<img src=x onerror='window.hurt = 3'>")
    assert title(page) == "Not on this page"
    assert page.locator("img").count() == 0


def test_the_list_of_records(page: Any) -> None:
    page.fill("#records-text", "seed-less text")
    assert page.inner_text("#records-status") == "0 of 0 records listed"
    page.fill("#records-text", "dirty")
    assert page.inner_text("#records-status") == "1 of 1 records listed"
    page.fill("#records-text", "mnist")
    assert page.inner_text("#records-status") == "5 of 5 records listed"
    page.click("#records-body a >> nth=0")
    assert title(page).startswith("mnist-mlp-ngn-s0-")


def test_without_scripts_the_tables_can_be_read(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("tr[data-cell]").count() == 519
    assert page.locator("#filters").is_hidden()
    context.close()
