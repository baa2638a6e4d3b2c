"""Somebody leaves the dashboard open: neither the page nor the server grows.

A minute here, some seconds where the variable CI is set; `SOAK_SECONDS=3600` watches for an hour.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.browsers import Tab, chromium
from helpers.demo import Demo, demo
from helpers.effort import shortened
from helpers.floods import memory

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

SECONDS = float(os.environ.get("SOAK_SECONDS", shortened(60, 5)))
ROUNDS = 3
MOST_ROUNDS = 12  # of short ones it takes more until all that is made once is there
VIEWS = ("now?by=rate", "logs?mesh=trainers&follow=true", "hosts", "messages", "waits")
MEGABYTE = 1 << 20

pytestmark = pytest.mark.timeout(400 + 4 * SECONDS)


@pytest.fixture
def watched() -> Iterator[tuple[Demo, Tab]]:
    with chromium() as browser, demo(200, "slow-loader") as program:
        context = browser.new_context(
            extra_http_headers={"Authorization": f"Bearer {program.token}"}
        )
        yield program, Tab(context, program.url)
        context.close()


def in_use(tab: Tab, session: Any) -> int:
    """Bytes that scripts of the page have, without garbage."""
    session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


def watch(tab: Tab, seconds: float) -> None:
    """Look at each page for a part of the time, and see it change."""
    for view in VIEWS:
        tab.open(view)
        tab.wait_for("[role=status]", "live")
        end = time.monotonic() + seconds / len(VIEWS)
        while time.monotonic() < end:
            tab.page.wait_for_timeout(100)


def grows(page: list[int], helper: list[int]) -> bool:
    """Whether the last round has added to the memory of one of them; the database of a question
    comes and goes.
    """
    return page[-1] - page[-2] >= 2 * MEGABYTE or helper[-1] - helper[-2] >= 30 * MEGABYTE


def test_a_page_that_stays_open_and_its_server_do_not_grow(watched: tuple[Demo, Tab]) -> None:
    program, tab = watched
    # it would end an hour after eleven minutes; the mark above has the limit
    faulthandler.cancel_dump_traceback_later()
    session = tab.page.context.new_cdp_session(tab.page)
    watch(tab, SECONDS / ROUNDS)  # all that is made once is there
    page: list[int] = []
    helper: list[int] = []
    while len(page) < ROUNDS - 1 or (len(page) < MOST_ROUNDS and grows(page, helper)):
        watch(tab, SECONDS / ROUNDS)
        tab.open("now")
        tab.wait_for(".verdict")
        page.append(in_use(tab, session))
        helper.append(memory("VmRSS", program.helper))
    print(
        f"page {[each // 1024 for each in page]} KiB, helper"
        f" {[each // 1024 for each in helper]} KiB"
    )
    assert not grows(page, helper)
    assert helper[-1] < 150 * MEGABYTE
    assert tab.complaints == [], tab.refused
