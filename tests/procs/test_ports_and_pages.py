"""A page in a user's browser gets nothing at the ports that commands and variables open, says
nothing on the terminal, and keeps out none who may come.

It can send any request with its own `Origin`, and have a name of its own lead to this machine.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from helpers.each import for_each
from helpers.serving import door_of_debugger, serving
from monarch.debugger import server as debugger
from monarch.tools import metrics

if TYPE_CHECKING:
    from monarch.telemetry.answer import Collected

TOKEN = "token-of-the-user"


def request(method: str, host: str, *headers: str, body: str = "", path: str = "/metrics") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*lines, "", body]).encode("latin-1")


FORM = "Content-Type: application/x-www-form-urlencoded"
ORIGIN = "Origin: https://evil.example"
ASKS = "Access-Control-Request-Method: GET"
SOCKET = "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}=="
PAGES = {
    "a link": request("GET", "127.0.0.1:{port}"),
    "a script": request("GET", "127.0.0.1:{port}", ORIGIN, "Authorization: Bearer guessed"),
    "a script that asks first": request("OPTIONS", "127.0.0.1:{port}", ORIGIN, ASKS),
    "a form": request("POST", "127.0.0.1:{port}", ORIGIN, FORM, body="list\r\ncast t x\r\n"),
    "a form by name": request("POST", "localhost:{port}", ORIGIN, FORM, body="a=b"),
    "text in a form": request("POST", "127.0.0.1:{port}", "Content-Type: text/plain", body="\nlist\n"),
    "a method of any name": request("\x1b]0;owned\x07", "127.0.0.1:{port}", ORIGIN),
    "a web socket": request("GET", "127.0.0.1:{port}", ORIGIN, *SOCKET),
    "no host": b"GET /metrics HTTP/1.0\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01" + b"\x00" * 512 + b"\r\n\r\n",
}  # fmt: skip
# with the token, if a page had it: the name is another site's, and leads here
REBOUND = {
    name: request("GET", host, f"Authorization: Bearer {TOKEN}")
    for name, host in {
        "a name that leads here": "evil.example:{port}",
        "a name that begins as ours": "127.0.0.1.evil.example:{port}",
        "a name that ends as ours": "evil.localhost:{port}",
        "the address of everything": "0.0.0.0:{port}",
    }.items()
}


def say(port: int, what: bytes, stays: bool = True) -> bytes:
    """What is answered, up to its end."""
    with socket.create_connection(("127.0.0.1", port)) as page:
        page.sendall(what.replace(b"{port}", b"%d" % port))
        if not stays:  # what it sends last is that it has gone
            page.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        answer = b""
        with suppress(ConnectionResetError):  # not all was read
            while piece := page.recv(1 << 16):
                answer += piece
        return answer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The port of metrics; followed by a number for each time that a program was asked."""
    found: list[int] = []

    def ask(connection: object) -> Collected:
        found.append(len(found))
        raise TimeoutError("the program did not answer")

    monkeypatch.setattr(metrics, "_asked", ask)
    # nothing is asked
    with serving(metrics._Server(None, 0, TOKEN)) as server:  # type: ignore[arg-type]
        found.append(server.server_address[1])
        yield found


@for_each("name", PAGES | REBOUND)
def test_a_page_gets_no_metrics(asked: list[int], name: str) -> None:
    answer = say(asked[0], (PAGES | REBOUND)[name])
    assert b" 200 " not in answer and b"Access-Control-Allow" not in answer and asked[1:] == []


def test_who_has_the_token_gets_metrics_and_who_has_gone_is_no_news(
    asked: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    right = request("GET", "127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}")
    for what in (right, right[:20], b""):
        say(asked[0], what, stays=False)
    assert b"the program did not answer" in say(asked[0], right) and len(asked) >= 2
    assert capfd.readouterr() == ("", "")


class Consoles:
    """In place of the prompt."""

    def __init__(self, root: object, caller: Any, has_left: object) -> None:
        self._caller = caller

    def run(self) -> None:
        self._caller.write("monarch_dbg> ")


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of the debugger."""
    monkeypatch.setattr(debugger, "Console", Consoles)
    with door_of_debugger(type("Hub", (), {"root": None}), TOKEN) as (_, port):
        yield port


@for_each("name", PAGES | REBOUND)
def test_a_page_gets_no_prompt_of_the_debugger(door: int, name: str) -> None:
    answer = say(door, (PAGES | REBOUND)[name])
    assert answer in (b"", b"that is not the token which the client has printed\n")


def test_who_types_the_token_gets_the_prompt_beside_pages_that_stay(door: int) -> None:
    pages = [socket.create_connection(("127.0.0.1", door)) for _ in range(100)]
    assert say(door, TOKEN.encode() + b"\n") == b"monarch_dbg> "
    for each in pages:
        each.close()


@pytest.mark.processes("the command `benchmarks.demo`")
def test_a_page_gets_nothing_of_a_demo() -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from helpers.demo import demo

    with demo(8, "dead-rank") as program:
        port = int(program.url.rpartition(":")[2])
        for path in ("/", "/v1/now", "/v1/meshes", "/v1/sql", "/runs", "/login?code=guessed"):
            for name, what in (PAGES | REBOUND).items():
                said = what.replace(b"/metrics", path.encode())
                said = said.replace(TOKEN.encode(), program.token.encode())
                answer = say(port, said)
                is_page = path in ("/", "/login?code=guessed") and name in PAGES
                assert is_page or b" 200 " not in answer.partition(b"\r\n")[0], (path, name)
                assert b"allow-origin" not in answer.lower(), (path, name)
        assert program.asker.get("/v1/now")
