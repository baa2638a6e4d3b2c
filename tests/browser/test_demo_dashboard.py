"""From the printed link of `benchmarks.demo` to the command of the debugger, with no docs open: in a
real browser.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from helpers.browsers import Tab
from helpers.demo import Demo, demo
from helpers.effort import part_of
from helpers.perfetto_traces import shown_by

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs, hosts and a browser start on a busy machine

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


PAGES = {
    "stacks": ("article", "train"),
    "waits": ("td", "train"),
    "logs": (".line", ""),
    "stragglers": ("td", "trainers"),
    "meshes": ("td", "trainers"),
    "hosts": ("td", "trainers[0] on h0"),
    "messages": ("td", "trainer"),
    "metrics": ("figure", "loss"),
    "sql?q=SELECT+mesh,+count(*)+AS+ranks+FROM+procs+GROUP+BY+mesh": ("td", "trainers"),
    "debugger": ("main p", "Nobody has stopped"),
    "actions": ("td", "trainers"),
    "runs": ("h2", "Programs that run on this machine"),
}
"""Of each page but Now and Timeline what says that its content is there."""


def page_is_shown(tab: Tab, view: str) -> Any:
    page = tab.open(view)
    tab.wait_for(*PAGES[view])
    return page


@pytest.fixture(scope="module")
def seen(browser: Any) -> Iterator[tuple[Demo, Tab]]:
    """A stuck training of 1,000 ranks, and a browser that was let in."""
    with demo(1000, "missing-collective") as program:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=program.url)
        tab = Tab(context, program.url)
        tab.page.goto(program.link)
        tab.wait_for(".verdict")
        yield program, tab
        context.close()


@pytest.fixture
def tab(seen: tuple[Demo, Tab]) -> Iterator[Tab]:
    seen[1].complaints.clear()
    seen[1].refused.clear()
    yield seen[1]
    assert seen[1].complaints == [], seen[1].refused


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_from_the_verdict_to_the_odd_ranks_stack_logs_and_debugger(tab: Tab, by: str) -> None:
    def choose(what: str, name: str) -> None:
        found = tab.wait_for("article.odd").get_by_role(what, name=name)
        found.click() if by == "mouse" else found.press("Enter")

    page = tab.open("now")
    verdict = tab.wait_for(".verdict.bad", "999 ranks of trainers in all_reduce")
    assert re.search(
        r"trainers\[417\] \(host trainers\[52\] on h52, gpu 1.* in recv_into \(data\.py:31\)",
        verdict.inner_text(),
    )
    tab.wait_for(".strip", "disk")
    hosts = tab.wait_for("[aria-label='Load of hosts'] tbody", "highest")
    assert [row.split()[0] for row in hosts.inner_text().splitlines()] == [
        "highest",
        "median",
        "lowest",
    ]
    tab.picture("now")
    verdict.click() if by == "mouse" else verdict.press("Enter")
    stack = tab.wait_for("article.odd", "trainers[417]").inner_text()
    assert "read_shard" in stack and "run/data.py:31" in stack and "all_reduce" not in stack
    choose("button", "copy")
    tab.wait_for("article.odd").get_by_role("button", name="copied").wait_for()
    tab.picture("stacks")
    command = page.evaluate("() => navigator.clipboard.readText()")
    assert re.fullmatch(r"monarch debug \d+ interrupt trainer 417", command)
    choose("link", "logs around then")
    tab.wait_for("h1", "Logs")
    tab.wait_for(".line", "accepted, and has sent no bytes yet")
    tab.wait_for(".line", "no bytes for 5 s, connecting again")


@pytest.mark.parametrize("view", PAGES)
def test_a_page_of_a_thousand_ranks_complains_of_nothing_and_is_for_everybody(
    tab: Tab, view: str
) -> None:
    page = page_is_shown(tab, view)
    if view not in ("stacks", "runs", "metrics"):  # of these others are taken
        tab.picture(view.partition("?")[0])
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        assert tab.violations() == []
    page.emulate_media(color_scheme="light")


@pytest.mark.parametrize(
    ("by", "said"), [("GPU busy", r"GPU busy\s*100 %"), ("step time", r"step time\s*1\.\d s")]
)
def test_colours_of_figures_that_are_asked_for_are_read_as_well(
    tab: Tab, by: str, said: str
) -> None:
    page = tab.open("now")
    tab.wait_for(".verdict.bad")
    page.get_by_label("colour by").select_option(label=by)
    page.wait_for_url(re.compile("by="))
    ranks = page.get_by_role("slider", name="Ranks of trainers")
    ranks.press("End")
    tab.wait_for("dl", re.compile(said))
    assert re.search(said, ranks.get_attribute("aria-valuetext") or "")
    assert tab.violations() == []


def says(tab: Tab, text: str) -> Any:
    """The canvas of the timeline, as soon as a screen reader reads this of the chosen track."""
    tab.page.locator(f"canvas[aria-label=Tracks][aria-valuetext*='{text}']").wait_for()
    return tab.page.locator("canvas[aria-label=Tracks]")


def test_a_thousand_ranks_are_bands_of_hosts_that_keys_unfold(tab: Tab) -> None:
    page = tab.open("timeline?span=120")
    tracks = says(tab, "trainers[0-7], host trainers[0] on h0")
    # a band for each host of the largest mesh
    assert 124 < int(tracks.get_attribute("aria-valuemax") or "0") < 160
    tab.wait_for("main", "ten times as long; the longest")
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        assert tab.violations() == []
    page.emulate_media(color_scheme="light")
    tab.picture("timeline")
    for _ in range(52):
        tracks.press("ArrowDown")
    says(tab, "trainers[416-423], host trainers[52] on h52").press("Enter")
    page.wait_for_url(re.compile("hosts=52-52"))
    says(tab, "trainers[416]: step")
    tracks.press("ArrowDown")
    said = says(tab, "trainers[417]: step").get_attribute("aria-valuetext")
    assert "goes on" in said and "waiting" not in said
    tab.wait_for("[role=region][aria-label='What this rank did'] td", "step")
    assert tab.violations() == []
    with page.expect_download() as saved:
        page.get_by_role("button", name="Perfetto").click()
    shown = shown_by(saved.value.path())
    actors = {each.track.rpartition(" / actor ")[2] for each in shown if each.category == "message"}
    assert actors == {f"trainer[{rank}]" for rank in range(416, 424)}
    page.get_by_role("button", name="all ranks").click()
    says(tab, "trainers[0-7], host trainers[0] on h0")


def test_a_pointer_unfolds_a_band_and_drags_to_another_time(tab: Tab) -> None:
    page = tab.open("timeline?span=120")
    tracks = says(tab, "trainers[0-7], host trainers[0] on h0")
    tracks.click(position={"x": 400, "y": 20 + 11 * 5 + 5})
    page.wait_for_url(re.compile("hosts=5-5"))
    box = says(tab, "trainers[40]").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 900, box["y"] + 60, steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile(r"at=\d"))
    tab.wait_for("header [role=status]", "not live")
    tracks.press("+")
    page.wait_for_url(lambda url: "span=" not in url)  # half of 120 s is what is shown at first


def test_a_time_is_in_the_link_and_one_key_leads_back_to_live(
    seen: tuple[Demo, Tab], tab: Tab
) -> None:
    page = tab.open("now")
    tab.wait_for(".verdict.bad")
    page.locator("h1").click()
    page.keyboard.press("t")
    tab.wait_for("section[aria-label=Time]", "Not live: as of")
    page.wait_for_url(re.compile(r"now\?at=\d"))
    tab.wait_for("section[aria-label=Time]", "something is retained from")
    page.get_by_role("button", name="10 s earlier").click()
    tab.wait_for(".verdict", "1,000 of 1,12")
    tab.picture("past")
    assert tab.violations() == []
    there = page.url
    page.reload()
    tab.wait_for(".verdict", "1,000 of 1,12")
    assert page.url == there
    # a minute before that ranks worked, however long the tests have taken so far
    tab.open(f"now?at={seen[0].began:.3f}")
    tab.wait_for(".verdict", "1,000 of 1,12")
    page.get_by_role("link", name="Messages").click()
    tab.wait_for("h2", "In the minute before")
    tab.wait_for("td", "trainer")
    assert page.get_by_text("Handled so far").count() == 0  # that is known of now alone
    assert tab.violations() == []
    page.get_by_role("link", name="Stragglers").click()
    tab.wait_for("header [role=status]", "not live")
    tab.wait_for("td", "trainers")
    page.keyboard.press("Escape")
    tab.wait_for("header [role=status]", "live")
    assert "at=" not in page.url
    page.get_by_role("link", name="Now").click()
    tab.wait_for(".verdict.bad")


def test_a_slider_leads_to_any_time_that_is_retained(tab: Tab) -> None:
    page = tab.open(f"now?at={time.time() - 30:.0f}")
    slider = page.get_by_role("slider", name="Time that is shown")
    slider.wait_for()
    before = page.url
    slider.press("ArrowLeft")
    page.wait_for_url(lambda url: url != before)
    # until that is known, the slider leads back a minute
    tab.wait_for("main", "something is retained from")
    slider.press("Home")
    tab.wait_for(".verdict", "nothing is kept of that time")


def test_eight_ranks_have_a_track_each_and_the_straggler_is_seen(browser: Any) -> None:
    with demo(8, "straggler") as program:
        headers = {"Authorization": f"Bearer {program.token}"}
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, extra_http_headers=headers
        )
        tab = Tab(context, program.url)
        tab.open("timeline?span=20")
        tracks = says(tab, "trainers[0]: step")
        assert tracks.get_attribute("aria-valuemax") == "9"
        for _ in range(3):
            tracks.press("ArrowDown")
        says(tab, "trainers[3]: step")
        # of the others 1.3
        tab.wait_for("[aria-label='What this rank did'] tr:has-text('call')", "1.8 s")
        tab.picture("timeline_tracks")
        assert tab.violations() == []
        tab.open("now")
        tab.wait_for("article[aria-label='Mesh trainers']", "8 ")
        for view in PAGES:
            page_is_shown(tab, view)
        assert tab.complaints == [], tab.refused
        context.close()


def test_a_confirmation_names_what_it_hits_and_nothing_happens_without_it(tab: Tab) -> None:
    page = tab.open("actions")
    page.get_by_role("button", name="Stop trainers").press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("This hits 1,000 processes on 125 hosts.").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    page.get_by_role("button", name="Stop metrics").click()
    dialog.get_by_label("reason").fill("to try it")
    dialog.get_by_role("button", name="Stop metrics: 1 process on 1 host").click()
    tab.wait_for("[role=status]", "Done: metrics has stopped.")
    page.get_by_role("button", name="Stop metrics").wait_for(state="detached")
    assert page.get_by_role("button", name="Stop trainers").count() == 1


def runs_lead_to_dashboards_of_their_own(tab: Tab) -> None:
    page = tab.open("runs")
    tab.wait_for("article[aria-label='Run snapshot.duckdb']", "19 ranks on 3 hosts")
    assert tab.violations() == []
    tab.picture("runs")
    page.get_by_role("link", name="snapshot.duckdb").click()
    page.wait_for_url(re.compile("/runs/[0-9a-f]{16}/"))
    tab.wait_for(".verdict")
    tab.wait_for("header [role=status]", "saved run")
    page.get_by_role("link", name="Timeline").click()
    tab.wait_for("canvas[aria-label=Tracks][aria-valuetext*=step]")
    page.get_by_role("link", name="Runs").click()
    tab.wait_for("article", "this one")
    page.get_by_role("link", name="Back to where it was opened").click()
    page.wait_for_url(lambda url: "/runs/" not in url)
    tab.wait_for("header [role=status]", "live")


def test_actions_save_files_and_start_again_a_mesh_whose_rank_has_stopped(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the demo looks for saved runs
    with demo(16, "breakpoint") as program:
        context = browser.new_context()
        tab = Tab(context, program.url)
        tab.page.goto(program.link)
        tab.wait_for(".verdict")  # where the link leads
        tab.wait_for("a.button", "1 stopped in the debugger")
        page = tab.open("debugger")
        tab.wait_for("article", "check_loss")
        tab.wait_for("article code", "attach trainer 6")
        tab.open("actions")
        for action in ("Record a profile", "Save a snapshot"):
            page.get_by_role("button", name=action.lower()).click()
            if "profile" in action:
                page.get_by_label("seconds").fill("0.2")
            with page.expect_download() as saved:
                page.get_by_role("dialog").get_by_role("button", name=action).click()
            assert len(saved.value.path().read_bytes()) > 1000
            tab.wait_for("[role=status]", "Done:")
        saved.value.save_as(tmp_path / "snapshot.duckdb")
        runs_lead_to_dashboards_of_their_own(tab)
        tab.open("actions")
        page.get_by_role("button", name="Restart metrics").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart metrics").click()
        tab.wait_for("[role=alert]", "has no restart policy")
        page.get_by_role("button", name="Restart trainers").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart trainers").click()
        tab.wait_for("[role=status]", "Done: 16 processes of trainers start again.")
        tab.open("debugger")
        tab.wait_for("main p", "Nobody has stopped")
        context.close()


def test_where_a_rank_is_lost_the_next_step_is_what_it_said_last(browser: Any) -> None:
    with demo(16, "lost-rank") as program:
        context = browser.new_context()
        tab = Tab(context, program.url)
        tab.page.goto(program.link)
        tab.wait_for(".verdict.bad", "without trainers[6]: the process exited with non-zero code 3")
        first = tab.wait_for("section[aria-label=Verdict] a.button")
        assert first.inner_text() == "logs around then"
        assert first.get_attribute("title") == "Of trainers[6], which has failed"
        tab.wait_for("section[aria-label=Verdict] a.button", "stacks of those who wait")
        for next_step in (first, tab.wait_for("a.verdict")):
            next_step.click()
            tab.page.wait_for_url(re.compile(r"#/logs\?mesh=trainers&rank=6$"))
            tab.wait_for(".line", "shard 17 is corrupt: the loader gives up")
            tab.open("now")
            tab.wait_for("a.verdict")
        assert tab.complaints == [], tab.refused
        context.close()


def an_earlier_time_of_ten_thousand_ranks_is_shown(tab: Tab, at: float) -> None:
    # which is asked for once; live it is again and again
    page = tab.open(f"timeline?span=120&at={at:.0f}")
    tracks = says(tab, "trainers[0-127], hosts trainers[0] on h0 to trainers[15] on h15")
    tracks.press("ArrowDown")
    tracks.press("Enter")
    page.wait_for_url(re.compile("hosts=16-31"))
    says(tab, "trainers[128-135], host trainers[16] on h16")
    page.get_by_role("link", name="Now").click()
    tab.wait_for(".verdict", re.compile("10,000 of 11,.* ranks handled a call"))
    for name in ("Stragglers", "Messages"):
        page.get_by_role("link", name=name).click()
        tab.wait_for("header [role=status]", "not live")
        tab.wait_for("main td", "trainer")


def but_for_late_answers(tab: Tab) -> list[str]:
    """Complaints, without those that an answer took too long: the page says so, and asks again."""
    return [text for text in tab.complaints if "504 (Gateway Timeout)" not in text]


def test_ten_thousand_ranks_are_a_map_that_keys_and_pointers_read(browser: Any) -> None:
    # a fixed time: a minute later, ranks that hang have sent no message for a minute
    begun = time.time()
    with demo(10_000, "missing-collective") as program:
        # without the link: a browser may ask for an icon of that page, which has none
        token = {"Authorization": f"Bearer {program.token}"}
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, extra_http_headers=token
        )
        tab = Tab(context, program.url)
        tab.page.set_default_timeout(150_000)
        tab.open("now")
        tab.wait_for("article[aria-label='Mesh trainers']", "9,999 collective")
        ranks = tab.page.get_by_role("slider", name="Ranks of trainers")
        assert ranks.get_attribute("aria-valuemax") == "9999"
        box = ranks.bounding_box()
        assert box is not None and 100 < box["height"] <= 440  # all of them, on one screen
        ranks.press("End")
        tab.wait_for("dl", "9999 (hosts=1249, gpus=7)")
        ranks.hover(position={"x": 1, "y": 1})
        tab.wait_for("dl", "0 (hosts=0, gpus=0)")
        assert but_for_late_answers(tab) == [], tab.refused
        an_earlier_time_of_ten_thousand_ranks_is_shown(tab, begun)
        assert but_for_late_answers(tab) == [], tab.refused
        for view in part_of(PAGES):
            page_is_shown(tab, view)
            assert but_for_late_answers(tab) == [], (view, tab.refused)
        context.close()
