"""Byte streams between hosts whose peers have proved their identity: `connect`, `listen`.

`trust` says who is let in and why that is sound, `greeting` carries it out, `flow` moves the bytes;
`dial` and `listener` are the two ways to get there.
"""

from __future__ import annotations

from collections.abc import Callable

from ..wire.channel import Channel
from .dial import Dial
from .flow import ByteStream, StreamEvents
from .listener import Listener
from .peer_credentials import NOT_OPEN, is_open_to
from .poller import Poller
from .sockets import listen_on
from .trust import OPEN, Trust

__all__ = ["ByteStream", "Listener", "StreamEvents", "connect", "listen"]


def connect(poller: Poller, channel: Channel, trust: Trust, events: StreamEvents) -> ByteStream:
    """Start to connect to whoever listens on `channel`; returns at once.

    What goes wrong is told to `events.closed`.
    """
    dial = Dial(poller, channel, trust, events)
    poller.call_soon(dial.start)
    return dial.stream


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
    where = channel.bind or channel
    trust.require(where)
    sock = listen_on(where)
    try:
        if where.is_tcp and trust.mode == OPEN and not is_open_to(sock.getsockname()[0]):
            raise ValueError(f"{where.name} would be open to other hosts: {NOT_OPEN}")
        return Listener(poller, channel, where, sock, trust, on_stream)
    except BaseException:
        sock.close()
        raise
