"""The dashboard behind a proxy that takes a path off, in a real browser."""

from __future__ import annotations

import re

import pytest

from helpers.browsers import Tab, chromium
from helpers.path_proxy import PATH, demo_behind_proxy

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")


pytestmark = pytest.mark.timeout(300)


@pytest.mark.may_keep("threads", "descriptors")  # of requests that go on when the test ends
def test_behind_a_path_of_a_proxy_pages_ask_for_nothing_beside_it() -> None:
    with chromium() as browser, demo_behind_proxy() as (door, url):
        context = browser.new_context()
        tab = Tab(context, url)
        asked: list[str] = []
        tab.page.on("request", lambda request: asked.append(request.url))
        tab.page.goto(door.link("act").replace(door.url, url))
        tab.wait_for(".verdict.bad").click()  # the session lets in below that path
        tab.wait_for("article.odd", "trainers[6]")
        tab.page.get_by_role("link", name="SQL").click()
        tab.wait_for("h1", "SQL")
        tab.page.get_by_role("link", name="Logs").click()
        tab.wait_for(".line", "step")
        tab.page.reload()
        tab.wait_for(".line", "step")
        assert tab.complaints == [], tab.refused
        assert {re.sub(r"(.*/1729/).*", r"\1", each) for each in asked} == {f"{url}/"}
        # under the name of the path: another program may be behind the same proxy
        assert tab.page.evaluate("Object.keys(localStorage)") == [f"monarch-session {PATH}/"]
        assert context.cookies() == []
        context.close()
