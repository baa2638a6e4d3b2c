"""TCP ports of workers, reached from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .. import actor
from .._forwarding import Address, Dialer, Listener

_LAST_PORT = 65535


class PortForwarder(actor.Actor):
    """Reaches TCP ports of procs through actors: ``this_proc().spawn("forwarder", PortForwarder)``.

    Its `stop` ends all.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any]] = []  # who listens, and who connects

    def __supervise__(self, failure: actor.MeshFailure) -> bool:
        for listeners, dialers in self._pairs:
            if listeners is failure.mesh:
                for rank in failure.ranks:
                    with suppress(actor.SupervisionError):
                        dialers.slice(**actor.Point(rank, dialers.extent)).close_all.broadcast()
        return True  # who owns the procs is told of those, too

    @actor.endpoint
    async def forward(
        self,
        dst_proc_mesh: actor.ProcMesh,
        dst_port: int | Callable[[actor.Point], int],
        src_proc_mesh: actor.ProcMesh,
        src_address: str | Callable[[actor.Point], str],
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
        points = [actor.Point(rank, dst_proc_mesh.extent) for rank in range(len(dst_proc_mesh))]
        ports = [_port(dst_port(point) if callable(dst_port) else dst_port) for point in points]
        addresses = [
            _address(src_address(point) if callable(src_address) else src_address)
            for point in points
        ]
        await self._pair(dst_proc_mesh, ports, src_proc_mesh, addresses)

    async def _pair(
        self,
        there: actor.ProcMesh,
        ports: Sequence[int],
        here: actor.ProcMesh,
        addresses: Sequence[Address],
    ) -> tuple[Any, Any]:
        dialers: Any = there.spawn("forward_to", Dialer, ports)
        listeners: Any = here.spawn("forward_from", Listener, addresses, dialers)
        try:
            await listeners.listen.call()
        except (actor.ActorError, actor.SupervisionError) as error:
            await listeners.stop("it can't listen")
            await dialers.stop("nothing listens")
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

    def __init__(self, host: actor.HostMesh, port: int, local: int) -> None:
        _port(port)
        if local:
            _port(local)
        self._owner: Any = actor.this_proc().spawn("port_forward", _HostForwarder)
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

    @actor.endpoint
    async def open(self, host: actor.HostMesh, port: int, local: int) -> tuple[Any, int]:
        """Begin. Returns who connects, and the port here."""
        procs = host.spawn_procs(name="port_forward")
        listeners, dialers = await self._pair(
            procs, [port], actor.this_proc(), [("127.0.0.1", local)]
        )
        return dialers, await listeners.port.call_one()


def _port(port: Any) -> int:
    if type(port) is not int or not 0 < port <= _LAST_PORT:
        raise ValueError(f"a port is a number from 1 to {_LAST_PORT}, got {port!r}")
    return port


def _address(text: Any) -> Address:
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not colon or not host or not port.isdecimal():
        raise ValueError(f"an address is given as 'address:port', got {text!r}")
    return host.strip("[]"), _port(int(port))
