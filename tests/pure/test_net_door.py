"""The socket at which a process listens: a crowd before it, and strangers."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from monarch._core.net import unix
from monarch._core.net.door import Door
from monarch._core.net.greeting import Greeting, Steps
from monarch._core.net.listener import listen
from monarch._core.net.poller import Poller, Timer
from monarch._core.net.trust import trust_for
from monarch._core.wire.address import ProcAddress, random_name
from monarch._core.wire.channel import parse_channel

CROWD = 400


def run_until(poller: Poller, condition: Callable[[], bool]) -> None:
    """Serve; what ends it is `condition`, looked at between turns."""

    def look() -> None:
        if condition():
            poller.stop()
        else:
            poller.call_soon(look)

    poller._stopped = False
    poller.call_soon(look)
    poller.run()


class Entry:
    """A door, and a poller for it."""

    def __init__(self, address: ProcAddress) -> None:
        self.address = address
        self.poller = Poller()
        self.inside: list[socket.socket] = []
        self.door = Door(
            self.poller, unix.listen(address), logging.getLogger("test"), self.inside.append
        )

    def close(self) -> None:
        self.door.close()
        self.poller.close()
        for sock in self.inside:
            sock.close()
        unix.release_all(self.address.host)


@pytest.fixture
def entry() -> Iterator[Entry]:
    entry = Entry(ProcAddress(random_name(), "agent"))
    yield entry
    entry.close()


@pytest.fixture
def crowd(entry: Entry) -> Iterator[list[socket.socket]]:
    crowd = [unix.connect(entry.address) for _ in range(CROWD)]
    yield crowd
    for sock in crowd:
        sock.close()


def test_a_crowd_at_the_door_delays_no_peer_inside(
    entry: Entry, crowd: list[socket.socket]
) -> None:
    here, there = socket.socketpair()
    served: list[int] = []

    def serve(events: int) -> None:
        here.recv(1)
        served.append(len(entry.inside))

    with here, there:
        entry.poller.add(here.fileno(), serve)
        there.send(b"x" * 10)
        run_until(entry.poller, lambda: len(served) == 10)
        assert len(entry.inside) <= 11 * 16
        entry.poller.remove(here.fileno())
    run_until(entry.poller, lambda: len(entry.inside) == CROWD)


def test_who_knocks_and_runs_is_not_let_in_and_the_door_rests_after_some_of_them(
    entry: Entry,
) -> None:
    rests: list[float] = []
    open_again = entry.poller.call_later

    def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
        rests.append(seconds)
        return open_again(seconds, callback)

    entry.poller.call_later = call_later  # type: ignore[method-assign]
    for _ in range(CROWD):
        unix.connect(entry.address).close()
    with unix.connect(entry.address):  # behind them all
        run_until(entry.poller, lambda: bool(entry.inside))
    assert len(entry.inside) == 1
    assert len(rests) == CROWD // 64


def test_strangers_are_turned_away_with_a_few_words_in_the_log(
    entry: Entry,
    crowd: list[socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    turned_away = 0
    check = unix.check_peer

    def checked(sock: socket.socket) -> int:
        nonlocal turned_away
        turned_away += 1
        return check(sock)

    monkeypatch.setattr(unix, "check_peer", checked)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    run_until(entry.poller, lambda: turned_away == CROWD)
    assert entry.inside == []
    assert all(sock.recv(1) == b"" for sock in crowd)
    assert 1 <= len(caplog.records) <= 10
    assert "not as user 12345" in caplog.text


def client_hello(context: ssl.SSLContext) -> bytes:
    going = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), going).do_handshake()
    return going.read()


def test_many_handshakes_delay_no_peer_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    secure = Greeting._secure

    def counted(self: Greeting, context: ssl.SSLContext) -> Steps:
        begun[-1] += 1
        return secure(self, context)

    monkeypatch.setattr(Greeting, "_secure", counted)
    trust = trust_for(secret="a secret for nobody but this test")
    hello = client_hello(trust.client_context)
    with ExitStack() as stack:
        poller = Poller()
        stack.callback(poller.close)
        door = listen(
            poller,
            parse_channel("tcp://127.0.0.1:0"),
            trust,
            lambda stream: pytest.fail("it was let in"),
        )
        stack.callback(door.close)
        for _ in range(60):
            sock = stack.enter_context(
                socket.create_connection((door.channel.host, door.channel.port), timeout=60)
            )
            sock.sendall(hello)

        def turn() -> None:
            begun.append(0)
            poller.call_soon(turn)

        begun.append(0)
        poller.call_soon(turn)
        run_until(poller, lambda: sum(begun) == 60)
    assert max(begun) == 1
