"""The dashboard in the terminal, by way of a proxy that takes a path off."""

from __future__ import annotations

import pytest

from helpers.path_proxy import PATH, demo_behind_proxy

pytest.importorskip("textual")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
pytest.importorskip("arro3.core")

from helpers.dashboards import Seen, watching
from monarch.tui import open_access
from monarch.tui.http import AdminError, Line

pytestmark = pytest.mark.timeout(300)


@pytest.mark.may_keep("threads", "descriptors")  # of requests that go on when the test ends
def test_every_screen_is_there_below_the_path_of_a_proxy() -> None:
    with demo_behind_proxy() as (door, url):

        async def typed(seen: Seen) -> None:
            await seen.until("Stuck", "live", "benchmarks.demo")
            for key, text in (
                ("2", "state▼"),
                ("3", "trainers[6]"),
                ("4", "waits"),
                ("5", "step"),
                ("6", "failed"),
                ("7", "procs)"),
            ):
                await seen.press(key)
                await seen.until("live", text)
            await seen.press("8")
            await seen.until("SHOW TABLES")
            await seen.press("j", "enter")
            await seen.until("queue_depth", "20 rows")

        access = open_access(door.link("act").replace(door.url, url))  # a link, through the proxy
        watching(access, typed)
        token = door.access("act")["token"]
        watching(open_access(url, token), typed)
        with pytest.raises(AdminError, match="404"):  # beside that path is something else
            Line(open_access(url[: -len(PATH)], token)).get("/v1/root")
