"""TCP ports of workers, reached from elsewhere: each connection goes as messages between two actors.

One listens where clients connect, the other connects to the port. Each direction is a loop that reads, then has what it read
written on the other side before it reads more: so a slow reader slows its writer, as without anything in between. What ends a
connection: both sides have sent all; one of them, or one of the actors, or its host, is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..actor import (
    Actor,
    ActorError,
    MeshFailure,
    Point,
    ProcMesh,
    SupervisionError,
    concurrent_endpoint,
    current_rank,
    endpoint,
)

if TYPE_CHECKING:  # it is there already in an async actor; programs that only describe jobs need none of it
    import asyncio

_MOST = 1 << 18  # bytes that are read at once
_LAST_PORT = 65535

Address = tuple[str, int]


class PortForwarder(Actor):
    """Reaches TCP ports of procs through actors: ``this_proc().spawn("forwarder", PortForwarder)``. Its `stop` ends all."""

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
        """Listen on the procs of one mesh, and connect who comes to ports of the procs of another, point by point.

        Args:
            dst_proc_mesh: Where the ports are, on the loopback interface.
            dst_port: Which; or a function of the point in the mesh.
            src_proc_mesh: Where to listen. It has the same extent.
            src_address: Where there, ``"address:port"``; or a function of the point in the mesh.

        Raises:
            ValueError: The meshes differ in extent, or a port or an address is none.
            OSError: An address is taken, or is none of that machine.
        """
        if dst_proc_mesh.extent != src_proc_mesh.extent:
            raise ValueError(
                f"the meshes are paired point by point: {src_proc_mesh.extent} and {dst_proc_mesh.extent} differ"
            )
        points = [Point(rank, dst_proc_mesh.extent) for rank in range(len(dst_proc_mesh))]
        ports = [_port(dst_port(point) if callable(dst_port) else dst_port) for point in points]
        addresses = [_address(src_address(point) if callable(src_address) else src_address) for point in points]
        dialers: Any = dst_proc_mesh.spawn("forward_to", _Dialer, ports)
        listeners: Any = src_proc_mesh.spawn("forward_from", _Listener, addresses, dialers)
        try:
            await listeners.listen.call()
        except (ActorError, SupervisionError) as error:
            await listeners.stop("it can't listen")
            await dialers.stop("nobody listens")
            raise getattr(error, "exception", error) from None
        self._pairs.append((listeners, dialers))


class _Listener(Actor):
    """Where clients connect."""

    def __init__(self, addresses: list[Address], dialers: Any) -> None:
        point = current_rank()
        self._address = addresses[point.rank]
        self._dialer = dialers.slice(**point)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = 0

    @endpoint
    async def listen(self) -> None:
        """Begin."""
        import asyncio

        self._server = await asyncio.start_server(self._serve, *self._address, reuse_address=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import asyncio

        self._numbers += 1
        number, remote = self._numbers, self._dialer
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await remote.open.call_one(number)
            await asyncio.gather(self._send(reader, number), self._receive(writer, number))
        except (
            ActorError,
            SupervisionError,
            OSError,
        ):  # nobody is there, or is any more: it is seen as a closed connection
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            with suppress(SupervisionError):
                remote.close.broadcast(number)

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
        for task in self._tasks:
            task.cancel()


class _Dialer(Actor):
    """Where the ports are."""

    def __init__(self, ports: list[int]) -> None:
        self._port = ports[current_rank().rank]
        self._open: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    @concurrent_endpoint
    async def open(self, number: int) -> None:
        """Connect."""
        import asyncio

        self._open[number] = await asyncio.open_connection("127.0.0.1", self._port)

    @concurrent_endpoint
    async def read(self, number: int) -> bytes:
        """What has come; nothing at the end."""
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
    async def close(self, number: int) -> None:
        """The connection has ended."""
        if number in self._open:
            self._open.pop(number)[1].transport.abort()

    @concurrent_endpoint
    async def close_all(self) -> None:
        """There is nobody on the other side any more."""
        self._abort()

    async def __cleanup__(self, exc: Exception | None) -> None:
        self._abort()

    def _abort(self) -> None:
        while self._open:
            self._open.popitem()[1][1].transport.abort()


def _port(port: Any) -> int:
    if not isinstance(port, int) or not 0 < port <= _LAST_PORT:
        raise ValueError(f"a port is a number from 1 to {_LAST_PORT}, got {port!r}")
    return port


def _address(text: Any) -> Address:
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not host or not port.isdecimal():
        raise ValueError(f"an address is given as 'address:port', got {text!r}")
    return host.strip("[]"), _port(int(port))
