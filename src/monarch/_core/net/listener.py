"""Byte streams from those who connect: `listen`.

A socket that listens, and those who have connected to it and not yet proved who they are.

What ends an unfinished connection: success; a reason; `GREETING_TIMEOUT`; or that `MOST_GREETINGS`
are there, of which the oldest goes, one of others before one of our user. Another user of this
host, or an address of another host, has a quarter of them at most: further ones are refused before
anything is made, and keep no others waiting. Memory for them is bounded by that number, and until
its first byte each costs a descriptor and little else: any number of strangers may knock. A step of
a handshake takes up to a millisecond, so there is one per turn: between two of them, those who are
in are served, and no connection is accepted while others wait for their steps. Refusals are logged
with the reason and the peer's address, some lines per period.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..._lazy import lazy_logger
from ..wire.channel import Channel, unix_name
from .door import Warnings
from .flow import ByteStream, StreamEvents
from .greeting import GREETING_TIMEOUT, Greeting
from .peer_credentials import NOT_OPEN, Who, is_open_to, who_at
from .poller import READ, Poller, Timer
from .sockets import listen_on, peer_name
from .trust import OPEN, Trust
from .unix import closed_on_error

MOST_GREETINGS = 256
_MOST_OF_OTHERS = MOST_GREETINGS // 4  # of one user, or address, but of our user
_ACCEPTS = 16  # in one turn
_MOST_DUE = 16  # that wait for their next step while others are accepted
_NO_DESCRIPTOR_PAUSE = 0.1  # seconds until a listener tries again

logger = lazy_logger("monarch.net")


def listen(
    poller: Poller, channel: Channel, trust: Trust, on_stream: Callable[[ByteStream], StreamEvents]
) -> Listener:
    """Listen on `channel`, or on what it binds.

    Args:
        on_stream: Called on the poller's thread for each peer that has proved who it is; returns
            whom its stream tells.

    Raises:
        AddressError: It cannot be listened on.
        ValueError: `trust` does not protect it; or a knob of TCP has a value that this system does
            not know.
    """
    where = channel.listening
    trust.require(where)
    with closed_on_error(listen_on(where)) as sock:
        if where.is_tcp and trust.mode == OPEN and not is_open_to(sock.getsockname()[0]):
            raise ValueError(f"{where.name} would be open to other hosts: {NOT_OPEN}")
        return Listener(poller, channel, where, sock, trust, on_stream)


class Listener:
    """A listening socket, and those who have connected and not yet proved who they are.

    Attributes:
        channel: As it was given, with the real port instead of 0 or a descriptor.
    """

    def __init__(
        self,
        poller: Poller,
        channel: Channel,
        bound: Channel,
        sock: socket.socket,
        trust: Trust,
        on_stream: Callable[[ByteStream], StreamEvents],
    ) -> None:
        if channel.is_tcp and (channel.port == 0 or channel.fd >= 0):
            channel = channel._replace(port=sock.getsockname()[1] if bound.is_tcp else 0, fd=-1)
        self.channel = channel
        self._poller = poller
        self._sock = sock
        self._tls = trust.uses_tls(bound)
        self._trust = trust
        self._on_stream = on_stream
        self._path = unix_name(bound) if bound.scheme == "ipc" else None
        self._inode = os.stat(self._path).st_ino if self._path else 0
        # when each is too late, and the peer; oldest first
        self._greetings: dict[Greeting, tuple[float, str, Who]] = {}
        # next steps of those that have sent something
        self._due: deque[Callable[[], None]] = deque()
        self._timer: Timer | None = None
        self._warnings = Warnings(poller, logger)
        self._closed = False
        if self._tls:
            _ = trust.server_context  # made now, and not while a peer waits
        poller.add(sock.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening, and drop those who have not proved who they are; streams live on.

        From any thread.
        """
        if not self._closed:
            self._closed = True
            self._poller.remove(self._sock.fileno())
            self._remove_path()
            self._sock.close()
            self._poller.call_here_or_soon(self._drop_all)

    def _remove_path(self) -> None:
        with suppress(OSError):  # it is gone
            # another process may have bound the path since, after it was removed
            if self._path is not None and os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)

    def _drop_all(self) -> None:
        for greeting in self._greetings:
            greeting.abort()
        self._greetings.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._warnings.close()

    # on the poller's thread

    def _accept(self, events: int) -> None:
        for _ in range(_ACCEPTS):
            # they wait in the kernel's backlog meanwhile
            if len(self._due) > _MOST_DUE:
                return
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._cannot_accept(error)
                return
            try:
                self._greet(sock)
            except OSError:  # it has gone again
                sock.close()

    def _cannot_accept(self, error: OSError) -> None:
        """No descriptor is left, most likely: the oldest that is unknown gives up its own; and not
        at once again.
        """
        if self._closed:
            return
        self._warnings.warn(f"cannot accept connections on {self.channel.name}: {error.strerror}")
        self._make_room("no descriptor is left for it")
        # else the listener, which stays readable, would keep the poller's thread busy
        self._poller.modify(self._sock.fileno(), 0)
        self._poller.call_later(_NO_DESCRIPTOR_PAUSE, self._accept_again)

    def _accept_again(self) -> None:
        if not self._closed:
            self._poller.modify(self._sock.fileno(), READ)

    def _greet(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        peer, who = peer_name(sock), who_at(sock)
        of_same = sum(each == who for _, _, each in self._greetings.values())
        if of_same >= _MOST_OF_OTHERS and who != os.geteuid():
            sock.close()
            self._warn(peer, f"{of_same} of {who} have not said yet who they are")
            return
        if len(self._greetings) >= MOST_GREETINGS:
            self._make_room("too many others came after it")

        def done(sock: socket.socket) -> None:
            self._greetings.pop(greeting, None)
            self._let_in(sock, peer)

        def failed(reason: str, final: bool) -> None:
            self._greetings.pop(greeting, None)
            self._warn(peer, reason)

        greeting = Greeting(
            self._poller, sock, self._trust, tls=self._tls, server_side=True, done=done, failed=failed, in_turn=self._queue
        )  # fmt: skip
        self._greetings[greeting] = time.monotonic() + GREETING_TIMEOUT, peer, who
        if self._timer is None:
            self._timer = self._poller.call_later(GREETING_TIMEOUT, self._drop_late)
        greeting.start()

    def _queue(self, step: Callable[[], None]) -> None:
        self._due.append(step)
        if len(self._due) == 1:
            self._poller.call_soon(self._step)

    def _step(self) -> None:
        try:
            self._due[0]()
        finally:
            self._due.popleft()
            if self._due:
                self._poller.call_soon(self._step)

    def _let_in(self, sock: socket.socket, peer: str) -> None:
        stream = ByteStream(self._poller, peer)
        if self._closed:
            sock.close()
            return
        with closed_on_error(sock):
            events = self._on_stream(stream)
        stream.opened(sock, events)

    def _make_room(self, reason: str) -> None:
        """Drop the oldest: of others, if there are any."""
        ours = os.geteuid()
        by_age = sorted(self._greetings, key=lambda each: self._greetings[each][2] == ours)
        for oldest in by_age[:1]:
            self._drop(oldest, reason)

    def _drop(self, greeting: Greeting, reason: str) -> None:
        _, peer, _ = self._greetings.pop(greeting)
        greeting.abort()
        self._warn(peer, reason)

    def _drop_late(self) -> None:
        """One timer serves all: it is set for the oldest."""
        self._timer = None
        now = time.monotonic()
        while self._greetings:
            oldest, (until, _, _) = next(iter(self._greetings.items()))
            if until > now:
                self._timer = self._poller.call_later(until - now, self._drop_late)
                return
            self._drop(oldest, f"it did not say who it is within {GREETING_TIMEOUT:g}s")

    def _warn(self, peer: str, reason: str) -> None:
        self._warnings.warn(f"refused a connection from {peer} to {self.channel.name}: {reason}")
