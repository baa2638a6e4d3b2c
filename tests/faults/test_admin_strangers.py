"""What another user of the machine can do at ports that all users reach: nothing.

Each test is an attack that worked.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest

from helpers.admin import IDLE, Asker, admin_of
from helpers.serving import serving
from helpers.strangers import needs_another_user, stranger
from helpers.streams import Net
from helpers.terminals import killed_after, running
from helpers.waiting import PATIENCE, wait_until
from monarch._core.net import listener as gateway
from monarch._core.net.trust import trust_for
from monarch._listening import SharedListener, is_ours
from monarch.debugger import server as debugger
from monarch.job.forward import PortForwarder
from monarch.tools import metrics
from monarch.trust import make_secret

if TYPE_CHECKING:
    from conftest import Spawn

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

pytestmark = [needs_another_user, pytest.mark.processes("users, and what they see of others")]

# shows its command line, as browsers do, until it is told to open what stands there
BROWSER = """
import pathlib, sys, time
opened, told = map(pathlib.Path, sys.argv[1:3])
opened.write_text(sys.argv[3])
while not told.exists():
    time.sleep(0.01)
"""

THIEF = """
import re, sys, urllib.error, urllib.request

def links():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                text = file.read().decode(errors="replace")
        except OSError:  # it has ended
            continue
        yield from re.findall(f"http://{sys.argv[1]}/login[?]code=[^\\0]+", text)

while not (found := set(links())):
    pass
for link in found:
    for each in (link, link.replace(".here", ""), link.replace("127.0.0.1", "localhost")):
        for method in ("GET", "POST"):
            try:
                with urllib.request.urlopen(urllib.request.Request(each, method=method)) as answer:
                    print(method, answer.status, b"session" in answer.read(), flush=True)
            except urllib.error.HTTPError as error:
                print(method, error.code, False, flush=True)
"""


def test_a_link_in_the_command_line_of_a_browser_is_of_no_use_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, opened, told = (tmp_path / name for name in ("browser.py", "opened", "told"))
    script.write_text(BROWSER)
    monkeypatch.setenv("BROWSER", f"{sys.executable} {script} {opened} {told} %s")
    with running(IDLE, tmp_path) as program:
        program.wait_for("go")
        with program.start_monarch("dashboard", str(program.pid), "--browser", "--json") as shown:
            assert shown.stdout is not None
            with killed_after(60, shown):
                link = json.loads(shown.stdout.readline())["link"]
            url = link.partition("/login")[0]
            try:
                with stranger(THIEF, url.partition("//")[2]) as thief:
                    assert thief.stdout is not None
                    tried = thief.stdout.read().splitlines()
                assert tried == ["GET 200 False", "POST 401 False"] * 3
                # that browser, a little late
                own = opened.read_text()
                assert own.startswith(url) and own != link
                assert Asker(url).post(own.removeprefix(url))["role"] == "act"
                assert Asker(url).post(link.removeprefix(url))["role"] == "act"
            finally:
                told.touch()
                assert program.end() == 0
            with killed_after(60, shown):
                assert shown.wait() == 0


def test_a_socket_that_listens_at_the_address_of_a_closed_one_does_not_speak_for_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.socket() as caller:
            caller.bind(("127.0.0.2", 0))
            caller.connect(server.getsockname())
            with server.accept()[0] as connection:
                ends = connection.getpeername(), connection.getsockname()
                assert is_ours(*ends)
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1] + [0] * 7))
                caller.close()
                assert not is_ours(*ends)
                with socket.create_server(ends[0]):
                    assert not is_ours(*ends)


CROWD = """
import select, socket, sys
where, many, kept = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4])

def connected():
    while True:
        try:
            sock = socket.create_connection(where)
        except ConnectionError:  # it was refused before it knew
            continue
        sock.setblocking(False)
        return sock

held = [connected() for _ in range(many)]
told = False
while True:
    if len(held) <= kept and not told:
        told = True
        print(len(held), flush=True)
    for each in select.select(held, [], [])[0]:
        try:
            if each.recv(1 << 16):
                continue
        except OSError:
            pass
        held.remove(each)
        each.close()
        if not kept:
            held.append(connected())
"""


@contextmanager
def crowd(where: tuple[str, int], many: int, kept: int) -> Iterator[None]:
    """Many connections of another user who says nothing, when but so many of them are left.

    Args:
        kept: How many; 0 for one who comes again and again with all of them.
    """
    with stranger(CROWD, *map(str, (*where, many, kept))) as program:
        assert program.stdout is not None
        if kept:
            assert program.stdout.readline() == f"{kept}\n"
        yield


def test_who_comes_again_and_again_does_not_shut_the_owner_out_of_the_helper() -> None:
    simulated = {"ranks": 4, "fault": "none", "began": time.time(), "after": None}
    how = {"helper": "benchmarks.demo.helper", "more": {"simulated": simulated}}
    with admin_of(os.getpid(), address="127.0.0.1:0", **how) as (door, asker):
        assert asker.get("/v1/admin")
        to = urlsplit(door.url)
        with crowd((str(to.hostname), to.port or 0), 300, 64):
            pass  # one user has a quarter of the places
        with crowd((str(to.hostname), to.port or 0), 300, 0):
            for _ in range(20):
                assert asker.get("/v1/admin")


def test_others_leave_room_for_the_owner_at_a_shared_socket() -> None:
    with SharedListener(socket.create_server(("127.0.0.1", 0)).detach(), 16) as listener:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    held.append(listener.accept()[0])
                except ConnectionAbortedError:
                    continue
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        where = listener.getsockname()
        with crowd(where, 40, 4):
            ours = [socket.create_connection(where) for _ in range(13)]
            assert ours[-1].recv(1) == b"" and len(held) == 16  # all places are taken
            held.pop().close()  # the end of one makes room
            ours.append(socket.create_connection(where))
            wait_until(lambda: len(held) == 16, what="its place")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in held + ours:
            each.close()


def test_who_holds_connections_does_not_shut_the_owner_out_of_the_metrics(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics._Handler, "timeout", 3600)  # as the crowd may take its time
    with serving(metrics._Server(cast(Any, None), 0, "token")) as server:
        where = ("127.0.0.1", server.server_port)
        with crowd(where, 100, 16):
            status, body = Asker("http://{}:{}".format(*where)).raw("GET", "/metrics")
        assert status == 401 and b"send the token" in body
        for _ in range(10):  # who does not wait for his answer
            with socket.create_connection(where) as junk:
                junk.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1] + [0] * 7))
                junk.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100_000))
    assert capfd.readouterr().err == ""


@pytest.mark.may_keep("threads", "descriptors")  # it listens as long as the program lives
def test_who_holds_connections_does_not_shut_the_owner_out_of_the_debugger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(debugger, "_started", threading.Lock())
    monkeypatch.setenv("MONARCH_DEBUG_SERVER_HOST", "127.0.0.1")
    monkeypatch.setenv("MONARCH_DEBUG_SERVER_PORT", "0")
    said = debugger.start(cast(Any, None))
    assert said is not None
    port = int(said.partition("127.0.0.1:")[2].partition(";")[0])
    with crowd(("127.0.0.1", port), 100, 20):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as ours:
                ours.sendall(b"no token\n")
                with ours.makefile() as file:
                    assert "not the token" in file.read()


def test_who_holds_connections_does_not_use_up_a_forwarded_port(spawn: Spawn) -> None:
    procs = spawn()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", 0))
        where = free.getsockname()
        forwarder = procs.spawn("forwarder", PortForwarder)
        forwarder.forward.call_one(
            procs, server.getsockname()[1], procs, "{}:{}".format(*where)
        ).get()
        with crowd(where, 200, 128), socket.create_connection(where) as ours:
            ours.sendall(b"?")
            with ExitStack() as ends:
                said = b""
                readable: list[socket.socket] = [server]
                while not said:  # the others say nothing
                    for each in select.select(readable, [], [])[0]:
                        if each is server:
                            readable.append(ends.enter_context(server.accept()[0]))
                        else:
                            said += each.recv(1)
            assert said == b"?"
        forwarder.stop().get()


def test_who_comes_later_does_not_push_the_owner_out_of_the_gateway() -> None:
    trust = trust_for(secret=make_secret())
    with Net() as net:
        door = net.listen("tcp://127.0.0.1:0", trust)
        with socket.create_connection(door.address, timeout=PATIENCE) as slow:
            with crowd(door.address, 400, gateway.MOST_GREETINGS // 4):
                assert len(door.listener._greetings) == gateway.MOST_GREETINGS // 4 + 1
                net.connect(door, trust).wait_ready()
                with trust.client_context.wrap_socket(slow) as tls:
                    tls.sendall(trust.proof(b"client", tls.get_channel_binding("tls-unique")))
                    assert tls.recv(1) == b"\1"  # it is let in
