"""An admin interface of a program that there is not, of any size: the routes that the dashboard in
the terminal asks.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from monarch.admin.feeds import Event
from monarch.admin.picture import COLUMNS, RANK_STATES, delta
from monarch.tui.http import Access
from monarch.why.model import Verdict

_BEAT = 0.05  # seconds


def picture_of(
    ranks: int, name: str = "trainers", states: dict[int, str] | None = None
) -> dict[str, Any]:
    """A picture as `/v1/now` has it: ranks in a collective, but for some.

    Args:
        ranks: Of the mesh, eight on a host.
        name: Of the mesh.
        states: Of those that are elsewhere; they hold up the others.
    """
    odd = states or {}
    columns: dict[str, list[Any]] = {column: [0] * ranks for column in COLUMNS}
    columns["state"] = [RANK_STATES.index(odd.get(rank, "collective")) for rank in range(ranks)]
    columns["blamed"] = [int(rank in odd) for rank in range(ranks)]
    columns["seconds"] = [43.0] * ranks
    columns["pid"] = [1000 + rank for rank in range(ranks)]
    columns["host"] = [rank // 8 for rank in range(ranks)]
    verdict = Verdict(
        "stuck" if odd else "fine",
        f"{ranks - len(odd)} ranks of {name} in all_reduce (train.py:88).",
    )
    return {
        "verdict": {**verdict.to_json(), "blamed": []},
        "states": RANK_STATES,
        "hosts": [f"h{number}" for number in range(-(-ranks // 8))],
        "meshes": {
            "1": {
                "name": name,
                "size": ranks,
                "shape": {"hosts": ranks // 8, "gpus": 8},
                "columns": columns,
            }
        },
        "failures": [],
        "silent": {},
    }


class FakeAdmin:
    """Attributes:
    picture: What `/v1/now/events` gives; another one is told as a delta.
    verdict: What `/v1/why` says.
    lines: Of the logs.
    asked: Paths, in the order in which they were asked for.
    pages: Paths at which a proxy answers with a page.
    """

    def __init__(self, picture: dict[str, Any]) -> None:
        self.picture = picture
        self.verdict: dict[str, Any] = Verdict("fine", "Fine.").to_json()
        self.lines: list[dict[str, Any]] = []
        self.tree = (
            "root  ->  http://h/v1/root\n└── h0 (0 procs)  ->  http://h/v1/host%3Aagent%40h0\n"
        )
        self.asked: list[str] = []
        self.pages: set[str] = set()
        self._kept = _bound(socket.socket(), 0)  # nobody else gets the port between two that serve
        self.port: int = self._kept.getsockname()[1]
        self._stop = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def access(self) -> Access:
        return Access(f"http://127.0.0.1:{self.port}", {"Authorization": "Bearer token"})

    def start(self) -> None:
        """Serve; the second time at the same port."""
        self._stop.clear()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", self.port), self._handler(), bind_and_activate=False
        )
        _bound(self._server.socket, self.port)
        self._server.server_activate()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_BEAT,))
        self._thread.start()

    def end(self) -> None:
        """Close all connections, and listen no more."""
        self._stop.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()  # waits for those that are answered
            self._server = None

    def close(self) -> None:
        """Serve no more at all."""
        self.end()
        self._kept.close()

    def _json(self, path: str) -> Any:
        if path == "/v1/why":
            return self.verdict
        if path == "/v1/logs":
            return {"lines": self.lines, "left_out": 0, "silent": {}}
        if path == "/v1/root":
            root: dict[str, Any] = {
                "num_hosts": 1,
                "started_at": None,
                "started_by": "somebody",
                "system_children": [],
            }
            return {
                "identity": "root",
                "properties": {"Root": root},
                "children": [],
                "parent": None,
                "as_of": "",
            }
        return {
            "identity": unquote(path[4:]),
            "properties": {},
            "children": [],
            "parent": "root",
            "as_of": "",
        }

    def _events(self, path: str) -> Iterator[str]:
        yield ": hello\n\n"
        known = self.picture
        if path == "/v1/now/events":
            yield Event("state", known).text
        while not self._stop.wait(_BEAT):
            if path == "/v1/now/events" and self.picture is not known:
                change, known = delta(known, self.picture), self.picture
                yield Event("delta", change).text
            else:
                yield ": still here\n\n"

    def _handler(fake) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                fake.asked.append(path)
                if path in fake.pages:
                    self.send_response(200)
                    self.send_header("Content-Type", "text/html")
                    self.end_headers()
                    self.wfile.write(b"<html>a proxy</html>")
                    return
                self.send_response(200)
                if path in ("/v1/now/events", "/v1/logs/follow"):
                    self.send_header("Content-Type", "text/event-stream")
                    self.end_headers()
                    try:
                        for text in fake._events(path):
                            self.wfile.write(text.encode())
                    except OSError:  # nobody reads any more
                        pass
                    return
                is_tree = path == "/v1/tree"
                body = (fake.tree if is_tree else json.dumps(fake._json(path))).encode(
                    errors="replace"
                )
                self.send_header("Content-Type", "text/plain" if is_tree else "application/json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


@contextmanager
def fake_admin(picture: dict[str, Any]) -> Iterator[FakeAdmin]:
    """One that serves."""
    fake = FakeAdmin(picture)
    fake.start()
    try:
        yield fake
    finally:
        fake.close()


def _bound(made: socket.socket, port: int) -> socket.socket:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made
