"""The socket at which a process listens: a crowd before it, and strangers."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from monarch._core.net import unix
from monarch._core.net.door import Door
from monarch._core.net.poller import Poller
from monarch._core.wire.address import ProcAddress, random_name

CROWD = 400


class Entry:
    """A door, and a poller for it."""

    def __init__(self, address: ProcAddress) -> None:
        self.address = address
        self.poller = Poller()
        self.inside: list[socket.socket] = []
        self.door = Door(self.poller, unix.listen(address), logging.getLogger("test"), self.inside.append)

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Serve; what ends it is `condition`, looked at between turns."""

        def look() -> None:
            if condition():
                self.poller.stop()
            else:
                self.poller.call_soon(look)

        self.poller._stopped = False
        self.poller.call_soon(look)
        self.poller.run()

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


def test_a_crowd_at_the_door_keeps_nobody_waiting_who_is_inside(entry: Entry, crowd: list[socket.socket]) -> None:
    here, there = socket.socketpair()
    served: list[int] = []

    def serve(events: int) -> None:
        here.recv(1)
        served.append(len(entry.inside))

    with here, there:
        entry.poller.add(here.fileno(), serve)
        there.send(b"x" * 10)
        entry.run_until(lambda: len(served) == 10)
        assert len(entry.inside) <= 11 * 16
        entry.poller.remove(here.fileno())
    entry.run_until(lambda: len(entry.inside) == CROWD)


def test_strangers_are_turned_away_with_a_few_words_in_the_log(
    entry: Entry, crowd: list[socket.socket], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turned_away = 0
    check = unix.check_peer

    def checked(sock: socket.socket) -> int:
        nonlocal turned_away
        turned_away += 1
        return check(sock)

    monkeypatch.setattr(unix, "check_peer", checked)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    entry.run_until(lambda: turned_away == CROWD)
    assert entry.inside == []
    assert all(sock.recv(1) == b"" for sock in crowd)
    assert 1 <= len(caplog.records) <= 10
    assert "not as user 12345" in caplog.text
