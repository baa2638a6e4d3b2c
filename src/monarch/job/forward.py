"""TCP ports of workers, reached from elsewhere.

Each connection goes as messages between two actors.

One listens where clients connect, the other connects to the port. Each direction is a loop that
reads, then has what it read written on the other side before it reads more: so a slow reader slows
its writer, as without anything in between. What ends a connection: both sides have sent all; one of
them, or one of the actors, or its host, is gone, and then it ends with a reset, so that nobody
takes what has come for the whole.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .._listening import Refusals, Who, has_room, who_at
from ..actor import (
    Actor,
    ActorError,
    HostMesh,
    MeshFailure,
    Point,
    ProcMesh,
    SupervisionError,
    concurrent_endpoint,
    current_rank,
    endpoint,
    this_proc,
)

# it is there already in an async actor; programs that only describe jobs need none of it
if TYPE_CHECKING:
    import asyncio

_MOST = 1 << 18  # bytes that are read at once
_LAST_PORT = 65535
_MOST_CONNECTIONS = 512  # at a time, of a port

# as SO_LINGER: the end of the connection is a reset, and what is not sent yet is lost
_RESET = struct.pack("ii", 1, 0)

Address = tuple[str, int]

logger = logging.getLogger("monarch.job")


class PortForwarder(Actor):
    """Reaches TCP ports of procs through actors: ``this_proc().spawn("forwarder", PortForwarder)``.

    Its `stop` ends all.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []  # who listens, and who connects

    def __supervise__(self, failure: MeshFailure) -> bool:
        for listeners, dialers in self._pairs:
            if listeners is failure.mesh:
                for rank in failure.ranks:
                    with suppress(SupervisionError):
                        dialers.slice(**Point(rank, dialers.extent)).close_all.broadcast()
        return True  # who owns the procs is told of those, too

    @endpoint
    async def forward(
        self,
        dst_proc_mesh: ProcMesh,
        dst_port: int | Callable[[Point], int],
        src_proc_mesh: ProcMesh,
        src_address: str | Callable[[Point], str],
    ) -> None:
        """Listen on the procs of one mesh, and forward to ports of the procs of another.

        Point by point, a connection here leads to the proc at the same point there.

        Args:
            dst_proc_mesh: Where the ports are, on the loopback interface.
            dst_port: Which; or a function of the point in the mesh.
            src_proc_mesh: Where to listen. It has the same extent.
            src_address: Where there, ``"address:port"``; or a function of the point in the mesh.
                Where several ranks of one host are to listen at one address, each connection
                goes to one of them.

        Raises:
            ValueError: The meshes differ in extent, or a port or an address is none.
            OSError: An address is taken, or is none of that machine.
        """
        if dst_proc_mesh.extent != src_proc_mesh.extent:
            raise ValueError(
                f"the meshes are paired point by point: {src_proc_mesh.extent} and"
                f" {dst_proc_mesh.extent} differ"
            )
        points = [Point(rank, dst_proc_mesh.extent) for rank in range(len(dst_proc_mesh))]
        ports = [_port(dst_port(point) if callable(dst_port) else dst_port) for point in points]
        addresses = [
            _address(src_address(point) if callable(src_address) else src_address)
            for point in points
        ]
        await self._pair(dst_proc_mesh, ports, src_proc_mesh, addresses)

    async def _pair(
        self, there: ProcMesh, ports: Sequence[int], here: ProcMesh, addresses: Sequence[Address]
    ) -> tuple[Any, Any]:
        dialers: Any = there.spawn("forward_to", _Dialer, ports)
        listeners: Any = here.spawn("forward_from", _Listener, addresses, dialers)
        try:
            await listeners.listen.call()
        except (ActorError, SupervisionError) as error:
            await listeners.stop("it can't listen")
            await dialers.stop("nobody listens")
            raise getattr(error, "exception", error) from None
        self._pairs.append((listeners, dialers))
        return listeners, dialers


class ForwardedPort:
    """A port of a host, as one of this machine. `close` ends it, with its connections.

    Args:
        host: One host.
        port: Its port, on its loopback interface.
        local: The port here, on the loopback interface; 0 for any free one.

    Attributes:
        local: The port here.

    Raises:
        OSError: The port here is taken.
        SupervisionError: The host is gone.
        ValueError: A port is none.
    """

    def __init__(self, host: HostMesh, port: int, local: int) -> None:
        _port(port)
        if local:
            _port(local)
        self._owner: Any = this_proc().spawn("port_forward", _HostForwarder)
        try:
            self._dialer, self.local = self._owner.open.call_one(host, port, local).get()
        except BaseException as error:
            self.close()
            raise getattr(error, "exception", error) from None

    def wait(self) -> None:
        """Wait until the host is lost.

        Raises:
            SupervisionError: It is; the text says why.
        """
        self._dialer.stay.call_one().get()

    def close(self) -> None:
        """End it."""
        self._owner.stop("the port is forwarded no more").get()


class _HostForwarder(PortForwarder):
    """Owns the proc on the host, in the client, so that its end is no failure of the program.

    Waiting callers are told.
    """

    @endpoint
    async def open(self, host: HostMesh, port: int, local: int) -> tuple[Any, int]:
        """Begin. Returns who connects, and the port here."""
        procs = host.spawn_procs(name="port_forward")
        listeners, dialers = await self._pair(procs, [port], this_proc(), [("127.0.0.1", local)])
        return dialers, await listeners.port.call_one()


class _Listener(Actor):
    """The side that clients connect to."""

    def __init__(self, addresses: Sequence[Address], dialers: Any) -> None:
        point = current_rank()
        self._address = addresses[point.rank]
        # ranks of one host, which serve in turn
        self._is_shared = addresses.count(self._address) > 1
        self._dialer = dialers.slice(**point)
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], Who] = {}
        self._numbers, self._refused = 0, Refusals()

    @endpoint
    async def listen(self) -> None:
        """Begin."""
        import asyncio

        self._server = await asyncio.start_server(
            self._serve,
            *self._address,
            limit=_MOST,
            reuse_address=True,
            reuse_port=self._is_shared or None,
        )

    @endpoint
    async def port(self) -> int:
        """The port at which it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import asyncio

        self._numbers += 1
        number, remote, whole = self._numbers, self._dialer, False
        task = asyncio.current_task()
        assert task is not None
        try:
            who = who_at(writer.get_extra_info("socket"))
            if not has_room(who, [*self._tasks.values()], _MOST_CONNECTIONS):
                return
            self._tasks[task] = who
            _hold_nothing(writer)
            await remote.open.call_one(number)
            await asyncio.gather(self._send(reader, number), self._receive(writer, number))
            whole = True
        except (ActorError, SupervisionError, OSError) as error:  # nobody is there, or is any more
            refused = getattr(error, "exception", None)
            if isinstance(refused, ConnectionRefusedError) and self._refused.next_is_told():
                logger.warning("connection %d was refused: %s", self._refused.count, refused)
        # by `__cleanup__` alone; up to Python 3.11, asyncio.streams shows one as an error
        except asyncio.CancelledError:
            pass
        finally:
            _end(writer, whole)
            if self._tasks.pop(task, None) is not None:
                with suppress(SupervisionError):
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


class _Dialer(Actor):
    """The side of the ports."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._port = ports[current_rank().rank]
        self._open: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    @concurrent_endpoint
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

    @concurrent_endpoint
    async def read(self, number: int) -> bytes:
        """Return the bytes that have come; none at the end."""
        return await self._open[number][0].read(_MOST)

    @concurrent_endpoint
    async def write(self, number: int, data: bytes) -> None:
        """Pass this on; nothing is the end."""
        writer = self._open[number][1]
        if data:
            writer.write(data)
            await writer.drain()
        else:
            writer.write_eof()

    @concurrent_endpoint
    async def close(self, number: int, whole: bool) -> None:
        """The connection has ended; `whole` if both sides have sent all."""
        if number in self._open:
            _end(self._open.pop(number)[1], whole)

    @concurrent_endpoint
    async def close_all(self) -> None:
        """Close all connections: the other side is gone."""
        self._reset()

    @concurrent_endpoint
    async def stay(self) -> None:
        """Answers never: who asks is told when this actor, or its host, is gone."""
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


def _port(port: Any) -> int:
    if type(port) is not int or not 0 < port <= _LAST_PORT:
        raise ValueError(f"a port is a number from 1 to {_LAST_PORT}, got {port!r}")
    return port


def _address(text: Any) -> Address:
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not host or not port.isdecimal():
        raise ValueError(f"an address is given as 'address:port', got {text!r}")
    return host.strip("[]"), _port(int(port))
