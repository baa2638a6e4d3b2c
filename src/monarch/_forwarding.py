"""Connections that are forwarded, as messages between two actors.

One listens where clients connect, the other connects to the port. Each direction is a loop that
reads, then has what it read written on the other side before it reads more: so a slow reader slows
its writer, as without anything in between. What ends a connection: both sides have sent all; one of
them, or one of the actors, or its host, is gone, and then it ends with a reset, so that a
part is not taken for the whole.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import actor
from ._core.plane import random_uid
from ._listening import Refusals, Who, has_room, who_at

# it is there already in an async actor; programs that only describe jobs need none of it
if TYPE_CHECKING:
    import asyncio

_MOST = 1 << 18  # bytes that are read at once
_MOST_CONNECTIONS = 512  # at a time, of a port

# as SO_LINGER: closing the connection resets it, and unsent data is lost
_RESET = struct.pack("ii", 1, 0)

Address = tuple[str, int]

logger = logging.getLogger("monarch.job")


async def relay(there: actor.ProcMesh, port: int, here: actor.ProcMesh) -> list[int]:
    """Listen on procs, each at any port of its loopback interface, for a port of one proc.

    Until these procs end. They let in this user alone.

    Args:
        there: The one proc.
        port: Its port, on its loopback interface.
        here: The procs.

    Returns:
        The ports of those.
    """
    dialer = there.spawn("forward_to", Dialer, [port])
    addresses = [("127.0.0.1", 0)] * len(here)
    listeners = here.spawn("forward_from", Listener, addresses, dialer, ours=True)
    await listeners.listen.call()
    return list((await listeners.port.call()).values())


class Listener(actor.Actor):
    """The side that clients connect to.

    Args:
        addresses: Where, of each rank.
        dialers: The other sides, point by point, or one for all.
        ours: Whether no other user is let in.
    """

    def __init__(self, addresses: Sequence[Address], dialers: Any, ours: bool = False) -> None:
        point = actor.current_rank()
        self._address = addresses[point.rank]
        # by ranks of one host, which serve in turn; None, as some systems can't, where it is of no use
        shared = self._address[1] != 0 and addresses.count(self._address) > 1
        self._reuse_port = shared or None
        self._dialer = dialers.slice(**point) if len(dialers) > 1 else dialers
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], Who] = {}
        self._ours = ours
        self._refused = Refusals()

    @actor.endpoint
    async def listen(self) -> None:
        """Begin."""
        import asyncio

        self._server = await asyncio.start_server(
            self._serve,
            *self._address,
            limit=_MOST,
            reuse_address=True,
            reuse_port=self._reuse_port,
        )

    @actor.endpoint
    async def port(self) -> int:
        """The port at which it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import asyncio

        number, remote, whole = random_uid(), self._dialer, False
        task = asyncio.current_task()
        assert task is not None
        try:
            who = who_at(writer.get_extra_info("socket"))
            if self._ours and who != os.geteuid():
                return
            if not has_room(who, [*self._tasks.values()], _MOST_CONNECTIONS):
                return
            self._tasks[task] = who
            _hold_nothing(writer)
            await remote.open.call_one(number)
            await asyncio.gather(self._send(reader, number), self._receive(writer, number))
            whole = True
        except (actor.ActorError, actor.SupervisionError, OSError) as error:
            # nothing listens there now
            refused = getattr(error, "exception", None)
            if isinstance(refused, ConnectionRefusedError) and self._refused.next_is_told():
                logger.warning("connection %d was refused: %s", self._refused.count, refused)
        # by `__cleanup__` alone; up to Python 3.11, asyncio.streams shows one as an error
        except asyncio.CancelledError:
            pass
        finally:
            _end(writer, whole)
            if self._tasks.pop(task, None) is not None:
                with suppress(actor.SupervisionError):
                    remote.close.broadcast(number, whole)

    async def _send(self, reader: asyncio.StreamReader, number: int) -> None:
        data = b"?"
        while data:
            data = await reader.read(_MOST)
            await self._dialer.write.call_one(number, data)

    async def _receive(self, writer: asyncio.StreamWriter, number: int) -> None:
        while data := await self._dialer.read.call_one(number):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def __cleanup__(self, exc: Exception | None) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        for task in tasks:
            await task


class Dialer(actor.Actor):
    """The side of the ports."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._port = ports[actor.current_rank().rank]
        self._open: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    @actor.concurrent_endpoint
    async def open(self, number: int) -> None:
        """Connect."""
        import asyncio

        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_MOST)
        except ConnectionRefusedError:
            text = f"nothing listens on 127.0.0.1:{self._port} of {socket.gethostname()}"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text) from None
        _hold_nothing(writer)
        self._open[number] = reader, writer

    @actor.concurrent_endpoint
    async def read(self, number: int) -> bytes:
        """Return the bytes that have come; none at the end."""
        return await self._open[number][0].read(_MOST)

    @actor.concurrent_endpoint
    async def write(self, number: int, data: bytes) -> None:
        """Pass this on; nothing is the end."""
        writer = self._open[number][1]
        if data:
            writer.write(data)
            await writer.drain()
        else:
            writer.write_eof()

    @actor.concurrent_endpoint
    async def close(self, number: int, whole: bool) -> None:
        """The connection has ended; `whole` if both sides have sent all."""
        if number in self._open:
            _end(self._open.pop(number)[1], whole)

    @actor.concurrent_endpoint
    async def close_all(self) -> None:
        """Close all connections: the other side is gone."""
        self._reset()

    @actor.concurrent_endpoint
    async def stay(self) -> None:
        """Answers never: the caller is told when this actor, or its host, is gone."""
        import asyncio

        await asyncio.Event().wait()

    async def __cleanup__(self, exc: Exception | None) -> None:
        self._reset()

    def _reset(self) -> None:
        while self._open:
            _end(self._open.popitem()[1][1], whole=False)


def _hold_nothing(writer: asyncio.StreamWriter) -> None:
    """Have `drain` wait until the kernel has all."""
    writer.transport.set_write_buffer_limits(high=0)


def _end(writer: asyncio.StreamWriter, whole: bool) -> None:
    if not whole:
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
