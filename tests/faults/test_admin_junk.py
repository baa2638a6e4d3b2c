"""What strangers send to the admin interface is refused, and told in few lines."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from helpers.admin import IDLE, admin_of
from helpers.terminals import running

if TYPE_CHECKING:
    from monarch.admin.door import Door

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

MANY = 100
UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13"
JUNK = {
    "an origin that is no URL": ("POST /v1/root HTTP/1.1\r\nOrigin: http://[x", 403),
    "an origin without an end": ("POST /v1/root HTTP/1.1\r\nOrigin: http://[::1", 403),
    "no origin": ("POST /v1/root HTTP/1.1\r\nOrigin: \u2100:\u212b\xff", 403),
    "no HTTP": ("\x16\x03\x01", 400),
    "no method": ("\xff / HTTP/1.1", 400),
    "another protocol": (f"GET /v1/root HTTP/1.1\r\n{UPGRADE}", 401),
    "a foreign name": ("GET http://[x HTTP/1.1", 401),
}


def status_of(door: Door, head: str) -> int:
    to = urlsplit(door.url)
    with socket.create_connection(("127.0.0.1", to.port or 0)) as stranger:
        begun = head.encode("utf-8", "replace")
        stranger.sendall(begun + f"\r\nHost: {to.netloc}\r\n\r\n".encode())
        with stranger.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def test_junk_is_refused_and_counted_in_few_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(IDLE, tmp_path) as program:
        program.wait_for("go")
        with admin_of(program.pid) as (door, asker):
            for name, (head, status) in JUNK.items():
                assert {status_of(door, head) for _ in range(MANY)} == {status}, name
            assert asker.get("/v1/root")["children"]
    shown = capfd.readouterr().err
    print(shown)
    assert "Traceback" not in shown
    lines = [line for line in shown.splitlines() if line.startswith("monarch admin: ")]
    # those that are no HTTP, and those that ask for another protocol
    assert "(1 such so far)" in lines[0] and "(256 such so far)" in lines[-1]
    assert len(lines) == len(range(9))  # 1, 2, 4, ...
