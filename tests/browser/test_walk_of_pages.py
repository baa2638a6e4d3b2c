"""The walk of docs/hangs.md in the browser: from a program that is unwell to its cause, and on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from helpers.browsers import Tab
from helpers.demo import demo
from helpers.terminals import running
from helpers.walks import GOES_ON, LINKS, MOST_ACTIONS, WALKS, plain

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs and a browser start on a busy machine


@pytest.mark.parametrize("fault", WALKS)
def test_the_browser_tells_the_cause_in_one_action_and_what_led_to_it_in_three(
    fault: str, browser: Any
) -> None:
    assert 1 + len(LINKS[fault]) <= MOST_ACTIONS
    with demo(24, fault) as program:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        tab = Tab(context, program.url)
        tab.page.goto(program.link)  # the first action
        said = plain(tab.wait_for(".verdict", WALKS[fault][0]).inner_text())
        assert all(text in said for text in WALKS[fault]), said
        for link, texts in LINKS[fault]:
            tab.page.locator(link).first.click()
            for text in texts:
                tab.wait_for("main", text)
        context.close()


def test_a_program_that_goes_on_without_a_rank_has_an_amber_light(
    browser: Any, tmp_path: Path
) -> None:
    with running(GOES_ON, tmp_path) as program:
        program.wait_for("[bosses 0] lost")
        with program.dashboard() as (link, _):
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            tab = Tab(context, link.partition("/#")[0])
            tab.page.goto(link)
            told = plain(tab.wait_for(".verdict.late", "Degraded").inner_text())
            assert re.search(
                r"goes on without trainers\[2\]: the process exited with non-zero code 3,"
                r" \d+ (s|min) ago",
                told,
            )
            tab.wait_for("header .light.late", "degraded")
            assert tab.page.title().startswith("◑ degraded · ")
            assert tab.page.locator("link[rel=icon]").get_attribute("href") == "assets/late.svg"
            tab.page.locator("nav a[href^='#/messages']").click()
            kept = "None. Single messages are kept of actors that were spawned with"
            assert kept in tab.wait_for("p.quiet", "None").inner_text()
            context.close()


LONG = "a_name_of_any_length_" * 4
PROGRAM_OF_LONG_NAMES = f"""
    import os, sys
    from monarch.actor import Actor, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        def step(self):
            print("in a step", flush=True)
            breakpoint()

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({{"gpus": 2}}, name="mesh_{LONG}").spawn("actor_{LONG}", Trainer)
        step = trainers.slice(gpus=1).step.call_one()
        sys.stdin.read()
        os._exit(0)
    """


def test_names_of_any_length_fit_a_phone_and_its_commands_reach_the_rank(
    browser: Any, tmp_path: Path
) -> None:
    with running(PROGRAM_OF_LONG_NAMES, tmp_path) as program:
        program.wait_for(f"[mesh_{LONG} 1] in a step")
        with program.dashboard() as (link, _):
            context = browser.new_context(viewport={"width": 390, "height": 844})
            tab = Tab(context, link.partition("/#")[0])
            tab.page.goto(link)
            tab.wait_for(".verdict", "breakpoint (")
            pages = {
                "now": "article canvas",
                "stacks": "article code",
                "waits": "main p",
                "actions": "td",
            }
            for view, there in pages.items():
                tab.open(view)
                tab.wait_for(there)
                assert tab.page.evaluate("document.documentElement.scrollWidth") == 390, view
            tab.open("stacks")
            command = tab.wait_for("article code", f"attach actor_{LONG} 1").inner_text()
            for words in (
                command.split()[1:],
                ["debug", str(program.pid), "attach", f"mesh_{LONG}", "1"],
            ):
                said = program.monarch(*words, typed="detach\n")
                assert "Attached to debug session" in said.stdout, said
            context.close()
