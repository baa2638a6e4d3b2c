"""What a page in a user's browser sends to ports of a program that are for others than browsers.

It can't choose its first line, nor read the answer; but it may say what they want to hear in its
body. For the ports of editors see `tests/procs/test_debug_adapter_attacks.py`.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from helpers.serving import door_of_debugger, serving
from helpers.streams import Net
from helpers.waiting import PATIENCE, wait_until
from monarch._core.net.trust import TRUST_ALL, trust_for
from monarch.debugger import server as debugger
from monarch.spmd.torch_store import GREETING, TorchStore
from monarch.tools import metrics

TOKEN = "a token that the page knows"
POST = """async ([port, body, headers]) => {
    const url = `http://127.0.0.1:${port}/metrics`;
    const sent = [];
    for (const how of [{ mode: "no-cors" }, { mode: "cors" }, { mode: "cors", headers }])
        for (const method of ["GET", "POST"])
            try {
                const answer = await fetch(url, { ...how, method, body: method === "POST" ? body : undefined });
                sent.push(await answer.text());
            } catch (error) { sent.push(""); }
    return sent;
}"""


class Home(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of another server of this machine: those of other sites a browser may keep off."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Home)) as server:
        context = browser.new_context()
        found = context.new_page()
        found.goto(f"http://127.0.0.1:{server.server_port}/")
        yield found
        context.close()


def test_a_page_says_the_token_of_the_debugger_too_late(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    said: list[bytes] = []

    class Console:
        def __init__(self, *args: Any) -> None:
            opened.append(args)

        def run(self) -> None:
            raise EOFError

    first_line = debugger._Caller.first_line

    def heard(caller: debugger._Caller) -> bytes:
        said.append(first_line(caller))
        return said[-1]

    monkeypatch.setattr(debugger, "Console", Console)
    monkeypatch.setattr(debugger._Caller, "first_line", heard)
    with door_of_debugger(SimpleNamespace(root=None), TOKEN) as (_, port):
        assert page.evaluate(POST, [port, f"{TOKEN}\nlist\n" * 100, {}]) == [""] * 6
        assert b"POST /metrics HTTP/1.1" in said and not opened
        with socket.create_connection(("127.0.0.1", port)) as ours:
            ours.sendall(f"{TOKEN}\n".encode())
            assert ours.recv(1) == b"" and len(opened) == 1


def test_a_page_reads_no_metrics(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        metrics._Handler,
        "log_request",
        lambda self, code, size=0: asked.append(f"{self.command} {code}"),
    )
    with serving(metrics._Server(cast(Any, None), 0, TOKEN)) as server:
        # even if it knew the token
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert page.evaluate(POST, [server.server_port, TOKEN, bearer]) == [""] * 6
        assert {"GET 401", "POST 501", "OPTIONS 501"} == set(asked)


@pytest.mark.parametrize("secret", ["", "a secret of this test, and no other"])
def test_a_page_gets_nothing_through_the_gateway_of_a_host(
    page: Any, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    trust = trust_for(secret=secret) if secret else trust_for(TRUST_ALL)
    with Net() as net:
        door = net.listen("tcp://127.0.0.1:0", trust)
        # what it would have to begin with, where there is no secret
        said = "" if secret else trust.proof(b"client", None).decode("latin-1") * 100
        assert page.evaluate(POST, [door.channel.port, said, {}]) == [""] * 6
        wait_until(lambda: "refused a connection" in caplog.text, what="a line about it")
        net.settle()
        assert door.guests == []


def test_a_page_sets_no_key_of_a_store_of_a_script(page: Any) -> None:
    store = TorchStore()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            asyncio.run_coroutine_threadsafe(store.serve(listener), loop).result(PATIENCE)
            port = listener.getsockname()[1]
            # what a client of torch would say, as far as a page can have bytes in its body
            said = f"{GREETING.decode('latin-1')}\1\1\0\0\0\0\0\0\0k\1\0\0\0\0\0\0\0v" * 10
            assert page.evaluate(POST, [port, said, {}]) == [""] * 6
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as ours:
                ours.sendall(GREETING + b"\7")  # how many keys there are
                assert ours.recv(8) == bytes(8)
    finally:
        asyncio.run_coroutine_threadsafe(_ended(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _ended() -> None:
    """All that runs in the loop of a store."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
