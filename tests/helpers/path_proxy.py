"""A proxy of HTTP that takes a path off, as those of notebook servers and clusters do."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from helpers.serving import serving

if TYPE_CHECKING:
    from monarch.admin.door import Door

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
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}{PATH}"


@contextmanager
def demo_behind_proxy() -> Iterator[tuple[Door, str]]:
    """A demo of a program that is stuck, and where its admin interface is behind the proxy."""
    from monarch.admin.door import Door  # whose libraries may be missing

    simulated = {"ranks": 16, "fault": "missing-collective", "began": time.time(), "after": None}
    door = Door(
        os.getpid(), "127.0.0.1:0", root_path=PATH, helper="benchmarks.demo.helper", more={"simulated": simulated}
    )  # fmt: skip
    with closing(door), proxy(urlsplit(door.url).port or 0) as url:
        yield door, url
