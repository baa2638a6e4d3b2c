"""The walk of docs/hangs.md in the browser: from a program that is unwell to its cause, and on."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.browsers import Tab
from helpers.demo import demo
from helpers.walks import WALKS, plain

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs and a browser start on a busy machine


@pytest.mark.parametrize("fault", WALKS)
def test_the_browser_tells_the_cause_in_one_action_and_where_it_is_in_two(
    fault: str, browser: Any
) -> None:
    with demo(24, fault) as program:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        tab = Tab(context, program.url)
        tab.page.goto(program.link)  # the first action
        said = plain(tab.wait_for(".verdict", WALKS[fault][0]).inner_text())
        assert all(text in said for text in WALKS[fault]), said
        if fault == "missing-collective":
            tab.page.get_by_role("link", name="its stack").click()  # the second
            tab.wait_for("article.odd", "read_shard")
        elif fault == "silent-host":  # which has no stacks to look at
            tab.page.locator("a.button", has_text="hosts").click()
            tab.wait_for("[aria-label=Silent] li", "tcp://10.0.0.2:26600")
        elif fault == "straggler":
            tab.page.get_by_role("link", name="step times").click()
            tab.wait_for("td", "trainers")
        context.close()
