"""All pages of a stuck training as a phone and a desk show them, and the page of metrics."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browsers import Tab
from helpers.demo import demo
from helpers.each import for_each

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs, hosts and a browser start on a busy machine

DESK = {"width": 1440, "height": 900}
PAGES = {
    "now": "article canvas", "stacks": "article", "waits": "td", "stragglers": "td", "timeline": "canvas", "meshes": "td",
    "hosts": "td", "messages": "td", "metrics": "figure", "logs": ".line", "debugger": "main p", "actions": "td",
    "sql?q=SELECT+mesh,+rank,+pid,+state,+reason,+rss_bytes+FROM+procs": "td", "runs": "h2",
}  # fmt: skip
SMALL = """() => [...document.querySelectorAll("a, button, select, summary, label, textarea")]
  .map((each) => [each, each.getBoundingClientRect()])
  .filter(([each, {width, height, right}]) => width && right > 0 && (width < 43.5 || height < 43.5))
  .map(([each, {width, height}]) => `${each.outerHTML.slice(0, 80)} ${width}x${height}`)"""


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Tab]:
    with demo(16, "straggler") as program:
        context = browser.new_context(viewport=DESK)
        tab = Tab(context, program.url)
        tab.page.goto(program.link)
        tab.wait_for(".verdict.late")
        yield tab
        assert tab.complaints == [], tab.refused
        context.close()


def test_each_page_fits_a_phone_and_has_targets_for_a_finger(tab: Tab) -> None:
    page = tab.page
    page.set_viewport_size({"width": 390, "height": 844})
    for view, there in PAGES.items():
        page.get_by_role("button", name="Pages").click()
        page.locator(f"nav a[href^='#/{view.partition('?')[0]}']").click()
        if "?" in view:
            page.evaluate("(view) => (location.hash = `#/${view}`)", view)
        tab.wait_for(there)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, view
        assert page.evaluate(SMALL) == [], view
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            assert tab.violations() == [], view
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1440, "height": 900})


JUMPS = """() => new Promise((tell) => {
  let sum = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((each) => { sum += each.hadRecentInput ? 0 : each.value; }))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => tell(sum), 500);
})"""


LAST = {
    "now": "[aria-label='Load of hosts'] td.number", "stacks": "article", "waits": "td",
    "stragglers": "[aria-label='Steps of the slowest ranks'] td.number", "timeline": "h2:text('What happened')",
    "meshes": "td.number", "hosts": "[aria-label=Processes] td.number", "messages": "[aria-label='In the last minute'] td.number",
    "metrics": "h2 ~ .charts figure:has-text('Memory of GPUs') b", "logs": ".line", "debugger": "main p:text('Nobody')",
    "actions": "td.number", "sql": "main dd", "runs": "main h2 >> nth=1",
}  # fmt: skip
"""What comes last on a page."""


@pytest.mark.parametrize("view", PAGES)
@pytest.mark.parametrize("size", [{"width": 390, "height": 844}, DESK], ids=["phone", "desk"])
def test_nothing_jumps_when_answers_come(browser: Any, tab: Tab, view: str, size: Any) -> None:
    tab.page.set_viewport_size(size)
    tab.page.goto("about:blank")
    page = tab.open(view)
    tab.wait_for(LAST[view.partition("?")[0]])
    # what web.dev calls good
    assert page.evaluate(JUMPS) < 0.1
    page.set_viewport_size({"width": 1440, "height": 900})


@for_each("fault", ["none", "missing-collective"])
def test_the_first_verdict_moves_little_on_a_phone(browser: Any, fault: str) -> None:
    with demo(16, fault) as program:
        context = browser.new_context(viewport={"width": 390, "height": 844})
        tab = Tab(context, program.url)
        tab.page.goto(program.link)
        tab.wait_for("a.verdict")
        tab.wait_for(LAST["now"])
        assert tab.page.evaluate(JUMPS) < 0.1
        assert tab.complaints == [], tab.refused
        context.close()


def test_each_page_says_of_what_program_it_is_and_how_that_is(tab: Tab) -> None:
    for view in ("now", "hosts"):
        page = tab.open(view)
        tab.wait_for("header .light.late", "slow")
        facts = tab.wait_for("header .facts", "Slurm job").inner_text()
        assert re.fullmatch(
            r"process \d+ · head · 6\d min · \w+ · SlurmJob\({'trainers': 2}, Slurm job 9\)", facts
        )
        begins = "◷ slow · benchmarks.demo --fault straggler · "
        page.wait_for_function("begins => document.title.startsWith(begins)", arg=begins)
        assert page.locator("link[rel=icon]").get_attribute("href") == "assets/late.svg"
    groups = page.locator("nav [role=group]").all_inner_texts()
    assert [text.split()[0] for text in groups] == ["Now", "Find", "Look", "Do"]


def test_now_is_one_screen_with_what_to_do_next_and_the_map_beside(tab: Tab) -> None:
    page = tab.open("now")
    strip = " ".join(tab.wait_for(".strip", "steps/s").inner_text().split())
    assert re.match(
        r"step [\d,]+ of 40,000, \d+ % [\d.]+ steps/s, [\d.]+ s each [\d,]+ samples/s \d+ h left",
        strip,
    )
    assert "3 hosts load" in strip and "disk 59 %" in strip, strip
    assert re.search(r"raised: metrics\[0\] in log 3 times, last \d+ (s|min) ago$", strip), strip
    hosts = tab.wait_for("[aria-label='Load of hosts'] tbody", "head").inner_text()
    rows = [[cell.strip() for cell in row.split("\t")] for row in hosts.splitlines()]
    assert [row[0] for row in rows] == ["head", "trainers[0] on h0", "trainers[1] on h1"]
    assert all(
        re.fullmatch(r"\d+ %", figure) for row in rows for figure in (row[1], row[2], row[-1])
    )
    assert all(row[3].endswith("GiB/s") and row[4].endswith(" %") for row in rows[1:]), rows
    assert page.evaluate("document.documentElement.scrollHeight") == DESK["height"]
    blamed, ranks = (
        page.locator(each).bounding_box() for each in (".beside > div", "canvas >> nth=0")
    )
    assert blamed is not None and ranks is not None
    assert ranks["x"] >= blamed["x"] + blamed["width"] and ranks["y"] < DESK["height"] / 2
    page.get_by_role("link", name="step times").click()
    tab.wait_for("h1", "Stragglers")


def test_metrics_of_all_ranks_are_bands_that_can_be_chosen_and_saved(
    tab: Tab, tmp_path: Path
) -> None:
    page = tab.open("metrics")
    loss = page.get_by_role("img", name=re.compile(r"^loss, of 16 ranks, .*Last: smallest 2\.\d"))
    loss.wait_for()
    took = page.get_by_role("img", name=re.compile("^batch_time, ms, of 16 ranks")).get_attribute(
        "aria-label"
    )
    least, most = re.findall(r"(?:smallest|largest) (\d+,\d+)", took or "")
    assert (least, most) == ("1,250", "1,750")  # a straggler takes longer
    tab.picture("metrics")
    page.get_by_role("checkbox", name="batch_time").uncheck()
    page.wait_for_url(re.compile("hide=batch_time"))
    with page.expect_download() as download:
        page.get_by_role("button", name="save as CSV").click()
    path = tmp_path / "metrics.csv"
    download.value.save_as(path)
    head, *rows = csv.reader(path.read_text().splitlines())
    assert head == ["metric", "unit", "seconds since 1970", "smallest", "median", "largest"]
    assert {row[0] for row in rows} == {"loss", "step time", "tokens"}
    assert all(float(low) <= float(middle) <= float(high) for *_, low, middle, high in rows)
