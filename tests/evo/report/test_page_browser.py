"""The report in a real browser: `pip install '.[browser]'`, a Chromium from the system, `pytest -m browser`."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from benchmarks.archive_scale import synthetic
from evo.archive import Archive
from evo.archive.lock import run_lock
from evo.cli.options import SHIPPED_ARCHIVES
from evo.report.page import page
from evo.watching import Server
from mutations.operator import Candidate, Plan
from tests.evo import archives
from tests.evo.report.test_page import EVIL

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    found = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium here (apt-get install chromium, or name one in BROWSER_PATH)")
    with api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def sound(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong."""
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    opened.on("dialog", lambda dialog: problems.append(dialog.message))
    yield opened
    opened.close()
    assert problems == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The small run, with a changed source and a stranger's text."""
    with Archive.memory() as archive:
        run = archives.fill(archive)
        child = Candidate(Plan(6, 3, 0, "splice", (5, 0)), archives.kernel("unrolled", BM=64), EVIL)
        archive.add_entries(run.id, [child])
        archive.add_outcome(run.id, 6, archives.timed("e", 8.0, 16.0))
        path = tmp_path / "report.html"
        path.write_text(page(archive, run), encoding="utf-8")
    return path


def test_click_on_a_candidate_shows_all_of_it(sound: Page, file: Path) -> None:
    sound.goto(file.as_uri())
    sound.get_by_role("link", name="#6", exact=True).click()
    detail = sound.locator("#detail")
    detail.get_by_text("Changed since #5").wait_for()
    text = detail.inner_text()
    assert EVIL in text
    assert "BM = 64, BN = 8" in text
    assert "2.00× baseline" in text
    assert '+ about  = "unrolled"' in detail.locator(".added").first.inner_text()
    detail.get_by_role("button", name="#5", exact=True).click()
    detail.get_by_text("confirmed at 2.83×").wait_for()
    assert sound.url.endswith("#candidate-5")


def test_click_in_the_drawing(sound: Page, file: Path) -> None:
    sound.goto(file.as_uri())
    canvas = sound.locator("#tree")
    canvas.focus()
    canvas.press("ArrowLeft")  # from the answer, #5, to its parent
    sound.locator("#detail h3", has_text="#2 tune").wait_for()
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": 30, "y": 20 + (box["height"] - 40) / 4})  # between its children at the first two places
    sound.locator("#detail h3", has_text="#0 seed").wait_for()
    canvas.hover()
    sound.mouse.wheel(0, -600)
    canvas.click(position={"x": box["width"] / 2, "y": box["height"] - 2})


def test_filters(sound: Page, file: Path) -> None:
    sound.goto(file.as_uri())
    matches, rows = sound.locator("#matches"), sound.locator("#candidates tbody tr:visible")
    assert matches.inner_text() == "7 of 7 candidates"
    sound.locator("#operator").select_option("tune")
    assert matches.inner_text() == "3 of 7 candidates"
    sound.get_by_label("Words", exact=True).fill("32 64")
    assert rows.count() == 1
    sound.get_by_label("Words", exact=True).fill("")
    sound.locator("#operator").select_option("")
    sound.locator("#verdict").select_option("CompileFailed")
    assert rows.all_inner_texts()[0].startswith("#3")
    sound.locator("#verdict").select_option("")
    sound.get_by_role("link", name="#2", exact=True).click()
    sound.get_by_label("only relatives").check()
    assert matches.inner_text() == "4 of 7 candidates"  # 1, 2, 5, 6


def test_the_table_sorts(sound: Page, file: Path) -> None:
    sound.goto(file.as_uri())
    head = sound.get_by_role("button", name="speedup", exact=True)
    head.click()
    head.click()
    assert sound.locator("#candidates tbody tr").first.inner_text().startswith("#5")
    assert sound.locator("#candidates th[aria-sort=descending]").inner_text() == "speedup"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(sound: Page, file: Path, scheme: Literal["light", "dark"]) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    sound.emulate_media(color_scheme=scheme)
    sound.goto(file.as_uri())
    sound.get_by_role("link", name="#3", exact=True).click()
    sound.locator("#detail h3").wait_for()
    found = axe.Axe().run(sound).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


def test_without_javascript(browser: Browser, file: Path) -> None:
    opened = browser.new_context(java_script_enabled=False).new_page()
    opened.goto(file.as_uri())
    assert opened.locator("#candidates tbody tr:visible").count() == 7
    assert opened.get_by_text("The drawing needs JavaScript").is_visible()
    assert not opened.locator("#explorer").is_visible()


def test_on_a_phone_nothing_sticks_out(browser: Browser, file: Path) -> None:
    opened = browser.new_page(viewport={"width": 390, "height": 800})
    opened.goto(file.as_uri())
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    assert len(opened.screenshot(full_page=True)) > 50_000


def test_five_thousand_candidates_load_in_two_seconds(sound: Page, tmp_path: Path) -> None:
    (run_id,) = synthetic(tmp_path / "a.db", 5000)
    with Archive.open(tmp_path / "a.db", readonly=True) as archive:
        run = archive.run(run_id)
        assert run is not None
        (tmp_path / "report.html").write_text(page(archive, run), encoding="utf-8")
    start = time.perf_counter()
    sound.goto((tmp_path / "report.html").as_uri())
    sound.locator("#matches", has_text="5000 of 5000").wait_for()
    assert time.perf_counter() - start < 2.0
    sound.get_by_label("Words", exact=True).fill("#4000")
    sound.locator("#matches", has_text="1 of 5000").wait_for()
    sound.locator("#candidate-4000 a").click()
    sound.locator("#detail h3", has_text="#4000").wait_for()


def test_tables_are_neither_cut_nor_squeezed(browser: Browser, tmp_path: Path) -> None:
    """Of the shipped run, whose limiters are sentences: none is cut at the right, none stands in a column of words."""
    with Archive.open(SHIPPED_ARCHIVES[1], readonly=True) as archive:
        (tmp_path / "report.html").write_text(page(archive, archive.runs("nm24")[0]), encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    opened.goto((tmp_path / "report.html").as_uri())
    boxes = opened.locator("section .scroll").evaluate_all(
        "boxes => boxes.map(box => [box.scrollWidth - box.clientWidth, box.getAttribute('aria-label')])"
    )
    assert [label for cut, label in boxes if cut > 0] == []
    rows = opened.locator("section .scroll:not(.tall) tbody tr").evaluate_all(
        "rows => rows.map(row => [row.offsetHeight, row.innerText])"
    )
    assert [text for height, text in rows if height > 160] == []
    opened.close()


def test_a_served_report_shows_what_comes_meanwhile(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run = archives.make(path)
    opened = browser.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    with run_lock(path, run.id):
        server = Server(path, run.id, 0)
        serving = threading.Thread(target=server.run, kwargs={"interval_s": 0.1, "grace_s": 0.0})
        serving.start()
        opened.goto(server.url)
        opened.locator("#matches", has_text="6 of 6").wait_for()
        with Archive.open(path) as archive:
            archive.add_entries(run.id, [Candidate(Plan(6, 3, 0, "tune", (5,)), archives.kernel("new"), "came later")])
            archive.add_outcome(run.id, 6, archives.timed("f", 4.0, 4.0))
        opened.locator("#matches", has_text="7 of 7").wait_for()
        assert opened.get_by_text("came later").first.is_visible()
    serving.join()
    opened.close()
    assert [problem for problem in problems if "favicon" not in problem and "404" not in problem] == []
