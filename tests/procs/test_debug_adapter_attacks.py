"""What a web page can say to a port for editors, and who has no token, runs nothing in a rank."""

from __future__ import annotations

import inspect
import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from helpers.browsers import chromium
from helpers.each import for_each
from helpers.editors import Editor, NotedPort
from helpers.waiting import wait_until
from monarch.debugger import dap
from monarch.debugger.protocol import framed

EVALUATE = json.dumps(
    {
        "seq": 1,
        "type": "request",
        "command": "evaluate",
        "arguments": {"expression": "open('owned', 'w')", "context": "repl"},
    }
).encode()
INITIALIZE = json.dumps({"seq": 1, "type": "request", "command": "initialize"}).encode()

# What begins a message of a debugger that skips lines it does not know, or cuts off what is long.
NO_MESSAGES = {
    "post": b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(EVALUATE), EVALUATE),
    "post of a message": b"POST / HTTP/1.1\r\nA: b\r\n\r\n" + framed(EVALUATE),
    "another header": b"Host: a\r\n" + framed(INITIALIZE),
    "a length twice": b"Content-Length: 1\r\n" + framed(INITIALIZE),
    "no length": b"Content-Type: application/json\r\n\r\n" + INITIALIZE,
    "a length of nothing": b"Content-Length: 0\r\n\r\n" + framed(INITIALIZE),
    "a length below nothing": b"Content-Length: -1\r\n\r\n" + INITIALIZE,
    "a length out of bounds": b"Content-Length: 99999999\r\n\r\n" + INITIALIZE,
    "lines that end otherwise": framed(INITIALIZE).replace(b"\r\n", b"\n"),
    "a header without an end": b"Content-Type: " + b"a" * 300 + b"\r\n" + framed(INITIALIZE),
    "a handshake of TLS": b"\x16\x03\x01\x02\x00\x01" + b"\x00" * 512,
    "another request": framed(EVALUATE),
    "no request": framed(b'{"command": "initialize"}'),
    "no object": framed(b"[]"),
    "no number": framed(b'{"type": "request", "command": "initialize"}'),
    "no JSON": framed(b"initialize"),
    "deep JSON": framed(b"[" * 100_000),
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[NotedPort]:
    found = NotedPort(monkeypatch)
    yield found
    found.close()


@for_each("name", NO_MESSAGES)
def test_what_is_no_message_of_an_editor_reaches_no_rank(opened: NotedPort, name: str) -> None:
    refused = opened.port._refused.count
    say(opened, NO_MESSAGES[name])
    wait_until(lambda: opened.port._refused.count == refused + 1, what="a refusal")
    assert opened.sent == []


def test_the_terminal_is_told_what_was_refused_and_how_often(opened: NotedPort) -> None:
    for _ in range(5):
        say(opened, NO_MESSAGES["post"])
    wait_until(lambda: opened.port._refused.count == 5, what="five refusals")
    why = "refused a connection: it said 'POST / HTTP/1.1\\r\\n', which is no header"
    assert all(line.startswith(why) for line in opened.told)
    assert [line[-len(" (2 so far)") :] for line in opened.told[1:]] == [
        " (2 so far)",
        " (4 so far)",
    ]


def say(opened: NotedPort, bytes_: bytes) -> None:
    """Say it, and wait for the end."""
    with socket.create_connection(("127.0.0.1", opened.port.number)) as page:
        with suppress(ConnectionResetError):  # not all was read
            page.sendall(bytes_)
            assert page.recv(1) == b""


@pytest.mark.parametrize("token", ["", "wrong", 7, "\udc80", None])
def test_an_editor_without_the_token_is_told_and_attaches_to_nothing(
    opened: NotedPort, token: object
) -> None:
    editor = Editor(opened.port.address)
    editor.answer(editor.initialize())
    number = editor.send("attach", monarchToken=token)
    refused = editor.read()
    assert refused is not None and refused["request_seq"] == number and not refused["success"]
    assert "`attach` needs the `monarchToken`" in refused["message"]
    assert editor.read() is None
    editor.close()
    wait_until(lambda: opened.told, what="a refusal")
    assert opened.told[0].startswith("refused a connection: `attach` needs the `monarchToken`")
    assert opened.sent == []


def test_initialize_is_answered_here_and_the_ranks_answer_is_news_for_the_editor(
    opened: NotedPort,
) -> None:
    editor = Editor(opened.port.address)
    able = editor.answer(editor.initialize())
    assert able["supportsConfigurationDoneRequest"]
    assert opened.sent == []
    editor.send("attach", monarchToken="token")
    assert editor.read() == {
        "seq": 0,
        "type": "event",
        "event": "capabilities",
        "body": {"capabilities": {"of": "the rank"}},
    }
    wait_until(lambda: len(opened.sent) == 3, what="what the rank gets")
    assert opened.heard().index(b"initialize") < opened.heard().index(b"attach")
    for part in (b"Content-Le", b"ngth: 2\r\n\r\n{", b"}"):  # as it comes
        opened.say(part)
    assert editor.read() == {}
    editor.close()


def test_what_is_told_for_debugpy_is_what_it_says_itself() -> None:
    pytest.importorskip("debugpy")
    source = inspect.getsource(pytest.importorskip("debugpy.adapter.clients"))
    known = set(re.findall(r'"(supports?[A-Z]\w+)": True', source))
    told = {name for name in dap._ABLE if name != "exceptionBreakpointFilters"}
    assert {name.replace("supportT", "supportsT") for name in told} == known


def test_the_token_is_kept_from_the_rank_and_what_follows_is_read_strictly(
    opened: NotedPort,
) -> None:
    editor = Editor(opened.port.address)
    editor.answer(editor.initialize())
    editor.send("attach", monarchToken="token")
    editor.event("capabilities")
    wait_until(lambda: opened.told == ["an editor is attached"], what="an editor")
    editor.send("threads")
    editor.socket.sendall(NO_MESSAGES["post"])
    assert editor.read() is None
    editor.close()
    wait_until(lambda: len(opened.told) == 2, what="its end")
    assert opened.told[1].startswith("the editor has left: it said 'POST / HTTP/1.1")
    assert b"threads" in opened.heard()
    assert b"token" not in opened.heard() and b"evaluate" not in opened.heard()


def test_who_connects_and_says_nothing_keeps_no_editor_waiting(opened: NotedPort) -> None:
    silent = [socket.create_connection(("127.0.0.1", opened.port.number)) for _ in range(20)]
    editor = Editor(opened.port.address)
    editor.initialize()
    editor.send("attach", monarchToken="token")
    wait_until(lambda: "an editor is attached" in opened.told, what="an editor")
    editor.close()
    for each in silent:
        each.close()


class Page(BaseHTTPRequestHandler):
    """A page that sends a form, and posts and connects by script."""

    port = 0

    def do_GET(self) -> None:
        target = f"127.0.0.1:{self.port}"
        script = f"""
            const body = {json.dumps(EVALUATE.decode())}
            const post = () => fetch("http://{target}/", {{method: "POST", mode: "no-cors", body}})
            post().catch(() => new WebSocket("ws://{target}/")).finally(() => form.submit())
        """
        page = f"""<form id=form method=post action="http://{target}/" enctype=text/plain>
            <input name='{EVALUATE.decode()}'></form><script>{script}</script>"""
        self.send_response_only(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())


def test_a_page_in_a_browser_reaches_no_rank(opened: NotedPort, monkeypatch: Any) -> None:
    monkeypatch.setattr(Page, "port", opened.port.number)
    with chromium() as browser, ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/", wait_until="commit")
        # by fetch, the socket, and the form
        wait_until(lambda: opened.port._refused.count >= 3, what="three refusals")
        server.shutdown()
    assert "POST / HTTP/1.1" in opened.told[0]
    assert opened.sent == []
