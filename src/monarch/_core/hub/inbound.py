"""The connections that other processes have made to this one, over which their requests come.

`message_hub` has one `Inbound`. It accepts a connection, takes the greeting, which names the
process at the other end, and tells the hub when the connection is lost.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from ..._lazy import lazy_logger
from ..net.connection import CloseHandler, Connection, FrameHandler
from ..net.door import Door
from ..net.poller import Poller
from ..wire.address import ProcAddress
from ..wire.frame import HELLO, PROTOCOL_VERSION, Frame

logger = lazy_logger("monarch.runtime")


def hello(address: ProcAddress) -> Frame:
    """The first frame of a connection.

    A process says its name; that it may is known from its uid.
    """
    return Frame(HELLO, PROTOCOL_VERSION, 0, 0, 0, 0, "\0".join(address).encode(), b"")


class Inbound(dict[Connection, "ProcAddress | None"]):
    """Connections, with the process at the other end once it has said who it is.

    Args:
        poller: That of this process.
        serve: Makes a connection of a socket.
        dispatch: Takes the frames that come after the greeting.
        lost: Told of each process that has lost its connection, on the poller's thread.
    """

    def __init__(
        self,
        poller: Poller,
        serve: Callable[[socket.socket, FrameHandler, CloseHandler], Connection],
        dispatch: FrameHandler,
        lost: Callable[[ProcAddress], None],
    ) -> None:
        self._serve = serve
        self._dispatch = dispatch
        self._tell_lost = lost
        self._poller = poller
        self._door: Door | None = None

    @property
    def is_open(self) -> bool:
        """True once callers have been let in."""
        return self._door is not None

    def open(self, listener: socket.socket) -> None:
        """Let in those who connect to a socket that listens; owned by this object from now on."""
        self._door = Door(self._poller, listener, logger, self._let_in)

    def _let_in(self, sock: socket.socket) -> None:
        self[self._serve(sock, self._greeted, self._lost)] = None

    def _greeted(self, connection: Connection, frame: Frame) -> None:
        """The first frame of a connection says who connects; nothing is unpickled before."""
        assert self._door is not None
        host, separator, proc = frame.meta.decode(errors="replace").partition("\0")
        if frame.kind != HELLO or frame.flags != PROTOCOL_VERSION or not separator:
            self._door.warn(
                f"refused a connection: expected a greeting in protocol {PROTOCOL_VERSION}"
            )
            self._door.stranger_left()
            self.pop(connection, None)
            connection.close()
            return
        connection.peer = self[connection] = ProcAddress(host, proc)
        # from now on without a look at the greeting: this is on the path of each message
        connection.on_frame = self._dispatch

    def _lost(self, connection: Connection, reason: str) -> None:
        address = self.pop(connection, None)
        if address is not None:
            self._tell_lost(address)
        elif self._door is not None:
            self._door.stranger_left()

    def shut(self, timeout: float) -> None:
        """Let in no new caller, who would get no answer, and write the queued frames."""
        if self._door is not None:
            self._door.close()
        for connection in list(self):
            connection.flush(timeout)

    def close(self) -> None:
        for connection in list(self):
            connection.close()

    def abandon(self) -> None:
        """Let go of every descriptor in a forked child, and send nothing."""
        for connection in self:
            connection.abandon()
        if self._door is not None:
            self._door.abandon()
