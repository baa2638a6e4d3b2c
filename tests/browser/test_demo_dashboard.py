"""From the printed link of `monarch demo` to the command of the debugger, with no docs open: in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from helpers.browsers import Tab, chromium
from helpers.demo import Demo, demo

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs, hosts and a browser start on a busy machine

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


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
    yield seen[1]
    assert seen[1].complaints == []


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_from_the_verdict_to_the_odd_ranks_stack_logs_and_debugger(tab: Tab, by: str) -> None:
    def choose(what: str, name: str) -> None:
        found = tab.wait_for("article.odd").get_by_role(what, name=name)
        found.click() if by == "mouse" else found.press("Enter")

    page = tab.open("now")
    verdict = tab.wait_for(".verdict.bad", "999 ranks of trainers in all_reduce")
    assert re.search(r"rank 417 .*host h52, gpu 1.* in recv_into \(data\.py:31\)", verdict.inner_text())
    tab.picture("now")
    verdict.click() if by == "mouse" else verdict.press("Enter")
    stack = tab.wait_for("article.odd", "trainers[417]").inner_text()
    assert "read_shard" in stack and "run/data.py:31" in stack and "all_reduce" not in stack
    choose("button", "copy")
    tab.wait_for("article.odd").get_by_role("button", name="copied").wait_for()
    tab.picture("stacks")
    command = page.evaluate("() => navigator.clipboard.readText()")
    assert re.fullmatch(r"monarch debug -p \d+ attach trainer 417", command)
    choose("link", "logs around then")
    tab.wait_for("h1", "Logs")
    tab.wait_for(".line", "accepted, and has sent no bytes yet")
    tab.wait_for(".line", "no bytes for 5 s, connecting again")


@pytest.mark.parametrize("view", ["stragglers", "messages", "debugger", "actions"])
def test_a_page_of_a_thousand_ranks_complains_of_nothing_and_is_for_everybody(tab: Tab, view: str) -> None:
    page = tab.open(view)
    tab.wait_for("main p", "Nobody has stopped") if view == "debugger" else tab.wait_for("td")
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        assert tab.violations() == []
    page.emulate_media(color_scheme="light")


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


def test_actions_save_files_and_start_again_a_mesh_whose_rank_has_stopped(browser: Any) -> None:
    with demo(16, "breakpoint") as program:
        context = browser.new_context()
        tab = Tab(context, program.url)
        tab.page.goto(program.link)
        tab.wait_for(".verdict")  # where the link leads
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
        page.get_by_role("button", name="Restart metrics").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart metrics").click()
        tab.wait_for("[role=alert]", "has no restart policy")
        page.get_by_role("button", name="Restart trainers").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart trainers").click()
        tab.wait_for("[role=status]", "Done: 16 processes of trainers start again.")
        tab.open("debugger")
        tab.wait_for("main p", "Nobody has stopped")
        context.close()


def test_ten_thousand_ranks_are_a_map_that_keys_and_pointers_read(browser: Any) -> None:
    with demo(10_000, "missing-collective") as program:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        tab = Tab(context, program.url)
        tab.page.set_default_timeout(150_000)
        tab.page.goto(program.link)
        tab.wait_for("article[aria-label='Mesh trainers']", "9,999 collective")
        ranks = tab.page.get_by_role("slider", name="Ranks of trainers")
        assert ranks.get_attribute("aria-valuemax") == "9999"
        box = ranks.bounding_box()
        assert box is not None and 100 < box["height"] <= 440  # all of them, on one screen
        ranks.press("End")
        tab.wait_for("dl", "9999 (hosts=1249, gpus=7)")
        ranks.hover(position={"x": 1, "y": 1})
        tab.wait_for("dl", "0 (hosts=0, gpus=0)")
        assert tab.complaints == []
        context.close()
