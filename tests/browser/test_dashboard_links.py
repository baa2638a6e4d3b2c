"""The connection of a page, in a real browser: cut off, refused, silent; and what somebody sees who
may only look.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helpers.browsers import Tab
from helpers.demo import Demo, demo
from helpers.processes import stopped

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(400)  # programs and a browser start on a busy machine


@pytest.fixture(scope="module")
def program() -> Iterator[Demo]:
    with demo(16, "none") as found:
        yield found


@pytest.fixture
def tab(browser: Any, program: Demo) -> Iterator[Tab]:
    """One that was let in by the token; its clock may be turned on."""
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {program.token}"})
    found = Tab(context, program.url)
    found.page.clock.install(time=time.time())
    yield found
    context.close()


def steps(tab: Tab) -> list[int]:
    """Those of which the page shows lines."""
    return [
        int(number)
        for number in re.findall(r"step (\d+) loss", tab.page.locator(".box").inner_text())
    ]


def test_lines_that_come_while_the_connection_is_lost_are_shown_once_and_in_order(
    tab: Tab, program: Demo
) -> None:
    page = tab.page
    # of a list there is no more than what is seen
    page.set_viewport_size({"width": 1280, "height": 12_000})
    tab.open(f"logs?mesh=trainers&rank=3&follow=true&since={time.time() - 8:.3f}")
    tab.wait_for(".line", "step")
    before = steps(tab)
    with page.expect_request(lambda request: "last-event-id" in request.headers):
        os.kill(program.helper, signal.SIGKILL)
    tab.wait_for(".line", f"step {before[-1] + 3} ")
    tab.wait_for("[role=status]", "live")
    found = steps(tab)
    assert found == list(range(found[0], found[-1] + 1))  # each step has one line of this rank
    assert found[0] <= before[-1]


@contextmanager
def streaming(text: str) -> Iterator[str]:
    """The URL of events that come, and after which nothing does."""
    over = threading.Event()

    class Answers(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            self.request.sendall((head + text).encode())
            over.wait()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            over.set()
            server.shutdown()
            thread.join()


def test_where_lines_are_missing_the_page_says_so(tab: Tab) -> None:
    line = {
        "time": time.time(),
        "stream": "stdout",
        "level": 0,
        "text": "before",
        "host": "h",
        "mesh": "m",
        "rank": 0,
    }
    more = {**line, "text": "after"}
    events = [
        ("lines", [line]),
        ("gap", {"lost": 7}),
        ("not_read", {"lines": 1700}),
        ("lines", [more]),
    ]
    body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
    with streaming(body) as url:
        tab.page.route("**/v1/logs/follow*", lambda route: route.continue_(url=url))
        tab.open("logs?follow=true")
        tab.wait_for(".box", "after")
        said = [text.strip() for text in tab.page.locator(".item").all_inner_texts()]
        tab.page.unroute("**/v1/logs/follow*")
    assert said[0].endswith("before") and said[1].startswith("Lines are missing here")
    assert said[2].startswith("1,700 lines are missing here") and said[3].endswith("after")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            401,
            {"error": {"code": "unauthorized", "message": "a token is needed"}},
            "refused: a token is needed",
        ),
        (403, "<html>no</html>", "refused: the server answered 403"),
        (404, "", "refused: the server answered 404"),
    ],
)
@pytest.mark.parametrize("page", ["now", "waits"])
def test_a_refusal_is_told_and_not_tried_again(
    tab: Tab, page: str, status: int, body: Any, said: str
) -> None:
    asked: list[str] = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(status=status, body=body if isinstance(body, str) else json.dumps(body))

    tab.page.route(re.compile("/v1/(now/events|waits)"), refuse)
    tab.open(page)
    tab.wait_for("[role=status]", said)
    tab.page.clock.run_for(120_000)
    assert len(asked) == 1


def test_too_many_questions_are_asked_again_later(tab: Tab) -> None:
    tab.page.route("**/v1/now/events*", lambda route: route.fulfill(status=429, body=""), times=1)
    tab.open("now")
    tab.wait_for(".verdict")
    tab.wait_for("[role=status]", "live")
    assert any("429" in text for text in tab.complaints)


def test_what_had_no_answer_in_time_is_asked_again(tab: Tab) -> None:
    tab.page.route("**/v1/now?at=*", lambda route: route.fulfill(status=504, body=""), times=1)
    tab.open(f"now?at={time.time() - 1:.3f}")
    tab.wait_for("main [role=alert]", "504")
    tab.page.clock.fast_forward(6000)
    tab.wait_for(".verdict")


@pytest.mark.parametrize(
    ("view", "shown"),
    [("timeline", "canvas[aria-label=Tracks]"), ("stragglers", "td"), ("messages", "td")],
)
def test_a_page_of_an_earlier_time_asks_until_there_is_an_answer(
    tab: Tab, view: str, shown: str
) -> None:
    late = [True]
    tab.page.route(
        "**/v1/query*",
        lambda route: route.fulfill(status=504, body="") if late else route.fallback(),
    )
    tab.page.route("**/v1/time*", lambda route: route.fulfill(status=504, body=""), times=1)
    tab.open(f"{view}?at={time.time() - 1:.3f}")
    tab.wait_for("main [role=alert]", "504")
    tab.page.clock.fast_forward(6000)  # and again there is none
    late.clear()
    tab.page.clock.fast_forward(11_000)
    tab.wait_for(f"main {shown}")
    tab.wait_for("section[aria-label=Time]", "something is retained from")


def test_the_silence_of_a_helper_that_stands_still_is_seen(tab: Tab, program: Demo) -> None:
    tab.open("now")
    tab.wait_for(".verdict")
    with stopped(program.helper):
        tab.page.clock.fast_forward(21_000)
        tab.wait_for("[role=status]", re.compile(r"no answer for \d+ s"))
        tab.wait_for("main p", "What follows was so at")
        tab.wait_for("main p", re.compile(r"\d+ s ago"))
    tab.wait_for("[role=status]", "live")
    tab.page.get_by_text("What follows was so at").wait_for(state="detached")


def test_a_program_that_the_server_does_not_see_is_told(tab: Tab) -> None:
    with streaming('event: beat\ndata: {"age": 33.0}\n\n') as url:
        tab.page.route("**/v1/now/events*", lambda route: route.continue_(url=url))
        tab.open("now")
        tab.wait_for("[role=status]", "the program has not answered for 30 s")
        tab.page.unroute("**/v1/now/events*")


def test_the_file_of_a_run_is_not_live_and_nothing_can_be_done_to_it(tab: Tab) -> None:
    tab.page.route(
        "**/v1/access*", lambda route: route.fulfill(json={"role": "act", "saved": True})
    )
    page = tab.open("now")
    tab.wait_for(".verdict")
    tab.wait_for("[role=status]", "a saved run")
    tab.open("actions")
    tab.wait_for("main p", "the file of a run that has ended")
    tab.wait_for("td", "trainers")
    assert all(button.is_disabled() for button in page.locator("main button").all())


def test_who_may_only_look_sees_why_buttons_do_nothing(
    browser: Any, tab: Tab, program: Demo
) -> None:
    tab.page.route(
        "**/v1/access*", lambda route: route.fulfill(json={"role": "view", "saved": False})
    )
    page = tab.open("actions")
    tab.wait_for("main p", "this needs one of the role act")
    tab.wait_for("td", "trainers")
    buttons = page.locator("main button")
    assert buttons.count() >= 6 and all(button.is_disabled() for button in buttons.all())
    assert tab.violations() == []
    tab.open("stacks")
    tab.wait_for("main p", "this needs one of the role act")
    assert page.get_by_role("button", name="look").is_disabled()
    assert tab.complaints == [], tab.refused


def test_programs_of_several_containers_are_listed(tab: Tab) -> None:
    # of a process of another container the kernel tells no id
    program = {"pid": 0, "since": 1.0, "kind": "program", "command": "train.py", "this": False}
    answer = {"runs": [], "folder": "/runs", "programs": [program, program]}
    tab.page.route("**/v1/runs*", lambda route: route.fulfill(json=answer))
    page = tab.open("runs")
    tab.wait_for("td", "in its container: monarch dashboard")
    assert page.locator("main tbody tr").count() == 2
    assert tab.complaints == [], tab.refused


def test_where_two_tasks_of_a_rank_have_stopped_its_command_is_there(tab: Tab) -> None:
    standing = {
        "mesh": "trainers", "size": 16, "ranks": [3, 3], "hosts": ["h0"], "endpoint": "step",
        "place": "train.py:7", "state": "debugged", "reason": "breakpoint", "lines": [],
    }  # fmt: skip
    tab.page.route("**/v1/why*", lambda route: route.fulfill(json={"classes": [standing]}))
    tab.open("debugger")
    tab.wait_for("article code", "attach trainer 3")
    assert tab.complaints == [], tab.refused


def test_a_rank_is_attached_where_its_stack_says_that_it_has_stopped(tab: Tab) -> None:
    # whatever the functions are called
    line = {"kind": "monarch", "function": "breakpoint", "file": "/x/monarch/_core/a.py", "line": 1}
    other = {**line, "kind": "user", "function": "check_loss", "file": "/run/train.py"}
    answer = {
        "silent": {},
        "classes": [
            {
                "mesh": "trainers", "size": 16, "ranks": [rank], "endpoint": "step", "headline": f"at {rank}",
                "waits_for": "", "lines": [first], "how": ["itself"], "hosts": ["trainers[0] on h0"], "pids": [rank],
                "state": state,
            }
            for rank, first, state in ((3, other, "debugged"), (4, line, ""))
        ],
    }  # fmt: skip
    tab.page.route("**/v1/stacks*", lambda route: route.fulfill(json=answer))
    tab.open("stacks")
    tab.wait_for("article", "trainers[3]").get_by_text("attach trainer 3").wait_for()
    tab.wait_for("article", "trainers[4]").get_by_text("interrupt trainer 4").wait_for()
    assert tab.complaints == [], tab.refused


def test_times_of_another_day_have_a_date(tab: Tab) -> None:
    tab.page.clock.set_system_time(time.time() + 86_400)
    tab.open(f"logs?mesh=trainers&rank=3&since={time.time() - 30:.3f}")
    text = tab.wait_for(".line", "step").inner_text()
    assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", text)
