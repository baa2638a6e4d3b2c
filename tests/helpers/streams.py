"""Streams for tests: a poller on a thread, and inboxes that keep what streams tell."""

from __future__ import annotations

import threading
from collections.abc import Callable

from helpers.waiting import PATIENCE
from monarch._core.net.dial import connect
from monarch._core.net.flow import ByteStream
from monarch._core.net.listener import Listener, listen
from monarch._core.net.poller import Poller
from monarch._core.net.trust import Trust
from monarch._core.wire.channel import Channel, parse_channel


class Inbox:
    """What one stream has told; waits for it."""

    stream: ByteStream

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_ready = False
        self.end: tuple[str, bool] | None = None
        self.wrong: list[str] = []
        self._changed = threading.Condition()

    def answered(self) -> None:
        pass

    def ready(self) -> None:
        with self._changed:
            if self.is_ready or self.end:
                self.wrong.append("ready twice, or after the end")
            self.is_ready = True
            self._changed.notify_all()

    def data(self, chunk: memoryview) -> None:
        with self._changed:
            if not self.is_ready or self.end:
                self.wrong.append(f"{len(chunk)} bytes before it was ready, or after the end")
            self.received += chunk
            self._changed.notify_all()

    def closed(self, reason: str, final: bool) -> None:
        with self._changed:
            if self.end:
                self.wrong.append("closed twice")
            self.end = reason, final
            self._changed.notify_all()

    def wait(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), (
                self.is_ready,
                len(self.received),
                self.end,
            )

    def wait_ready(self) -> Inbox:
        self.wait(lambda: self.is_ready or self.end)
        assert self.is_ready, self.end
        return self

    def wait_bytes(self, count: int) -> bytes:
        self.wait(lambda: len(self.received) >= count or self.end)
        assert len(self.received) >= count, (len(self.received), self.end)
        return bytes(self.received)

    def wait_closed(self) -> tuple[str, bool]:
        self.wait(lambda: self.end)
        assert self.end is not None
        return self.end


class Door:
    """A listener, and the inboxes of those whom it has let in."""

    def __init__(self, poller: Poller, channel: Channel, trust: Trust) -> None:
        self.guests: list[Inbox] = []
        self._changed = threading.Condition()
        self.listener: Listener = listen(poller, channel, trust, self._let_in)

    @property
    def channel(self) -> Channel:
        return self.listener.channel

    @property
    def address(self) -> tuple[str, int]:
        return self.channel.host, self.channel.port

    def _let_in(self, stream: ByteStream) -> Inbox:
        inbox = Inbox()
        inbox.stream = stream
        with self._changed:
            self.guests.append(inbox)
            self._changed.notify_all()
        return inbox

    def wait_guest(self, index: int = 0) -> Inbox:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.guests) > index, PATIENCE), (
                "nobody was let in"
            )
        return self.guests[index].wait_ready()


class Net:
    """A poller on a thread; closes what was made with it."""

    def __init__(self) -> None:
        self.poller = Poller()
        self._thread = threading.Thread(target=self.poller.run, name="test-poller")
        self._doors: list[Door] = []
        self._inboxes: list[Inbox] = []

    def __enter__(self) -> Net:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        inboxes = self._inboxes + [guest for door in self._doors for guest in door.guests]
        for door in self._doors:
            door.listener.close()
        for inbox in inboxes:
            inbox.stream.close()
        self.settle()
        self.poller.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.poller.close()
        assert [inbox.wrong for inbox in inboxes if inbox.wrong] == []

    def listen(self, address: str, trust: Trust) -> Door:
        door = Door(self.poller, parse_channel(address), trust)
        self._doors.append(door)
        return door

    def connect(self, to: Door | str, trust: Trust) -> Inbox:
        inbox = Inbox()
        channel = parse_channel(to) if isinstance(to, str) else to.channel
        inbox.stream = connect(self.poller, channel, trust, inbox)
        self._inboxes.append(inbox)
        return inbox

    def pair(self, address: str, trust: Trust) -> tuple[Inbox, Inbox]:
        """The two ends of a stream."""
        door = self.listen(address, trust)
        caller = self.connect(door, trust)
        return caller.wait_ready(), door.wait_guest()

    def settle(self) -> None:
        """Wait until the poller has done what it was asked before, and polled once."""
        for _ in range(2):
            done = threading.Event()
            self.poller.call_soon(done.set)
            assert done.wait(PATIENCE)
