"""Byte streams to those who listen: `connect`.

An attempt goes through a name, its addresses one after the other, and the greeting, on the poller's
thread. What ends it: success; a reason; the stream being closed; `CONNECT_TIMEOUT` for the name and then
for the connection, of which each address gets its share, and `GREETING_TIMEOUT` for the rest.
"""

from __future__ import annotations

import errno
import functools
import os
import socket

from ..wire.channel import Channel, unix_name
from .flow import ByteStream, StreamEvents
from .greeting import GREETING_TIMEOUT, Greeting
from .peer_credentials import NOT_OPEN, is_open_to
from .poller import WRITE, Poller, Timer
from .resolver import Addresses, Resolver, is_literal
from .sockets import Address, tune
from .trust import OPEN, Trust

CONNECT_TIMEOUT = 3.0  # seconds
NOTHING_LISTENS = "nothing listens there", "there is no such socket"
"""How the reasons begin that tell of a host which answers, and of no listener on it."""
forwarded: set[str] = set()
"""Names of channels where another program listens for the peer, and is started again if it ends:
that nothing listens there meanwhile says nothing of the peer.
"""
_HOPELESS = {
    errno.EACCES, errno.EPERM, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EINVAL,
    errno.ENOTSOCK,
}  # fmt: skip
"""Refusals of this machine's kernel, which would refuse again; that a host or a route is missing
may be for a while.
"""

_resolver = Resolver()


def connect(poller: Poller, channel: Channel, trust: Trust, events: StreamEvents) -> ByteStream:
    """Start to connect to the process that listens on `channel`; returns at once.

    Errors are told to `events.closed`.
    """
    dial = Dial(poller, channel, trust, events)
    poller.call_soon(dial.start)
    return dial.stream


class Dial:
    """Makes one `ByteStream`, or tells `events` why there is none."""

    def __init__(
        self, poller: Poller, channel: Channel, trust: Trust, events: StreamEvents
    ) -> None:
        self.stream = ByteStream(poller, channel.name, lambda: poller.call_here_or_soon(self._end))
        self._poller = poller
        self._channel = channel
        self._trust = trust
        self._events = events
        # to try, the next one last
        self._addresses: list[tuple[socket.AddressFamily, Address]] = []
        self._patience = CONNECT_TIMEOUT  # seconds per address
        self._sock: socket.socket | None = None  # until it is connected
        self._greeting: Greeting | None = None
        self._timer: Timer | None = None
        self._over = False

    def start(self) -> None:
        channel = self._channel
        if self._over:
            return
        if hindrance := self._hindrance():
            self._fail(hindrance, True)
        elif not channel.is_tcp:
            self._try([(socket.AF_UNIX, unix_name(channel))])
        elif is_literal(channel.host):
            family = socket.AF_INET6 if ":" in channel.host else socket.AF_INET
            self._try([(family, (channel.host, channel.port))])
        else:
            self._wait_at_most(
                CONNECT_TIMEOUT, f"its address was not found within {CONNECT_TIMEOUT:g}s"
            )
            _resolver.resolve(channel.host, channel.port, lambda: not self._over, self._answered)

    def _hindrance(self) -> str | None:
        try:
            self._trust.require(self._channel)
        except ValueError as error:
            return str(error)
        if self._channel.dialable:
            return None
        return f"{self._channel.name} is where to listen; it cannot be dialed"

    def _answered(self, answer: Addresses | OSError) -> None:
        """The resolver's answer, on a thread of its own."""
        self._poller.call_soon(lambda: self._resolved(answer))

    def _resolved(self, answer: Addresses | OSError) -> None:
        if self._over:
            return
        if isinstance(answer, OSError):
            no_data = getattr(socket, "EAI_NODATA", socket.EAI_NONAME)
            unknown = answer.errno in (socket.EAI_NONAME, no_data)
            self._fail(f"its name could not be resolved: {answer.strerror or answer}", unknown)
        else:
            self._try([*answer])

    def _try(self, addresses: list[tuple[socket.AddressFamily, Address]]) -> None:
        self._addresses = addresses[::-1]
        # a host with a dead IPv6 address must not use up the time of its IPv4 one
        self._patience = CONNECT_TIMEOUT / max(1, len(addresses))
        self._try_next("it has no address")

    def _try_next(self, reason: str) -> None:
        """Connect to the next address, or fail with the error of the last."""
        final = False
        self._let_go()
        while self._addresses:
            family, address = self._addresses.pop()
            if self._trust.mode == OPEN and family != socket.AF_UNIX and not is_open_to(address[0]):
                reason, final = f"{address[0]} is open to other hosts: {NOT_OPEN}", True
                continue
            try:
                self._connect(family, address)
                return
            except (OSError, ValueError) as error:
                self._let_go()
                reason, final = _why_not_connected(error), _is_hopeless(error)
        self._fail(reason, final)

    def _connect(self, family: socket.AddressFamily, address: Address) -> None:
        sock = self._sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        if family != socket.AF_UNIX:
            tune(sock)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            self._wait_at_most(
                self._patience, f"nothing answered there within {self._patience:.2g}s"
            )
            self._poller.add(sock.fileno(), self._connected, WRITE)
        elif code:
            raise OSError(code, os.strerror(code))
        else:
            self._greet(sock)

    def _connected(self, events: int) -> None:
        sock = self._sock
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._try_next(_why_not_connected(OSError(code, os.strerror(code))))
        else:
            # the greeting adds it again, with a handler of its own
            self._poller.remove(sock.fileno())
            self._greet(sock)

    def _greet(self, sock: socket.socket) -> None:
        self._sock = None
        self._events.answered()
        self._wait_at_most(
            GREETING_TIMEOUT, f"it did not say who it is within {GREETING_TIMEOUT:g}s"
        )
        tls = self._trust.uses_tls(self._channel)
        self._greeting = Greeting(
            self._poller, sock, self._trust, tls=tls, server_side=False, done=self._done, failed=self._fail
        )  # fmt: skip
        self._greeting.start()

    def _done(self, sock: socket.socket) -> None:
        self._end()
        self.stream.opened(sock, self._events)

    def _fail(self, reason: str, final: bool) -> None:
        self._end()
        if self._channel.name in forwarded:  # then it must not begin as `NOTHING_LISTENS`
            reason = f"at its forwarded port: {reason}"
        self.stream.failed(reason, final, self._events)

    def _wait_at_most(self, seconds: float, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._poller.call_later(seconds, functools.partial(self._too_late, reason))

    def _too_late(self, reason: str) -> None:
        if self._sock is not None:
            self._try_next(reason)
        else:
            self._fail(reason, False)

    def _end(self) -> None:
        self._over = True
        self._let_go()
        if self._greeting is not None:
            self._greeting.abort()  # without effect when it has succeeded

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sock is not None:
            self._poller.remove(self._sock.fileno())
            self._sock.close()
            self._sock = None


def _is_hopeless(error: OSError | ValueError) -> bool:
    return isinstance(error, ValueError) or error.errno in _HOPELESS


def _why_not_connected(error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return str(error)
    if error.errno == errno.ECONNREFUSED:
        return f"{NOTHING_LISTENS[0]}: it is not up yet, or no longer"
    if error.errno == errno.ENOENT:
        return f"{NOTHING_LISTENS[1]}: it is not up yet, or no longer"
    if error.errno == errno.EAGAIN:
        return "it has too many unanswered connections"
    return f"it could not be reached: {error.strerror or error}"
