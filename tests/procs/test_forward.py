"""TCP ports of procs, reached through actors: `PortForwarder`."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, cast

import pytest

from helpers.waiting import wait_until
from monarch.actor import Actor, ActorError, endpoint, this_proc
from monarch.job import PortForwarder
from monarch.job.forward import ForwardedPort

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("connections of real sockets through a proc")

_PATIENCE = 60.0  # seconds
Ports = Callable[[int], list[int]]
MUCH = 256 << 20  # bytes: more than all buffers of the kernel on the way


class Server(Actor):
    """Says back what it gets, behind its rank, when the client has said all."""

    def __init__(self) -> None:
        self._ended = self._sent = 0

    @endpoint
    def serve(self, rank: int) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, args=(listener, rank), daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    def _serve(self, listener: socket.socket, rank: int) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._answer, args=(connection, rank), daemon=True).start()

    def _answer(self, connection: socket.socket, rank: int) -> None:
        with connection, suppress(ConnectionResetError):
            connection.sendall(f"rank {rank}: ".encode())
            while data := connection.recv(65536):
                connection.sendall(data)
                self._sent += len(data)
            connection.shutdown(socket.SHUT_WR)
        self._ended += 1

    @endpoint
    def serve_much(self) -> int:
        """Says `MUCH` bytes to each, and nothing back."""
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._say_much, args=(listener,), daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    def _say_much(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(MUCH >> 16):
                connection.sendall(bytes(1 << 16))
                self._sent += 1 << 16

    @endpoint
    def sent(self) -> int:
        return self._sent

    @endpoint
    def ended(self) -> int:
        return self._ended

    @endpoint
    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def free_ports() -> Iterator[Ports]:
    """Ports that nobody listens on.

    They stay bound, so that the kernel gives them to nobody else; who names one can listen there.
    """
    with ExitStack() as held:

        def bind(count: int) -> list[int]:
            sockets = [held.enter_context(socket.socket()) for _ in range(count)]
            for each in sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                each.bind(("127.0.0.1", 0))
            return [each.getsockname()[1] for each in sockets]

        yield bind


def all_of(connection: socket.socket) -> bytes:
    connection.settimeout(_PATIENCE)
    parts = []
    while data := connection.recv(65536):
        parts.append(data)
    return b"".join(parts)


def test_a_connection_reaches_the_proc_at_the_same_point(spawn: Spawn, free_ports: Ports) -> None:
    there, here = spawn({"gpus": 2}), spawn({"gpus": 2})
    servers = there.spawn("servers", Server)
    behind = [servers.slice(gpus=rank).serve.call_one(rank).get() for rank in range(2)]
    front = free_ports(2)
    forwarder = this_proc().spawn("forwarder", PortForwarder)
    forwarder.forward.call_one(
        there,
        lambda point: behind[point["gpus"]],
        here,
        lambda point: f"127.0.0.1:{front[point.rank]}",
    ).get()
    much = os.urandom(1 << 20)
    for rank in range(2):
        with socket.create_connection(("127.0.0.1", front[rank]), _PATIENCE) as connection:
            sender = threading.Thread(
                target=lambda connection=connection: (
                    connection.sendall(much),
                    connection.shutdown(socket.SHUT_WR),
                )
            )
            sender.start()
            assert all_of(connection) == f"rank {rank}: ".encode() + much
            sender.join()
    forwarder.stop("enough").get()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", front[0]), _PATIENCE)


def test_ranks_of_one_host_share_an_address_and_serve_in_turn(
    spawn: Spawn, free_ports: Ports
) -> None:
    there, here = spawn({"gpus": 2}), spawn({"gpus": 2})
    servers = there.spawn("servers", Server)
    behind = [servers.slice(gpus=rank).serve.call_one(rank).get() for rank in range(2)]
    (front,) = free_ports(1)
    forwarder = this_proc().spawn("forwarder", PortForwarder)
    forwarder.forward.call_one(
        there, lambda point: behind[point["gpus"]], here, f"127.0.0.1:{front}"
    ).get()
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", front), _PATIENCE) as connection:
            connection.sendall(b"hello")
            connection.shutdown(socket.SHUT_WR)
            assert all_of(connection) in (b"rank 0: hello", b"rank 1: hello")
    forwarder.stop("enough").get()


def test_a_port_without_a_listener_is_a_closed_connection_and_so_is_a_dead_listener(
    spawn: Spawn, faults: Faults, free_ports: Ports
) -> None:
    there, here = spawn(), spawn()
    servers = there.spawn("servers", Server)
    listeners = here.spawn("listeners", Server)
    port = servers.serve.call_one(0).get()
    free, open_port, nobody = free_ports(3)
    forwarder = this_proc().spawn("forwarder", PortForwarder)
    forwarder.forward.call_one(there, nobody, here, f"127.0.0.1:{free}").get()
    forwarder.forward.call_one(there, port, here, f"127.0.0.1:{open_port}").get()
    with socket.create_connection(("127.0.0.1", free), _PATIENCE) as connection:
        try:
            assert all_of(connection) == b""
        except ConnectionResetError:
            pass
    with socket.create_connection(("127.0.0.1", open_port), _PATIENCE) as connection:
        connection.settimeout(_PATIENCE)
        assert connection.recv(4) == b"rank"
        os.kill(listeners.pid.call_one().get(), signal.SIGKILL)
        wait_until(
            lambda: servers.ended.call_one().get() == 1,
            what="the end of the connection on the other side",
        )
    faults.wait_for(1)  # the test's own actor there
    forwarder.stop("enough").get()


def test_who_reads_slowly_slows_the_writer_and_gets_all_of_it(
    spawn: Spawn, free_ports: Ports
) -> None:
    procs = spawn()
    server = procs.spawn("servers", Server)
    (front,) = free_ports(1)
    forwarder = this_proc().spawn("forwarder", PortForwarder)
    port = server.serve_much.call_one().get()
    forwarder.forward.call_one(procs, port, procs, f"127.0.0.1:{front}").get()
    with socket.create_connection(("127.0.0.1", front), _PATIENCE) as connection:
        connection.shutdown(socket.SHUT_WR)  # what comes still comes
        wait_until(lambda: server.sent.call_one().get() > 1 << 20, what="the first of it")
        for _ in range(300):  # without a limit on the way, all of it is sent by then
            assert server.sent.call_one().get() < MUCH // 2
        received = 0
        while data := connection.recv(1 << 20):
            received += len(data)
        assert received == MUCH
    forwarder.stop("enough").get()


@pytest.mark.parametrize(
    ("port", "address", "why"),
    [
        (0, "127.0.0.1:8000", "a port is a number from 1 to 65535, got 0"),
        (8000, "127.0.0.1:99999", "a port is a number from 1 to 65535, got 99999"),
        (8000, "127.0.0.1", "an address is given as 'address:port', got '127.0.0.1'"),
        (lambda point: "x", "127.0.0.1:8000", "a port is a number from 1 to 65535, got 'x'"),
    ],
)
def test_what_is_no_port_or_address_is_refused(
    spawn: Spawn, port: Any, address: str, why: str
) -> None:
    procs = spawn()
    forwarder = this_proc().spawn("forwarder", PortForwarder)
    with pytest.raises(ActorError) as raised:
        forwarder.forward.call_one(procs, port, procs, address).get()
    assert isinstance(raised.value.exception, ValueError) and why in str(raised.value.exception)
    forwarder.stop("enough").get()


@pytest.mark.parametrize(
    ("port", "local"), [(70000, 0), (0, 0), (-1, 0), (8000, 70000), (8000, -1), (True, 0)]
)
def test_a_port_of_a_host_that_is_none_is_refused_at_the_call(port: int, local: int) -> None:
    nowhere = cast("Any", None)  # nothing is asked of it
    with pytest.raises(ValueError, match="a port is a number from 1 to 65535, got"):
        ForwardedPort(nowhere, port, local)


def test_meshes_of_another_extent_and_addresses_that_are_taken_are_refused(spawn: Spawn) -> None:
    one, two = spawn(), spawn({"gpus": 2})
    forwarder = this_proc().spawn("forwarder", PortForwarder)
    with pytest.raises(ActorError, match="paired point by point"):
        forwarder.forward.call_one(one, 8000, two, "127.0.0.1:8000").get()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ActorError) as raised:
            forwarder.forward.call_one(one, 8000, one, where).get()
    assert isinstance(raised.value.exception, OSError)
    forwarder.stop("enough").get()
