"""The dashboard behind a proxy that takes a path off, in a real browser."""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from helpers.browsers import Tab, chromium

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

from monarch.admin.door import Door

pytestmark = pytest.mark.timeout(300)

PATH = "/user/me/proxy/1729"


class Proxy(BaseHTTPRequestHandler):
    """Passes on what comes below `PATH`, without that."""

    port = 0

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        if not self.path.startswith(PATH + "/"):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with closing(http.client.HTTPConnection("127.0.0.1", self.port)) as behind:
            behind.request(self.command, self.path[len(PATH) :], body, dict(self.headers))
            answer = behind.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            self.end_headers()  # its end is that of the connection
            try:
                while piece := answer.read1(65_536):
                    self.wfile.write(piece)
            except OSError:  # the browser has gone
                pass

    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def proxy(port: int) -> Iterator[str]:
    """Where it is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("To", (Proxy,), {"port": port}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.may_keep("threads", "descriptors")  # of requests that go on when the test ends
def test_behind_a_path_of_a_proxy_pages_ask_for_nothing_beside_it() -> None:
    simulated = {"ranks": 16, "fault": "missing-collective", "began": time.time(), "after": None}
    door = Door(
        os.getpid(), "127.0.0.1:0", root_path=PATH, helper="monarch.demo.helper", more={"simulated": simulated}
    )  # fmt: skip
    with chromium() as browser, closing(door), proxy(urlsplit(door.url).port or 0) as url:
        context = browser.new_context()
        tab = Tab(context, url)
        asked: list[str] = []
        tab.page.on("request", lambda request: asked.append(request.url))
        tab.page.goto(door.link("act").replace(door.url, url))
        tab.wait_for(".verdict.bad").click()  # the session's cookie lets in below that path
        tab.wait_for("article.odd", "trainers[6]")
        tab.page.get_by_role("link", name="SQL").click()
        tab.wait_for("h1", "SQL")
        tab.page.get_by_role("link", name="Logs").click()
        tab.wait_for(".line", "step")
        tab.page.reload()
        tab.wait_for(".line", "step")
        assert tab.complaints == [], tab.refused
        assert {re.sub(r"(.*/1729/).*", r"\1", each) for each in asked} == {f"{url}/"}
        (cookie,) = context.cookies()
        assert cookie["path"] == PATH and cookie["httpOnly"] and cookie["sameSite"] == "Strict"
        context.close()
